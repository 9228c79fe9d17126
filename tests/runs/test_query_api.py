"""The read API on run folders made by the write API."""

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs import query
from gymnasium_solver.runs.checkpoint import save_checkpoint
from gymnasium_solver.runs.run import Run

TEST = {"mean": 478.25, "stderr": 2.5, "episodes": 100, "greedy": True}
BEST = {"score": 480.5, "env_steps": 2000, "epoch": 2}


def make_run(root: Path, env_id: str = "CartPole-v1", algo_id: str = "ppo", **meta: Any) -> Run:
    identity = {"env_id": env_id, "algo_id": algo_id, "variant": algo_id, "seed": 42}
    yaml = f"env_id: {env_id}\nalgo_id: {algo_id}\npolicy_lr: 0.001\nhidden_dims: [64, 64]\n"
    with Run.create(yaml, identity | {"max_env_steps": 3000}, root, ["gsolve", "train"]) as run:
        for epoch in (1, 2, 3):
            row: dict[str, Any] = {"env_steps": 1000 * epoch, "epoch": epoch, "wall_s": epoch / 2}
            row["train/opt/loss/total"] = math.nan if epoch == 2 else 0.1 * epoch
            row["train/opt/loss/policy"] = 0.5
            row["train/cnt/total_episodes"] = 10 * epoch
            if epoch == 2:
                row["val/roll/ep_rew/mean"] = 480.5
            run.log_metrics(row)
        run.log_event("eval", env_steps=2000, epoch=2, mean=480.5)
        run.log_event("checkpoint", env_steps=2000)
        run.log_text("one\ntwo\nthree")
        save_checkpoint(run.checkpoints_dir, 2000, {}, {}, {"score": 480.5}, best=True)
        save_checkpoint(run.checkpoints_dir, 3000, {}, {}, {})
        run.update_meta(**{"status": "running", "env_steps": 1000, "best": BEST} | meta)
    return run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    verdict: dict[str, Any] = {"status": "finished", "stop_reason": "solved", "solved": True}
    verdict |= {"test": TEST, "threshold": 475.0}
    counts: dict[str, Any] = {"env_steps": 3000, "epoch": 3, "episodes": 30, "wall_s": 1.5}
    return make_run(tmp_path, **verdict, **counts)


def test_import_is_light() -> None:
    heavy = "{'numpy', 'torch', 'gymnasium', 'yaml', 'safetensors', 'pydantic'}"
    code = f"import sys, gymnasium_solver.runs.query; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_summary_of_a_finished_run(run: Run, tmp_path: Path) -> None:
    summary = query.get_run("@last", tmp_path)
    assert (summary.id, summary.path) == (run.id, str(run.path))
    assert (summary.env_id, summary.algo_id, summary.variant) == ("CartPole-v1", "ppo", "ppo")
    assert (summary.seed, summary.status, summary.stop_reason) == (42, "finished", "solved")
    assert (summary.solved, summary.threshold, summary.best) == (True, 475.0, BEST)
    assert summary.test == TEST
    assert (summary.env_steps, summary.max_env_steps) == (3000, 3000)
    assert (summary.epoch, summary.episodes, summary.wall_s) == (3, 30, 1.5)
    assert summary.checkpoints == [
        {"env_steps": 2000, "best": True, "last": False, "score": 480.5},
        {"env_steps": 3000, "best": False, "last": True, "score": None},
    ]
    assert summary.config is None
    assert json.loads(json.dumps(summary.to_dict())) == dataclasses.asdict(summary)
    with_config = query.get_run(run, include_config=True)
    assert with_config.config == query.get_config(run)
    with pytest.raises(dataclasses.FrozenInstanceError):
        summary.status = "running"  # type: ignore[misc]


