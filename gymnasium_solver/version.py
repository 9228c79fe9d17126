"""The version of the package, apart from the names that the package itself offers."""

__version__ = "0.1.0"
