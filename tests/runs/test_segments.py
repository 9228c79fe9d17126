"""Replay segments: written once, listed by checkpoints, whole or told by name, gone when unused."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs.checkpoint import load_checkpoint, prune, save_checkpoint
from gymnasium_solver.runs.segments import (
    SMALL_BYTES,
    append_segment,
    extended,
    load_segments,
    needed,
    prune_segments,
    referenced,
)


def rows(start: int, stop: int, width: int = 3) -> dict[str, np.ndarray]:
    count = np.arange(start, stop)
    return {
        "obs": (count[:, None] * np.ones(width)).astype(np.float32),
        "done": count % 2 == 0,
        "action": count,
    }


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def loaded(directory: Path, segments: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    parts = [arrays for _, arrays in load_segments(directory, segments)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def same(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> bool:
    return one.keys() == two.keys() and all(
        np.array_equal(one[name], two[name]) and one[name].dtype == two[name].dtype for name in one
    )


def test_segments_come_back_in_order_and_exactly(tmp_path: Path) -> None:
    directory = tmp_path / "replay"
    images = np.arange(2 * 4 * 4, dtype=np.uint8).reshape(2, 4, 4)
    first = append_segment(directory, 0, 2, {"frame": images.transpose(0, 2, 1)})  # strided
    second = append_segment(directory, 2, 5, {"frame": np.zeros((3, 4, 4), np.uint8)})
    data = (directory / "0-2.safetensors").read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    place = {"file": "0-2.safetensors", "start": 0, "stop": 2}
    assert first == place | {"size": len(data), "sha256": sha256}
    starts, arrays = zip(*load_segments(directory, [first, second]), strict=True)
    assert starts == (0, 2)
    assert np.array_equal(arrays[0]["frame"], images.transpose(0, 2, 1))
    assert arrays[0]["frame"].flags.writeable
    assert names(directory) == ["0-2.safetensors", "2-5.safetensors"]


def test_the_same_rows_are_the_same_bytes(tmp_path: Path) -> None:
    arrays = rows(0, 9)
    backwards = dict(reversed(arrays.items()))
    one, two = (append_segment(tmp_path / d, 0, 9, a) for d, a in (("a", arrays), ("b", backwards)))
    assert one == two
    ((_, back),) = load_segments(tmp_path / "a", [one])
    assert list(back) == sorted(back)


def test_needed_are_those_with_rows_left() -> None:
    segments = [{"start": 0, "stop": 10}, {"start": 10, "stop": 20}, {"start": 20, "stop": 30}]
    assert needed(segments, 0) == segments
    assert needed(segments, 9) == segments
    assert needed(segments, 10) == segments[1:]
    assert needed(segments, 29) == segments[2:]
    assert needed(segments, 30) == []
    assert needed(segments, -5) == segments


def test_small_segments_are_written_again_with_what_follows(tmp_path: Path) -> None:
    """600 KB a checkpoint: every second one makes a file of its own."""
    n_rows = 100_000
    segments: list[dict[str, Any]] = []
    kept_files = []
    for at in range(0, 5 * n_rows, n_rows):
        count = np.arange(at, at + n_rows, dtype=np.float32)[:, None]
        arrays: dict[str, np.ndarray] = {"obs": count, "action": np.ones(n_rows, np.int16)}
        new = append_segment(tmp_path, at, at + n_rows, arrays, previous=segments)
        segments = extended(segments, new)
        kept_files.append([s["file"].split(".")[0] for s in segments])
    assert kept_files == [
        ["0-100000"],
        ["0-200000"],
        ["0-200000", "200000-300000"],
        ["0-200000", "200000-400000"],
        ["0-200000", "200000-400000", "400000-500000"],
    ]
    assert [s["size"] >= SMALL_BYTES for s in segments] == [True, True, False]
    assert "0-100000.safetensors" in names(tmp_path)  # an older checkpoint may still list it
    assert np.array_equal(loaded(tmp_path, segments)["obs"][:, 0], np.arange(5 * n_rows))
    removed = prune_segments(tmp_path, [s["file"] for s in segments])
    assert removed == ["0-100000.safetensors", "200000-300000.safetensors"]
    assert np.array_equal(loaded(tmp_path, segments)["obs"][:, 0], np.arange(5 * n_rows))


def test_thousands_of_tiny_checkpoints_make_few_files(tmp_path: Path) -> None:
    segments: list[dict[str, Any]] = []
    for at in range(0, 2000, 2):
        new = append_segment(tmp_path, at, at + 2, rows(at, at + 2, width=500), previous=segments)
        segments = extended(segments, new)
        prune_segments(tmp_path, [s["file"] for s in segments])
    total = sum(s["size"] for s in segments)
    assert len(segments) <= total / SMALL_BYTES + 1
    assert len(segments) > 2
    assert same(loaded(tmp_path, segments), rows(0, 2000, width=500))


def test_only_what_follows_directly_is_merged(tmp_path: Path) -> None:
    first = append_segment(tmp_path, 0, 5, rows(0, 5))
    new = append_segment(tmp_path, 8, 9, rows(8, 9), previous=[first])
    assert new["file"] == "8-9.safetensors"
    assert extended([first], new) == [first, new]


def test_merging_does_not_launder_damage(tmp_path: Path) -> None:
    first = append_segment(tmp_path, 0, 5, rows(0, 5))
    flip_a_bit(tmp_path / first["file"])
    with pytest.raises(RunError, match=r"0-5\.safetensors is damaged: its sha256"):
        append_segment(tmp_path, 5, 9, rows(5, 9), previous=[first])
    assert names(tmp_path) == ["0-5.safetensors"]


def test_merged_rows_must_have_one_layout(tmp_path: Path) -> None:
    first = append_segment(tmp_path, 0, 5, rows(0, 5))
    for other in (rows(5, 9, width=4), {"obs": np.zeros(4)}):
        with pytest.raises(ValueError, match="expected the same"):
            append_segment(tmp_path, 5, 9, other, previous=[first])


def flip_a_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-2] ^= 1
    file.write_bytes(data)


def test_damage_is_told_with_the_file_and_the_fix(tmp_path: Path) -> None:
    segments = [append_segment(tmp_path, at, at + 5, rows(at, at + 5)) for at in (0, 5, 10)]
    flip_a_bit(tmp_path / "5-10.safetensors")
    reader = load_segments(tmp_path, segments)
    assert same(next(reader)[1], rows(0, 5))
    with pytest.raises(RunError, match=r"5-10\.safetensors is damaged: its sha256 .*empty replay"):
        next(reader)
    with (tmp_path / "5-10.safetensors").open("r+b") as file:
        file.truncate(20)
    with pytest.raises(RunError, match="its size is 20, the checkpoint says"):
        loaded(tmp_path, segments)
    (tmp_path / "5-10.safetensors").unlink()
    with pytest.raises(RunError, match=r"is missing\. Resume from another checkpoint"):
        loaded(tmp_path, segments)


def test_names_never_lead_out_of_the_folder(tmp_path: Path) -> None:
    segment = append_segment(tmp_path / "a", 0, 5, rows(0, 5))
    with pytest.raises(RunError, match="is not the name of a replay segment"):
        loaded(tmp_path / "b", [segment | {"file": "../a/0-5.safetensors"}])


@pytest.mark.parametrize(
    ("start", "stop", "arrays", "message"),
    [
        (5, 5, {}, "expected 0 <= start < stop"),
        (-1, 5, {}, "expected 0 <= start < stop"),
        (0, 5, {"a": np.zeros(4)}, r"array a has shape \(4,\); expected 5 rows"),
        (0, 5, {"a": np.float32(1)}, r"array a has shape \(\); expected 5 rows"),
        (0, 1, {"a": np.array([object()])}, "array a has dtype object"),
    ],
)
def test_misuse_is_refused_and_writes_nothing(
    tmp_path: Path, start: int, stop: int, arrays: Any, message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        append_segment(tmp_path, start, stop, arrays)
    assert names(tmp_path) == []


def test_a_stray_file_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "0-5.safetensors").write_bytes(b"half a file")
    segment = append_segment(tmp_path, 0, 5, rows(0, 5))
    assert same(loaded(tmp_path, [segment]), rows(0, 5))


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = append_segment(tmp_path, 0, 5, rows(0, 5))

    def full(path: Path, data: bytes) -> None:
        path.write_bytes(data[:30])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gymnasium_solver.runs.files.write_synced", full)
    with pytest.raises(RunError, match=r"rows 5 to 9 .* No space left.*intact"):
        append_segment(tmp_path, 5, 9, rows(5, 9))
    assert names(tmp_path) == ["0-5.safetensors"]
    assert same(loaded(tmp_path, [segment]), rows(0, 5))


def save(run: Path, env_steps: int, segments: list[dict[str, Any]] | None) -> Path:
    state = {} if segments is None else {"replay": {"segments": segments}}
    return save_checkpoint(run / "checkpoints", env_steps, {}, state, {})


def test_what_no_checkpoint_lists_is_pruned(tmp_path: Path) -> None:
    directory = tmp_path / "replay"
    segments = [append_segment(directory, at, at + 5, rows(at, at + 5)) for at in range(0, 25, 5)]
    save(tmp_path, 10, segments[:2])
    save(tmp_path, 15, None)  # a checkpoint without its replay
    save(tmp_path, 20, segments[1:4])
    temp, other = directory / ".20-25.safetensors.tmp-0a1b2c3d", directory / "notes.txt"
    temp.write_bytes(b"half")
    other.write_text("mine")
    assert referenced(tmp_path / "checkpoints") == {
        f"{a}-{a + 5}.safetensors" for a in (0, 5, 10, 15)
    }
    assert prune_segments(directory, referenced(tmp_path / "checkpoints")) == ["20-25.safetensors"]
    assert not temp.exists()
    assert other.exists()
    prune(tmp_path / "checkpoints", keep=0)
    assert prune_segments(directory, referenced(tmp_path / "checkpoints")) == ["0-5.safetensors"]
    state = load_checkpoint(tmp_path / "checkpoints" / "last").state
    left = loaded(directory, state["replay"]["segments"])
    assert same(left, rows(5, 20))


def test_unfinished_and_damaged_checkpoints_hold_nothing_back(tmp_path: Path) -> None:
    directory = tmp_path / "replay"
    segments = [append_segment(directory, at, at + 5, rows(at, at + 5)) for at in (0, 5, 10)]
    for env_steps, segment in zip((5, 10, 15), segments, strict=True):
        save(tmp_path, env_steps, [segment])
    (tmp_path / "checkpoints" / "5" / "done").unlink()
    (tmp_path / "checkpoints" / "10" / "state.json").write_text("{")
    assert referenced(tmp_path / "checkpoints") == {"10-15.safetensors"}


def test_empty_places(tmp_path: Path) -> None:
    assert referenced(tmp_path / "checkpoints") == set()
    assert prune_segments(tmp_path / "replay", []) == []
    assert list(load_segments(tmp_path / "replay", [])) == []
