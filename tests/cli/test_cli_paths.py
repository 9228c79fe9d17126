"""Paths that cannot be: every verb says so in one line and leaves nothing behind."""

from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.cli import main as cli
from gymnasium_solver.paths import PathError, output_file, user_path
from gymnasium_solver.runs.run import Run, runs_root

LONG = "a" * 300
TRAIN = ["train", "CartPole-v1:ppo", "--max-env-steps", "64", "-q"]


@pytest.fixture(autouse=True)
def _one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GSOLVE_RUNS", raising=False)
    (tmp_path / "file").write_text("x")
    identity = {"env_id": "CartPole-v1", "algo_id": "ppo", "variant": "ppo", "seed": 1}
    with Run.create("env_id: CartPole-v1\nalgo_id: ppo\n", identity, tmp_path / "runs") as run:
        run.log_metrics({"env_steps": 1, "epoch": 1, "wall_s": 1.0, "train/roll/ep_rew/mean": 1})


@pytest.mark.parametrize(
    "argv",
    [
        ["plot", "@last", "-o", "file/a.png"],
        ["plot", "@last", "-o", f"{LONG}.png"],
        ["plot", "@last", "-o", f"{LONG}/a.png"],
        ["plot", "@last", "-o", "~nope/a.png"],
        ["plot", "@last", "-o", "."],
        ["plot", "@last", "-o", "a.xyz"],
        ["plot", "@last", "-o", "a\0b.png"],
        ["plot", LONG],
        ["schema", "-o", "file/a"],
        ["schema", "-o", LONG],
        ["schema", "-o", "~nope/a"],
        ["schema", "-o", "runs"],
        ["run", "~nope/x"],
        ["run", LONG],
        ["run", f"/{LONG}"],
        ["run", f"{LONG}/{LONG}/@best"],
        ["run", "a\0b"],
        ["run", "@last/" + "9" * 5000],
        ["run", "@last", "--log", "-1"],
        ["run", "@last", "--csv", "file/a.csv"],
        ["run", "@last", "--csv", LONG],
        ["run", "@last", "--csv", "~nope/a"],
        ["envs", "show", "CartPole-v1", "--frame", "~nope/a.png"],
        ["check", LONG],
        ["report", "@last", "-o", "a\0b.html"],
        ["report", "@last", "-o", "file/a.md"],
        ["report", "@last", "-o", f"{LONG}.html"],
        ["report", "@last", "-o", "~nope/a.html"],
        ["runs", "--limit", "-1"],
        ["runs", "--runs-dir", "~nope/x"],
        ["eval", "~nope/x"],
        ["eval", f"@last/{'9' * 5000}"],
        ["eval", LONG, "--runs-dir", LONG],
        ["roms", "import", "~nope/x"],
        ["roms", "import", LONG],
        [*TRAIN, "--runs-dir", LONG],
        [*TRAIN, "--runs-dir", "file"],
        [*TRAIN, "--runs-dir", "~nope/x"],
        [*TRAIN, "--run-dir", "~nope/x"],
        [*TRAIN, "--run-dir", LONG],
        [*TRAIN, "--run-name", LONG],
        [*TRAIN, "--run-dir", "file"],
        [*TRAIN, "--init-from-run", "~nope/x"],
        [*TRAIN, "--init-from-run", LONG],
        ["train", "--resume", "~nope/x"],
        ["train", LONG, "--runs-dir", LONG],
        ["show", "~nope/a.yaml"],
    ],
)
def test_one_line_and_exit_2(argv: list[str], tmp_path: Path, capsys: Any) -> None:
    if argv[0] == "roms":
        pytest.importorskip("stable_retro")
    before = sorted(tmp_path.rglob("*"))
    assert cli.main(argv) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"gsolve {argv[0]}: ")
    assert error.count("\n") <= 3
    assert sorted(tmp_path.rglob("*")) == before


def test_eval_refuses_numbers_that_are_no_seed(capsys: Any) -> None:
    for seed in ("²", "٣", "9" * 5000, "-1", str(2**31)):
        assert cli.main(["eval", "@last", "--seed", seed]) == 2
        assert "Traceback" not in capsys.readouterr().err


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert runs_root("~/runs") == tmp_path / "runs"
    assert user_path("a~b") == Path("a~b")
    assert output_file("~/a.png", "it") == tmp_path / "a.png"
    with pytest.raises(PathError, match="no user 'nope'"):
        user_path("~nope/x")
    assert cli.main(["plot", "@last", "-o", "~/new/a.png"]) == 0
    assert (tmp_path / "new" / "a.png").is_file()
