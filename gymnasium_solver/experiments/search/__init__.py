"""Search over hyper-parameters: `gsolve sweep`."""
