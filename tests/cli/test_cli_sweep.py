"""`gsolve sweep` as a user types it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.backends import local
from gymnasium_solver.cli import many
from gymnasium_solver.cli.main import main
from gymnasium_solver.experiments import pool as pools
from gymnasium_solver.experiments.search import sweep_report as reports
from gymnasium_solver.experiments.search.journal import Trial
from gymnasium_solver.runs import machine
from tests.experiments.fake_runs import FakeBackend

pytest.importorskip("optuna")

START = ["sweep", "CartPole-v1:ppo", "--param", "policy_lr=log:1e-5..1e-2", "--param",
         "n_epochs=4,10", "--max-env-steps", "10_000", "--metric", "score"]  # fmt: skip


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pools, "POLL_S", 0.0)
    monkeypatch.setattr(local, "LocalBackend", lambda **_: FakeBackend())
    monkeypatch.setattr(reports, "draw_all", lambda *_: [])
    monkeypatch.setattr(machine, "git_state", lambda _: (None, b""))
    monkeypatch.setenv("GSOLVE_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def gsolve(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def test_a_sweep_from_start_to_variant(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = gsolve(capsys, *START, "--trials", "4", "--final", "1", "--final-seeds", "3")
    assert code == 0
    assert "trial 0: " in out
    assert "own values" in out
    assert "verdict: " in out
    code, out, _ = gsolve(capsys, "sweep", "show", "--json")
    shown = json.loads(out)
    assert shown["status"] == "finished"
    assert len(shown["rows"]) == 4
    code, out, _ = gsolve(capsys, "sweep", "list")
    assert "4/4" in out
    code, out, _ = gsolve(capsys, "sweep", "show", "--all")
    assert code == 0
    code, out, _ = gsolve(capsys, "sweep", "best", "--write", "configs/My.yaml:ppo_tuned")
    assert "gsolve train configs/My.yaml:ppo_tuned" in out
    code, out, _ = gsolve(capsys, "sweep", "--resume", "@last", "--trials", "6", "--json")
    assert code == 0
    assert json.loads(out)["trials"] == 6
    code, out, _ = gsolve(capsys, "sweep", "best", "--json", "--trial", "0")
    assert json.loads(out)["fields"]["policy_lr"] == "lin_0.003"


def test_dry_run_of_a_wandb_file(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bayes.yaml").write_text(
        "method: bayes\nmetric: {name: train/roll/ep_rew/mean, goal: maximize}\n"
        "parameters: {policy_lr: {min: 1e-5, max: 1e-3}, n_epochs: {values: [5, 10]}}\n"
        "program: train.py\ncommand: [python, train.py, --config_id, 'CartPole-v1:ppo']\n"
    )
    code, out, _ = gsolve(capsys, "sweep", "bayes.yaml", "--trials", "7", "--dry-run", "--json")
    plan: dict[str, Any] = json.loads(out)
    assert code == 0
    assert plan["trials"] == 7
    assert plan["sampler"] == "tpe"
    assert plan["metric"]["name"] == "train/roll/ep_rew/mean"
    assert not (runs / "sweeps").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sweep"], "no target given"),
        (["sweep", "CartPole-v1:ppo", "--param", "polcy_lr=0..1"], "Did you mean policy_lr?"),
        (["sweep", "CartPole-v1:ppo", "--param", "n_epochs=0.5..2.5"], "a whole number"),
        (["sweep", "CartPole-v1:ppo", "--param", "env_kwargs"], "has no range of its own"),
        (["sweep", "CartPole-v1:ppo", "--sampler", "bayes"], "sampler: got 'bayes'"),
        (
            ["sweep", "CartPole-v1:ppo", "--trials", "many"],
            "--trials many: expected",
        ),
        (["sweep", "CartPole-v1:ppo", "--metric", "scroe"], "Did you mean score?"),
        (["sweep", "CartPole-v1:pppo"], "pppo"),
        (["sweep", "--resume", "@last"], "there are no sweeps"),
        (["sweep", "show", "nothing"], "there are no sweeps"),
        (
            ["sweep", "CartPole-v1:ppo", "--polcy-lr", "0.1"],
            "Did you mean policy_lr?",
        ),
        (["sweep", "CartPole-v1:ppo", "--resume", "@last"], "keeps what it searches"),
    ],
)
def test_mistakes_are_one_line(words: list[str], message: str, runs: Path, capsys: Any) -> None:
    code, _, err = gsolve(capsys, *words)
    assert code == 2
    assert message in err


def test_reading_needs_no_torch(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gsolve(capsys, *START, "--trials", "3", "--final", "0", "-q")
    for words in ("--help", "list", "show @last --all"):
        source = (
            "import sys; from gymnasium_solver.cli.main import main; "
            f"assert main(['sweep', *{words.split()!r}]) == 0; "
            "assert 'torch' not in sys.modules and 'gymnasium' not in sys.modules"
        )
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_from_python(runs: Path) -> None:
    import gymnasium_solver as gs

    ended: list[Trial] = []
    found = gs.sweep(
        "CartPole-v1:ppo", {"policy_lr": "log:1e-5..1e-2", "n_epochs": [4, 10]}, trials=3,
        metric="score", final=0, max_env_steps=10_000, on_trial=ended.append,
    )  # fmt: skip
    assert [trial.number for trial in ended] == [0, 1, 2]
    assert found.status == "finished"
    assert found.winner == found.rows()[0]["number"]
    assert gs.sweep(resume="@last").rows() == found.rows()


def test_where_trials_train(runs: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = gsolve(capsys, *START, "--backend", "rey")
    assert code == 2
    assert "Did you mean ray" in err
    code, _, err = gsolve(capsys, *START, "--backend", "modal")
    assert code == 2
    assert "use local, ray or slurm" in err
    code, _, err = gsolve(capsys, *START, "--resources", "cpus=2")
    assert code == 2
    assert not (runs / "sweeps").exists()
    asked: list[str] = []

    def ray(args: Any, configs: Any) -> FakeBackend:
        asked.append(many.backend_of(args))
        return FakeBackend()

    monkeypatch.setattr(many, "pool_backend", ray)
    words = ("--trials", "2", "--final", "0", "--backend", "ray")
    code, _, _ = gsolve(capsys, *START, *words, "-q")
    assert code == 0
    code, _, _ = gsolve(
        capsys, "sweep", "--resume", "@last", "--trials", "3", "--backend", "slurm", "-q"
    )
    assert (code, asked) == (2, ["ray"])  # there is no sbatch here
    code, _, _ = gsolve(
        capsys, "sweep", "--resume", "@last", "--trials", "3", "--backend", "ray", "-q"
    )
    assert (code, asked) == (0, ["ray", "ray"])
