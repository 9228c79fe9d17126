"""`--stack`: seeds in one process, with the run folders and weights of separate trainings."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.backends import local
from gymnasium_solver.cli.main import main
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.experiments import experiment as experiments
from gymnasium_solver.experiments.experiment import FOLDER, Stack, create, load
from gymnasium_solver.experiments.pool import FAILED, FINISHED
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training import loop
from gymnasium_solver.training.prepare import load_config
from tests.experiments.fake_runs import finished
from tests.experiments.real_runs import command, digest, folder_of, tiny, wait_for, weights

SEEDS = (1, 2, 7)
STACK = ("--seeds", "1,2,7", "--stack")


@pytest.fixture(scope="module")
def separate(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """The weights of each seed trained alone."""
    root = tmp_path_factory.mktemp("separate")
    config = load_config(tiny(root))
    return {
        seed: digest(loop.train(config.replace(seed=seed), runs_root=root / "runs").path)
        for seed in SEEDS
    }


def test_a_stack_leaves_the_folders_of_separate_runs(
    tmp_path: Path, separate: dict[int, str], capsys: pytest.CaptureFixture[str]
) -> None:
    done = subprocess.run(command(tmp_path, *STACK), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert weights(tmp_path) == separate
    experiment = load(folder_of(tmp_path))
    assert [path.name for path in (experiment.path / "stacks").iterdir()] == ["00"]
    for folder in experiment.folders():
        assert Run(folder).meta()["status"] == "finished"
        for name in ("config.yaml", "metrics.jsonl", "events.jsonl", "report.md"):
            assert (folder / name).stat().st_size > 0
    where = ["--runs-dir", str(tmp_path / "runs")]
    assert main(["compare", "e", *where]) == 0
    assert main(["run", experiment.members[0].run, *where]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("victim", ["worker", "coordinator", "both"])
def test_a_killed_stack_is_continued_exactly(
    victim: str, tmp_path: Path, separate: dict[int, str]
) -> None:
    folder = folder_of(tmp_path) / "stacks" / "00"
    process = subprocess.Popen(command(tmp_path, *STACK), stdout=subprocess.DEVNULL)
    wait_for(lambda: len(list((tmp_path / "runs").glob("*/checkpoints/*/done"))) > 2)
    job = local.find(folder)
    assert job is not None
    if victim != "worker":
        process.kill()
        process.wait()
    if victim != "coordinator":
        os.kill(job.pid, signal.SIGKILL)
    if victim != "worker":
        process = subprocess.Popen(command(tmp_path, *STACK), stdout=subprocess.DEVNULL)
    assert process.wait(300) == 0, local.tail(folder, 50)
    assert weights(tmp_path) == separate
    again = local.find(folder)
    assert again is not None
    assert again.starts == (1 if victim == "coordinator" else 2)


def test_sigterm_saves_every_run(tmp_path: Path, separate: dict[int, str]) -> None:
    process = subprocess.Popen(command(tmp_path, *STACK), stdout=subprocess.DEVNULL)
    wait_for(lambda: len(list((tmp_path / "runs").glob("*/checkpoints/*/done"))) > 2)
    process.terminate()
    assert process.wait(120) == 75
    folders = load(folder_of(tmp_path)).folders()
    assert {Run(folder).meta()["status"] for folder in folders} == {"interrupted"}
    # One alone, then the rest as a stack.
    resume = ["train", "--resume", folders[0].name, "-q", "--runs-dir", str(tmp_path / "runs")]
    subprocess.run(local.gsolve(*resume), check=True, capture_output=True, timeout=300)
    subprocess.run(command(tmp_path, *STACK), check=True, capture_output=True, timeout=300)
    assert weights(tmp_path) == separate


@pytest.mark.parametrize(
    ("config", "fields", "why"),
    [
        ("CartPole-v1:sac", {}, "algo_id sac; ppo, a2c, reinforce, dqn can be stacked"),
        ("CartPole-v1:ppo_memory", {}, "recurrent: a recurrent network"),
        ("CartPole-v1:ppo", {"eval_async": True}, "eval_async: a process of its own"),
        ("CartPole-v1:ppo", {"intrinsic": "rnd"}, "intrinsic: an intrinsic reward"),
        ("CartPole-v1:ppo", {"policy": "cnn"}, "it learns from images"),
    ],
)
def test_what_cannot_be_stacked_is_refused(config: str, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        experiments.check_stackable("mine", load_config(config, overrides=fields))
    text = str(caught.value)
    assert text.startswith(f"--stack: mine cannot be stacked: {why}")
    assert "Use --jobs N" in text
    assert "\n" not in text


def test_a_refusal_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["CartPole-v1:sac", "--seeds", "3", "--stack", "--runs-dir", str(tmp_path)]
    assert main(["train", *words]) == 2
    assert "cannot be stacked: algo_id sac" in capsys.readouterr().err
    assert not (tmp_path / FOLDER).exists()
    assert main(["train", "CartPole-v1:ppo", "--stack", "--backend", "ray"]) == 2
    assert "--stack trains in one process here" in capsys.readouterr().err


def test_images_are_refused_by_the_process_of_the_stack() -> None:
    from gymnasium_solver.cli.stack_worker import misfit

    assert misfit("CartPole-v1:ppo") is None
    assert "it learns from images" in str(misfit("ALE/Pong-v5:ppo"))


def test_one_stack_per_cpu_with_at_least_four_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "cpu_count", lambda: 3)
    config = load_config("CartPole-v1:ppo")
    found = [experiments.default_stacks([config], n) for n in (1, 7, 8, 12, 100)]
    assert found == [1, 1, 2, 3, 3]
    monkeypatch.setattr(experiments, "cpu_count", lambda: 64)
    on_gpu = config.replace(device="cuda")
    assert [experiments.default_stacks([on_gpu], n) for n in (1, 4, 10, 100)] == [1, 2, 5, 5]


def test_seeds_are_dealt_out_to_stacks_and_stay_there(tmp_path: Path) -> None:
    config = load_config("CartPole-v1:ppo")
    made = create([("a", config), ("b", config)], [1, 2, 3], tmp_path, name="x", stacks=2)
    tasks = load(made.path).stacked_tasks()
    assert [task.label for task in tasks] == [
        "a seeds 1, 3", "a seeds 2", "b seeds 1, 3", "b seeds 2"
    ]  # fmt: skip
    lanes = experiments.read_lanes(tasks[0].folder)
    assert [lane.run.name for lane in lanes] == [made.members[0].run, made.members[2].run]
    assert "--if-exists" in lanes[0].words


def test_a_stack_is_over_when_all_its_runs_are(tmp_path: Path) -> None:
    made = create([("a", load_config("CartPole-v1:ppo"))], [1, 2], tmp_path, stacks=1)
    (task,) = made.stacked_tasks()
    assert isinstance(task, Stack)
    assert task.outcome() is None
    runs = [finished(tmp_path, member.run, 1.0, pid=2**30) for member in made.members]
    runs[1].update_meta(status="running", pid=2**30)  # killed
    assert task.outcome() is None
    runs[1].update_meta(status="failed", stop_detail="a NaN")
    assert task.outcome() == FAILED
    assert task.why(local) == f"{runs[1].path.name}: a NaN"  # type: ignore[arg-type]
    runs[1].update_meta(status="finished")
    assert task.outcome() == FINISHED
