"""Servers over the runs: `web` is `gsolve ui`, `mcp` is `gsolve mcp`. They import neither torch nor
any environment. What may be asked of them is in questions.py."""

from pathlib import Path

GUIDE = Path(__file__).with_name("agents_guide.md")


def guide_text() -> str:
    """The guide for coding agents, as `gsolve agents-guide` prints it."""
    return GUIDE.read_text(encoding="utf-8")
