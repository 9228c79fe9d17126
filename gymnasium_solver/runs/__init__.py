"""Runs: one folder a training (`run`), its checkpoints, metrics and report, and `query` to read it.

Nothing here imports torch or gymnasium; `query` is what command line, web pages and agents read by.
"""
