"""The guide for coding agents, as `gsolve agents-guide` prints it."""

from pathlib import Path

PATH = Path(__file__).with_name("agents_guide.md")


def guide_text() -> str:
    return PATH.read_text(encoding="utf-8")
