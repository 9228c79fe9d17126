"""Environments under one contract (vector.py), made by make.py.

Importing this package imports nothing else, so that the command line starts fast.
"""
