"""Trackers with the real packages: TensorBoard reads our files, W&B writes its own offline."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gymnasium_solver.runs.query import get_rows
from gymnasium_solver.runs.run import Run
from gymnasium_solver.share.trackers.follow import Follower
from tests.share.tracked import end, follow_with_kills, grow, new_run

pytestmark = pytest.mark.services
REWARD = "train/roll/ep_rew/mean"


def test_tensorboard_reads_scalars_histograms_images_text_and_hparams(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata

    run = new_run(tmp_path)
    frames = [Image.new("RGB", (64, 48), (i * 40, 0, 0)) for i in range(4)]
    frames[0].save(run.videos_dir / "v.webp", save_all=True, append_images=frames[1:])
    grow(run, 30, 0)
    run.log_event("video", env_steps=80, path="videos/v.webp")
    end(run)
    Follower(run, "tensorboard").send()
    read = EventAccumulator(str(run.path / "trackers/tensorboard"), size_guidance={"tensors": 0})
    read.Reload()
    tags = read.Tags()
    rows = [row for row in get_rows(run) if REWARD in row]
    tensors = list(read.Tensors(REWARD)) if REWARD in tags["tensors"] else []
    points = [(e.step, e.value) for e in read.Scalars(REWARD)] if not tensors else [
        (e.step, float(e.tensor_proto.float_val[0])) for e in tensors
    ]  # fmt: skip
    assert points == [(row["env_steps"], row[REWARD]) for row in rows]
    known = [*tags["tensors"], *tags["histograms"], *tags["images"]]
    assert {"video", "train/roll/actions/hist", "config", "alerts"} <= set(known)
    content = read.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    start = metadata.parse_session_start_info_plugin_data(content)
    assert start.hparams["policy_lr"].number_value == 0.001
    assert start.hparams["env_id"].string_value == "CartPole-v1"


def history(run: Run) -> list[tuple[int, float]]:
    """(env_steps, reward) in the offline folder that W&B would sync."""
    proto: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    [folder] = (run.path / "trackers/wandb").glob("offline-run-*")
    [path] = folder.glob("*.wandb")
    found = []
    for data in _records(path.read_bytes()):
        record = proto.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {
                i.key or i.nested_key[0]: json.loads(i.value_json) for i in record.history.item
            }
            if REWARD in items:
                found.append((items["env_steps"], items[REWARD]))
    return found


def _records(data: bytes) -> list[bytes]:
    """The records of a .wandb file: a LevelDB log with a header of 7 bytes."""
    at, whole, part = 7, [], b""
    while at < len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        chunk = data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind == 0:
            break
        part += chunk
        if kind in (1, 4):
            whole.append(part)
            part = b""
    return whole


def test_wandb_offline_has_every_row_once_after_kills_and_rewinds(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="W&B is not installed")
    run = new_run(tmp_path)
    follow_with_kills(run, 20, "--to", "wandb", "--mode", "offline")
    assert history(run) == [(r["env_steps"], r[REWARD]) for r in get_rows(run) if REWARD in r]
