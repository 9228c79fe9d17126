"""Environments under one contract (vector.py), made by make.py.

This package imports nothing by itself, so that the command line stays light.
"""
