"""Servers over the runs: `web` is `gsolve ui`, `mcp` is `gsolve mcp`. They import neither torch nor
any environment."""
