"""Random configs and command lines: a result or an error of a few lines, never a traceback."""

import random
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.cli import main as cli
from gymnasium_solver.errors import GsolveError
from gymnasium_solver.registry import ALGOS, config_class
from gymnasium_solver.training.prepare import build_config

ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 10**40, -0.0, 1e308, float("nan"), float("inf"), "", " ", "auto",
    "null", "1e-3", "lin_0.001", "lin_", "\x1b[31m", "\ud800", "a:b", "../..", "x" * 300, [], {},
    [[]], [None], {"a": 1}, {1: 2}, {"start": 1, "end": "x"}, [1, "a"], (1, 2), b"b", 1 + 2j,
    object(), {"id": 3}, [{"id": "RewardScale", "scale": "x"}], {"stages": []}, set(), range(3),
    "2026-01-01", 0.1 + 0.2,
)  # fmt: skip
WORDS = (
    "@last", "@best", "no-such-run", "0", "-1", "1e9", "", " ", "--json", "--help", "-h",
    "--seed", "--seed=x", "--runs-dir", "--runs-dir=.", "--no-such-flag", "CartPole-v1:ppo",
    "CartPole-v1:nope", "nope-v0", "a:b:c", "../..", "/dev/null", "*", "\x1b[31m", "é", "--set",
    "--set=a", "x=y", "[", "{", "--trust", "--episodes", "--limit", "@last/9999", "a,b",
    "--metrics", "--log", "--", "-", "--=", "=",
)  # fmt: skip
# These serve, train, measure or reach out for as long as they are told to.
LONG = {
    "ui", "mcp", "smoke", "bench", "tune-envs", "hub", "pull", "publish", "baselines", "play",
    "sweep", "benchmark", "doctor", "train", "track", "check",
}  # fmt: skip


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(1, 15))]
)
def test_random_values_of_configs(part: int) -> None:
    """100 configs each, with one to three odd values."""
    for trial in range(100):
        rng = random.Random(f"{part}-{trial}")
        algo_id = rng.choice(list(ALGOS))
        names = rng.sample(list(config_class(algo_id).model_fields), rng.randint(1, 3))
        odd = {name: rng.choice(ODD) for name in names}
        said = ""
        try:
            build_config({"env_id": "CartPole-v1", "algo_id": algo_id, "max_epochs": 1, **odd})
        except GsolveError as error:
            said = str(error)
        assert len(said) < 3000, odd
        assert said.replace("\n", "").isprintable(), odd


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(1, 12))]
)
def test_random_command_lines(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """50 lines each; no run is there."""
    monkeypatch.chdir(tmp_path)
    verbs = sorted(set(cli.verb_names()) - LONG)
    for trial in range(50):
        rng = random.Random(f"{part}-{trial}")
        argv = [rng.choice(verbs), *rng.choices(WORDS, k=rng.randint(0, 4))]
        code = cli.main(argv)
        out, err = capsys.readouterr()
        assert code in (0, 1, 2), argv
        assert "Traceback" not in err, argv
        assert "\x1b" not in out + err, argv
