"""CSV and TensorBoard files: every row once, whatever happens to the follower and the run."""

import csv
import os
import random
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from gymnasium_solver.cli.main import main
from gymnasium_solver.runs.query import get_rows
from gymnasium_solver.runs.run import Run
from gymnasium_solver.share.trackers import follow
from gymnasium_solver.share.trackers.follow import (
    Follower,
    Options,
    TrackError,
    make_sink,
    read_names,
)
from gymnasium_solver.share.trackers.tensorboard import inputs_of
from tests.share import tb_reader
from tests.share.tracked import add_checkpoint, end, follow_with_kills, go_back, grow, new_run

BOTH = pytest.mark.parametrize("name", ["csv", "tensorboard"])


def csv_points(run: Run) -> list[tuple[int, str, float]]:
    with (run.path / "trackers/metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return sorted(
        (int(row["env_steps"]), name, float(value))
        for row in rows
        for name, value in row.items()
        if value != "" and "/" in name
    )


def tb_points(run: Run) -> list[tuple[int, str, float]]:
    [path] = (run.path / "trackers/tensorboard").glob("events.*")
    found = [(s, t, v) for s, t, v in tb_reader.scalars(path) if "/" in t]
    for step, tag, parts in tb_reader.values(path):
        if 5 in parts and not tag.startswith(("weights/", "gradients/")):  # a histogram of a row
            counts = tb_reader.fields(parts[5][0])[7][0]
            for i, count in enumerate(struct.unpack(f"<{len(counts) // 8}d", counts)[1:]):
                found.append((step, f"{tag}/{i:02d}", count))
    return sorted(found)


def expected(run: Run) -> list[tuple[int, str, float]]:
    return sorted(
        (row["env_steps"], name, float(value))
        for row in get_rows(run)
        for name, value in row.items()
        if "/" in name and value is not None
    )


def check(run: Run, name: str) -> None:
    found = csv_points(run) if name == "csv" else tb_points(run)
    wanted = expected(run)
    assert [(s, n) for s, n, _ in found] == [(s, n) for s, n, _ in wanted]
    assert [v for *_, v in found] == pytest.approx([v for *_, v in wanted], rel=1e-6)


@BOTH
def test_all_rows_are_sent_and_only_the_new_ones_later(name: str, tmp_path: Path) -> None:
    run = new_run(tmp_path)
    grow(run, 25, 0)
    Follower(run, name).send()
    check(run, name)
    grow(run, 30, 25)
    Follower(run, name).send()
    check(run, name)
    end(run)
    assert Follower(run, name).follow(period_s=0.01) == Follower(run, name).send()
    check(run, name)


@BOTH
def test_a_rewind_is_followed_by_a_running_and_by_a_new_follower(name: str, tmp_path: Path) -> None:
    run = new_run(tmp_path)
    grow(run, 40, 0)
    follower = Follower(run, name)
    with follower._open():
        follower._pass_on()
        go_back(run, 150)
        grow(run, 30, 15, tag=0.5)
        follower._pass_on()
    check(run, name)
    go_back(run, 100)
    Follower(run, name).send()
    check(run, name)
    grow(run, 5, 10, tag=0.25)
    Follower(run, name).send()
    check(run, name)


class Killed(BaseException):
    """Stands for kill -9: nothing after it runs."""


