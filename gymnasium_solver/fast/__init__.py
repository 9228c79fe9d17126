"""How updates and acting run fast: recorded programs, CUDA graphs, the flat optimizer."""
