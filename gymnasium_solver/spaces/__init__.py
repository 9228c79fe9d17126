"""Observation parts and action objects: what networks, storage, masks and JSON need to know."""
