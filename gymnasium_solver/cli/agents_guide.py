"""`gsolve agents-guide`: how an agent trains, debugs, tunes and compares with this package."""

from collections.abc import Sequence

from gymnasium_solver.cli.flags import Parser


def main(argv: Sequence[str]) -> int:
    parser = Parser(
        "agents-guide",
        "Print the guide for coding agents, as Markdown: put it where your agent reads it.",
        "examples:\n  gsolve agents-guide\n  gsolve agents-guide >> AGENTS.md",
    )
    parser.read(argv)

    from gymnasium_solver.serve import guide_text

    print(guide_text(), end="")
    return 0
