"""Checks of an environment, of its raw returns and of its spec block."""
