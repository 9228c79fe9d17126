"""`gsolve sweep` as a user types it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.backends import local
from gymnasium_solver.cli import many
from gymnasium_solver.experiments import pool as pools
from gymnasium_solver.experiments.search import sweep_report as reports
from gymnasium_solver.experiments.search.journal import Trial
from gymnasium_solver.runs import machine
from tests.cli.conftest import Gsolve
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


def test_a_sweep_from_start_to_variant(runs: Path, gsolve: Gsolve) -> None:
    out = gsolve(*START, "--trials", "4", "--final", "1", "--final-seeds", "3")
    assert all(part in out for part in ("trial 0: ", "own values", "verdict: "))
    shown = gsolve.json("sweep show")
    assert (shown["status"], len(shown["rows"])) == ("finished", 4)
    assert "4/4" in gsolve("sweep list")
    gsolve("sweep show --all")
    kept = gsolve("sweep best --write configs/My.yaml:ppo_tuned")
    assert "gsolve train configs/My.yaml:ppo_tuned" in kept
    assert gsolve.json("sweep --resume @last --trials 6")["trials"] == 6
    assert gsolve.json("sweep best --trial 0")["fields"]["policy_lr"] == "lin_0.003"


def test_dry_run_of_a_wandb_file(runs: Path, gsolve: Gsolve) -> None:
    Path("bayes.yaml").write_text(
        "method: bayes\nmetric: {name: train/roll/ep_rew/mean, goal: maximize}\n"
        "parameters: {policy_lr: {min: 1e-5, max: 1e-3}, n_epochs: {values: [5, 10]}}\n"
        "program: train.py\ncommand: [python, train.py, --config_id, 'CartPole-v1:ppo']\n"
    )
    plan = gsolve.json("sweep bayes.yaml --trials 7 --dry-run")
    assert (plan["trials"], plan["sampler"]) == (7, "tpe")
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
def test_mistakes_are_one_line(words: list[str], message: str, runs: Path, gsolve: Gsolve) -> None:
    assert message in gsolve(*words, code=2)


def test_reading_needs_no_torch(runs: Path, gsolve: Gsolve) -> None:
    gsolve(*START, "--trials", "3", "--final", "0", "-q")
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


def test_where_trials_train(runs: Path, gsolve: Gsolve, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Did you mean ray" in gsolve(*START, "--backend", "rey", code=2)
    assert "use local, ray or slurm" in gsolve(*START, "--backend", "modal", code=2)
    gsolve(*START, "--resources", "cpus=2", code=2)
    assert not (runs / "sweeps").exists()
    asked: list[str] = []

    def ray(args: Any, configs: Any) -> FakeBackend:
        asked.append(many.backend_of(args))
        return FakeBackend()

    monkeypatch.setattr(many, "pool_backend", ray)
    gsolve(*START, "--trials", "2", "--final", "0", "--backend", "ray", "-q")
    more = "sweep --resume @last --trials 3 -q --backend"
    gsolve(more, "slurm", code=2)  # there is no sbatch here
    assert asked == ["ray"]
    gsolve(more, "ray")
    assert asked == ["ray", "ray"]
