"""Engines: adapters from a package that steps environments to the vector contract."""
