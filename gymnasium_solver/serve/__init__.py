"""Servers over the runs: `web` is `gsolve ui`. They import neither torch nor any environment."""