def fault_points(monkeypatch: pytest.MonkeyPatch, chance: float, rng: random.Random) -> None:
    """Everything that a follower does to files may be the last thing it does."""

    def deadly(target: Any, name: str) -> None:
        real = getattr(target, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if rng.random() < chance / 2:
                raise Killed
            result = real(*args, **kwargs)
            if rng.random() < chance / 2:
                raise Killed
            return result

        monkeypatch.setattr(target, name, call)

    deadly(os, "replace")
    deadly(os, "truncate")
    deadly(os, "fsync")
    deadly(follow, "write_atomic")
    deadly(follow.Stream, "save")
    deadly(follow.Stream, "poll")


@pytest.mark.sample(6)
@BOTH
@pytest.mark.parametrize("seed", range(6))
def test_every_row_once_when_killed_at_any_moment(
    name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    run = new_run(tmp_path)
    monkeypatch.setattr(follow, "BATCH", 7)
    rows = kills = 0
    for _ in range(25):
        n = rng.randrange(12)
        grow(run, n, rows, tag=rng.random())
        rows += n
        if rng.random() < 0.15 and rows > 10:
            rows = rng.randrange(1, rows)
            go_back(run, 10 * rows)
        with monkeypatch.context() as patch:
            fault_points(patch, 0.15, rng)
            try:
                Follower(run, name).send()
            except Killed:
                kills += 1
    assert kills > 3, "the test should kill"
    Follower(run, name).send()
    check(run, name)


@BOTH
@pytest.mark.parametrize(
    "n_kills",
    [pytest.param(3, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.services)],
)
def test_every_row_once_after_kill_9(name: str, n_kills: int, tmp_path: Path) -> None:
    run = new_run(tmp_path)
    follow_with_kills(run, n_kills, "--to", name)
    check(run, name)


def test_event_files_hold_text_images_and_hyperparameters(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    frames = [Image.new("RGB", (64, 48), (i * 40, 0, 0)) for i in range(4)]
    frames[0].save(run.videos_dir / "v.webp", save_all=True, append_images=frames[1:])
    grow(run, 8, 0)
    run.log_event("video", env_steps=80, path="videos/v.webp")
    run.log_event("video", env_steps=80, path="videos/gone.webp")
    end(run)
    Follower(run, "tensorboard").send()
    [path] = (run.path / "trackers/tensorboard").glob("events.*")
    found = {tag: parts for _, tag, parts in tb_reader.values(path)}
    gif = tb_reader.fields(found["video"][4][0])[4][0]
    assert gif.startswith(b"GIF8")
    assert b"policy_lr" in tb_reader.fields(found["config"][8][0])[8][0]
    assert b"alert 6" in tb_reader.fields(found["alerts"][8][0])[8][0]
    start = found["_hparams_/session_start_info"][9][0]
    assert b"hparams" in start
    assert b"policy_lr" in start
    assert "_hparams_/session_end_info" in found


def test_a_checkpoint_gives_histograms_and_a_graph_once(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    grow(run, 2, 0)
    weights = {f"{name}.weight": np.ones((4, 4), np.float32)
               for name in ("torso.0", "torso.2", "actor_head", "critic_head")}  # fmt: skip
    moments: dict[str, np.ndarray] = {
        "policy.mean": np.linspace(-1, 1, 50, dtype=np.float32),
        "policy.n_steps": np.ones(1),
    }
    for steps in (10, 20):
        add_checkpoint(run, steps)
        folder = run.checkpoints_dir / str(steps)
        save_file(weights, folder / "model.safetensors")
        save_file(moments, folder / "optimizer.safetensors")
        Follower(run, "tensorboard").send()  # each time another process
    add_checkpoint(run, 30)  # cannot be read
    end(run)
    Follower(run, "tensorboard").send()
    [path] = (run.path / "trackers/tensorboard").glob("events.*")
    found = [(step, tag) for step, tag, parts in tb_reader.values(path) if 5 in parts]
    assert found.count((20, "weights/torso/0/weight")) == 1
    assert {step for step, tag in found if tag == "gradients/policy"} == {10, 20}
    [graph] = [
        event[4][0] for event in map(tb_reader.fields, tb_reader.records(path)) if 4 in event
    ]
    nodes = [tb_reader.fields(node) for node in tb_reader.fields(graph)[1]]
    inputs = {node[1][0]: node.get(3) for node in nodes}
    assert inputs[b"torso/0"] == [b"observation"]
    assert inputs[b"actor_head"] == inputs[b"critic_head"] == [b"torso/2"]


def test_the_graph_follows_the_names_and_sizes_of_layers() -> None:
    dueling = {"q.advantage.0": [8, 16], "q.advantage.2": [3, 8], "q.torso.0": [16, 4],
               "q.value.0": [8, 16]}  # fmt: skip
    assert inputs_of(dueling) == {
        "q.torso.0": [], "q.advantage.0": ["q.torso.0"], "q.advantage.2": ["q.advantage.0"],
        "q.value.0": ["q.torso.0"],
    }  # fmt: skip
    conv, end = "actor_features.convolutions.0.0", "actor_features.convolutions.0.2"
    shared = {conv: [8, 4, 3, 3], end: [8, 8, 3, 3], "actor_torso.0": [32, 72],
              "actor_head": [2, 32], "critic_head": [1, 32]}  # fmt: skip
    assert inputs_of(shared) == {
        conv: [], end: [conv], "actor_torso.0": [end], "actor_head": ["actor_torso.0"],
        "critic_head": ["actor_torso.0"],
    }  # fmt: skip


def test_the_checksum_is_that_of_tfrecords() -> None:
    from gymnasium_solver.share.trackers.tensorboard import masked_crc

    # CRC-32C of "123456789" is 0xE3069283 (RFC 3720), then masked.
    crc = 0xE3069283
    assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_a_csv_of_ones_own(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    grow(run, 12, 0)
    out = tmp_path / "sub/mine.csv"
    assert Follower(run, "csv", Options(out=out)).send() == str(out)
    assert len(out.read_text().splitlines()) == 1 + 12 + 1  # head, rows, one alert


def test_two_followers_of_one_run_do_not_mix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(tmp_path)
    grow(run, 3, 0)
    monkeypatch.setattr(follow.time, "sleep", lambda seconds: None)
    first = Follower(run, "csv")
    with first._open(), pytest.raises(TrackError, match=f"process {os.getpid()}"):
        Follower(run, "csv").send()


def test_unknown_trackers_are_named_with_what_was_meant() -> None:
    with pytest.raises(TrackError, match="tensorboard"):
        make_sink("tensorbord")


def test_a_missing_package_is_said_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    words = ["train", "CartPole-v1:ppo", "--runs-dir", str(tmp_path), "--max-env-steps", "64"]
    assert main([*words, "--wandb"]) == 2
    assert "pip install 'gymnasium-solver[wandb]'" in capsys.readouterr().err
    assert not any(path.name[0] not in "." for path in tmp_path.iterdir())


def test_none_is_no_tracker() -> None:
    assert read_names("none") == []
    assert read_names("csv, none") == ["csv"]


def test_training_and_resuming_with_trackers(tmp_path: Path) -> None:
    """`--track csv,tensorboard`: the followers end after the run, and continue after a resume from
    an older checkpoint."""
    words = "CartPole-v1:ppo --max-env-steps 300 --n-envs 2 --n-steps 16 --test-episodes 2"
    words += " --eval-episodes 2 --hidden-dims 8 --eval-freq-epochs 2 --run-name r"
    _train(tmp_path, *words.split())
    run = Run(tmp_path / "r")
    for name in ("csv", "tensorboard"):
        _wait_for_close(run, name, "finished 300")
        check(run, name)
    [first, *_] = sorted(int(p.name) for p in run.checkpoints_dir.iterdir() if p.name.isdecimal())
    _train(tmp_path, "--resume", f"r/{first}", "--max-env-steps", "400")
    for name in ("csv", "tensorboard"):
        _wait_for_close(run, name, "finished 400")
        check(run, name)


def _train(root: Path, *words: str) -> None:
    argv = [sys.executable, "-m", "gymnasium_solver", "train", *words, "-q"]
    argv += ["--track", "csv,tensorboard", "--runs-dir", str(root)]
    subprocess.run(argv, check=True, timeout=120, stdout=subprocess.DEVNULL)


def _wait_for_close(run: Run, name: str, at: str) -> None:
    deadline = time.monotonic() + 60
    state = run.path / f"trackers/{name}.json"
    while not (state.exists() and f'"closed_at": "{at}"' in state.read_text()):
        assert time.monotonic() < deadline, (run.path / f"trackers/{name}.log").read_text()
        time.sleep(0.05)
