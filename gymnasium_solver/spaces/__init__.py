"""Observation and action spaces: parts, storage, distributions, masks and JSON."""
