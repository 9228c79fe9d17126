"""An environment that nobody has tuned: measure it, choose, race, check, judge (solve.py)."""
