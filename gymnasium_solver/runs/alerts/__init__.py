"""Alerts: what looks wrong in a run, judged from its rows and events, live or from its files."""
