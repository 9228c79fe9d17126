"""Suggestions for misspelled names."""

from pathlib import Path

import gymnasium_solver
from gymnasium_solver.suggest import did_you_mean, nearest


def test_nearest_ignores_case_and_keeps_the_known_spelling() -> None:
    assert nearest("cartpole-v1", ["CartPole-v1", "Taxi-v3"]) == ["CartPole-v1"]


def test_the_question_lists_up_to_n_names() -> None:
    known = ["south", "soutg", "north"]
    assert did_you_mean("sout", known) == "Did you mean south?"
    assert did_you_mean("sout", known, n=2) == "Did you mean south or soutg?"
    assert did_you_mean("zzz", known) == ""


def test_no_other_module_calls_difflib() -> None:
    root = Path(gymnasium_solver.__file__).parent
    users = [path.name for path in root.rglob("*.py") if "difflib" in path.read_text()]
    assert users == ["suggest.py"]
