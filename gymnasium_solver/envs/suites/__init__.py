"""Suites: families of environments with options of their own."""
