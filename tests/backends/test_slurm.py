"""Slurm: the script, and job arrays on a real slurmctld that are preempted, requeued, finished."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gymnasium_solver.backends import slurm
from gymnasium_solver.backends.local import TASKS, BackendError, gsolve
from gymnasium_solver.backends.resources import Resources
from gymnasium_solver.experiments.experiment import FOLDER, Experiment, Progress, load
from gymnasium_solver.runs.run import Run
from tests.backends import slurm_cluster
from tests.experiments.real_runs import digest, tiny, wait_for


def test_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GSOLVE_SLURM_SETUP", "module load cuda\nsource env.sh")
    needs = Resources(4, 2.5, 1, 1.5)
    script = slurm.write_script(
        tmp_path, [["a", "b"], ["c"]], needs, name="my exp", jobs=1, options=["--partition=gpu"]
    )
    text = script.read_text()
    for line in (
        "#SBATCH --array=0-1%1", "#SBATCH --requeue", "#SBATCH --signal=B:TERM@30",
        "#SBATCH --cpus-per-task=4", "#SBATCH --mem=2500M", "#SBATCH --time=01:30:00",
        "#SBATCH --gres=gpu:1", "#SBATCH --partition=gpu", "#SBATCH --job-name=my-exp",
    ):  # fmt: skip
        assert f"{line}\n" in text
    assert subprocess.run(["bash", "-n", str(script)]).returncode == 0
    assert (
        text.index("cd ") < text.index("module load cuda\nsource env.sh\n") < text.index(" task ")
    )
    failed = subprocess.run(["bash", str(script)], capture_output=True, text=True)
    assert (failed.returncode, "env.sh" in failed.stderr) == (1, True)
    assert '"a"' in (tmp_path / TASKS).read_text()


def fake_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    log = tmp_path / "requeued"
    tool = tmp_path / "scontrol"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    return log


def task_script(folder: Path, task: str) -> str:
    """The script of an array whose task 1 is this shell command."""
    argvs = [["false"], ["sh", "-c", task]]
    return str(slurm.write_script(folder, argvs, Resources(1, 1, 0, 1), name="x"))


@pytest.mark.parametrize(("code", "requeued"), [(75, "requeue 7_1\n"), (0, ""), (1, "")])
def test_only_a_preempted_task_is_requeued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, requeued: str
) -> None:
    log = fake_slurm(tmp_path, monkeypatch)
    done = subprocess.run(["bash", task_script(tmp_path, f"exit {code}")], timeout=60)
    assert (log.read_text() if log.exists() else "") == requeued
    assert done.returncode == (0 if code == 75 else code)


def test_a_cancelled_task_is_not_requeued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fake_slurm(tmp_path, monkeypatch)
    script = task_script(tmp_path, "exit 75")
    (tmp_path / slurm.CANCELLED).touch()
    assert subprocess.run(["bash", script], timeout=60).returncode == 75
    assert not log.exists()


def test_sigterm_reaches_the_training_and_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = fake_slurm(tmp_path, monkeypatch)
    train = "trap 'sleep 0.3; echo saved; exit 75' TERM; echo here; while :; do sleep 0.05; done"
    argv = ["bash", task_script(tmp_path, train)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.terminate()
    out, _ = process.communicate(timeout=60)
    assert out == "saved\n"
    assert log.read_text() == "requeue 7_1\n"


def test_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendError, match="sbatch is not on the PATH"):
        slurm.submit(tmp_path / "x")


# --- on a real Slurm


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm_cluster.Cluster]:
    if (reason := slurm_cluster.why_missing()) is not None:
        pytest.skip(reason)
    found = slurm_cluster.start(tmp_path_factory.mktemp("slurm"))
    yield found
    found.stop()


def train(root: Path, env: dict[str, str], *words: str) -> Experiment:
    config = tiny(root, max_env_steps=20_000, checkpoint_freq_epochs=50, eval_freq_epochs=500)
    argv = gsolve("train", config, "--seeds", "2", "--experiment", "e", *words)
    done = subprocess.run(
        [*argv, "--runs-dir", str(root / "runs")], env=env, capture_output=True, text=True,
        timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return load(root / "runs" / FOLDER / "e")


@pytest.mark.services
def test_preempted_requeued_finished(cluster: slurm_cluster.Cluster, tmp_path: Path) -> None:
    """A preemption (SIGTERM to the script) saves, requeues and continues: the same weights."""
    for name in ("slurm", "local"):
        (tmp_path / name).mkdir()
    words = ["--backend", "slurm", "--detach", "--resources", "memory=1.5"]
    experiment = train(tmp_path / "slurm", cluster.env, *words)
    job_id = (experiment.path / "slurm" / slurm.RECORD).read_text().split('"')[-2]

    def is_training() -> bool:
        return all(row.run and row.run.env_steps > 3000 for row in Progress(experiment).rows())

    wait_for(is_training, 240)
    cluster.command("scancel", "--signal=TERM", "--batch", job_id)
    wait_for(lambda: any(r.status == "interrupted" for r in Progress(experiment).rows()), 60)

    wait_for(lambda: all(r.status == "finished" for r in Progress(experiment).rows()), 400)
    resumed = [row.run for row in Progress(experiment).rows()]
    assert all(run and len(Run(Path(run.path)).meta()["resumed"]) == 1 for run in resumed)
    local = train(tmp_path / "local", dict(os.environ))
    assert [*map(digest, local.folders())] == [*map(digest, experiment.folders())]


@pytest.mark.services
def test_cancelled(cluster: slurm_cluster.Cluster, tmp_path: Path) -> None:
    words = ["--backend", "slurm", "--detach", "--resources", "memory=1.5", "--jobs", "1"]
    experiment = train(tmp_path, cluster.env, *words)
    wait_for(lambda: any(r.run and r.run.env_steps for r in Progress(experiment).rows()), 120)
    where = ["--runs-dir", str(experiment.root)]
    done = subprocess.run(gsolve("jobs", "cancel", "e", *where), env=cluster.env, timeout=60)
    assert done.returncode == 0
    job_id = (experiment.path / "slurm" / slurm.RECORD).read_text().split('"')[-2]
    wait_for(lambda: not cluster.command("squeue", "-h", "-t", "PD,R,CG", "-j", job_id), 90)
    states = sorted(row.status for row in Progress(experiment).rows())
    assert states == ["interrupted", "waiting"]
