"""The config class of each algorithm, in a module named by its id. Nothing here imports torch, so
configs can be read, checked and sent to other machines where it is not installed."""
