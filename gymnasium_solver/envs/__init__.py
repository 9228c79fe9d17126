"""Environments under one contract (vector.py), made by make.py. Import what you need from its module:
this package imports nothing, so that the command line stays light."""