def test_the_root_defaults_to_the_environment(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GSOLVE_RUNS", str(tmp_path))
    assert query.get_run("@last").id == run.id
    assert [summary.id for summary in query.list_runs()] == [run.id]


def test_counts_of_a_live_run_come_from_its_metrics(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    summary = query.get_run(run)
    assert summary.status == "running"
    assert (summary.env_steps, summary.epoch, summary.episodes) == (3000, 3, 30)
    assert summary.wall_s == 1.5
    with run.metrics_path.open("a") as file:
        file.write('{"env_steps": 4000, "ep')
    assert query.get_run(run).env_steps == 3000
    run.update_meta(env_steps=5000)
    assert query.get_run(run).env_steps == 5000


def test_counts_come_from_the_tail_of_a_long_file(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for n in range(2000):
        run.log_metrics({"env_steps": 4000 + n, "text": "é" * 40})
    assert run.metrics_path.stat().st_size > 150_000
    assert query.get_run(run).env_steps == 5999


def test_solved_runs_are_found_whatever_their_status(tmp_path: Path) -> None:
    identity = {"env_id": "CartPole-v1", "algo_id": "ppo"}
    solved, other = (Run.create("", identity, tmp_path) for _ in range(2))
    solved.update_meta(status="interrupted", solved=True, test=TEST, threshold=475.0)
    other.update_meta(status="interrupted", solved=False, threshold=475.0)
    assert [run.id for run in query.list_runs(tmp_path, "solved")] == [solved.id]
    assert len(query.list_runs(tmp_path, "interrupted")) == 2


def test_a_run_without_a_held_out_test_is_not_solved(tmp_path: Path) -> None:
    run = make_run(tmp_path, solved=True, threshold=475.0)
    assert (query.get_run(run).solved, query.get_run(run).test) == (False, None)
    run.update_meta(threshold=None)
    assert query.get_run(run).solved is None


def test_list_and_filter(tmp_path: Path) -> None:
    make_run(tmp_path, "Ant-v5", status="failed")
    make_run(tmp_path, "CartPole-v1", "reinforce", status="finished")
    make_run(tmp_path, "CartPole-v1", status="finished")
    (tmp_path / "not-a-run").mkdir()
    assert len(query.list_runs(tmp_path)) == 3
    assert query.list_runs(tmp_path / "none") == []

    def found(text: str) -> set[tuple[str, str]]:
        return {(run.env_id, run.algo_id) for run in query.list_runs(tmp_path, text)}

    assert found("cartpole") == {("CartPole-v1", "ppo"), ("CartPole-v1", "reinforce")}
    assert found("finished ppo") == {("CartPole-v1", "ppo")}
    assert found("failed") == {("Ant-v5", "ppo")}
    assert found("nothing") == set()


def test_metrics(run: Run, tmp_path: Path) -> None:
    everything = query.get_metrics("@last", root=tmp_path)
    assert list(everything)[:3] == ["epoch", "wall_s", "train/opt/loss/total"]
    total = [(1000, 0.1), (2000, None), (3000, pytest.approx(0.3))]
    assert everything["train/opt/loss/total"] == total
    assert everything["val/roll/ep_rew/mean"] == [(2000, 480.5)]
    some = query.get_metrics(run, ["val/roll/ep_rew/mean", "train/opt/loss/*"])
    assert list(some) == ["val/roll/ep_rew/mean", "train/opt/loss/total", "train/opt/loss/policy"]
    with pytest.raises(RunError, match=r"no metric 'train/opt/loss/totl'.*train/opt/loss/total"):
        query.get_metrics(run, ["train/opt/loss/totl"])
    with pytest.raises(RunError, match=r"no metric 'ep_rew'.*val/roll/ep_rew/mean"):
        query.get_metrics(run, ["ep_rew"])
    with pytest.raises(RunError, match=r"no metric 'zzz'\. gsolve run RUN --metrics"):
        query.get_metrics(run, ["zzz"])


def test_events_config_meta_and_log(run: Run, tmp_path: Path) -> None:
    kinds = [event["kind"] for event in query.get_events("@last", root=tmp_path)]
    assert kinds == ["eval", "checkpoint"]
    (evaluation,) = query.get_events(run, "eval")
    assert evaluation["mean"] == 480.5
    assert query.get_events(run, "alert") == []
    assert query.get_config(run)["hidden_dims"] == [64, 64]
    assert query.get_meta(run)["command"] == ["gsolve", "train"]
    assert query.get_log(run) == ["one", "two", "three"]
    assert query.get_log(run, 2) == ["two", "three"]
    assert query.get_log(run, 0) == []
    assert query.get_log(run, 99) == ["one", "two", "three"]
    run.log_path.unlink()
    assert query.get_log(run) == []


def test_a_config_that_cannot_be_read_is_told(run: Run) -> None:
    run.config_path.write_text("a: [1")
    with pytest.raises(RunError, match=r"config\.yaml cannot be read"):
        query.get_config(run)
    run.config_path.write_text("- 1\n")
    with pytest.raises(RunError, match="contains a list"):
        query.get_config(run)
    run.config_path.unlink()
    with pytest.raises(RunError, match=r"config\.yaml cannot be read"):
        query.get_config(run)


def test_chosen_columns_are_those_of_all_rows(run: Run) -> None:
    run.log_event("eval", stage="test", **{**TEST, "env_steps": 3000})
    name, test = "val/roll/ep_rew/mean", "test/roll/ep_rew/mean"
    assert query.get_columns(run, (name, "env_steps")) == [{"env_steps": 2000, name: 480.5}]
    assert len(query.get_columns(run, (name, "wall_s"))) == 3
    assert query.get_columns(run, (test,)) == [{"env_steps": 3000, test: 478.25}]
