"""Fast updates and acting: recorded programs, CUDA graphs, the flat optimiser."""
