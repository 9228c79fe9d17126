"""Watching agents: episodes step by step, videos, the play window and the terminal view."""
