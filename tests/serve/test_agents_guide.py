"""The guide for coding agents is in the package and in the repository."""

from pathlib import Path

from gymnasium_solver.cli.main import main
from gymnasium_solver.serve import guide_text

REPOSITORY = Path(__file__).parents[2]


def test_the_guide_is_printed_and_is_that_of_the_repository(capsys: object) -> None:
    assert guide_text() == (REPOSITORY / "AGENTS.md").read_text(encoding="utf-8")
    assert main(["agents-guide"]) == 0
    assert capsys.readouterr().out == guide_text()  # type: ignore[attr-defined]
