"""Runs: one folder per training (`run`) with checkpoints, metrics and report; `query` reads them.

Nothing here imports torch or gymnasium. The command line, web pages and agents read runs through
`query`.
"""
