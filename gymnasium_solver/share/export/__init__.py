"""Export of trained policies: raw observation in, the environment's action out."""
