"""What a checkpoint holds, that it comes back exactly, and that damage is told by name."""

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gymnasium_solver.errors import RunError
from gymnasium_solver.runs import checkpoint
from gymnasium_solver.runs.checkpoint import (
    BEST,
    LAST,
    find_checkpoint,
    list_checkpoints,
    load_checkpoint,
    point_to,
    pointer_env_steps,
    prune,
    rewind,
    save_checkpoint,
)


def save(directory: Path, env_steps: int, score: float | None = None, **kwargs: Any) -> Path:
    tensors = {"model": {"w": np.arange(4.0)}, "optimizer": {"m": np.zeros(4)}}
    state = {"env_steps": env_steps}
    return save_checkpoint(directory, env_steps, tensors, state, {"score": score}, **kwargs)


def steps(directory: Path) -> list[int]:
    return [info.env_steps for info in list_checkpoints(directory)]


def test_everything_comes_back_exactly(tmp_path: Path) -> None:
    weight = torch.arange(6.0, requires_grad=True).reshape(2, 3)
    arrays = {
        "transposed": weight.T,  # not contiguous: safetensors alone would write its memory order
        "strided": np.arange(10, dtype=np.int64)[::3],
        "scalar": np.float32(0.1),
        "flags": np.array([True, False]),
        "empty": np.zeros((0, 4), np.uint8),
        "big_endian": np.arange(3, dtype=">f8"),
    }
    rng = np.random.default_rng(7)
    state = {
        "rng": rng.bit_generator.state,
        "best": -math.inf,
        "nan": math.nan,
        "count": np.int64(3),
        "third": 1 / 3,
        "pair": (1, "a"),
        "nothing": None,
    }
    path = save_checkpoint(tmp_path, 10, {"model": arrays, "none": {}}, state, {"loss": math.nan})
    loaded = load_checkpoint(path)
    assert loaded.env_steps == 10
    assert loaded.tensors["none"] == {}
    for name, array in arrays.items():
        expected = array.detach().numpy() if isinstance(array, torch.Tensor) else np.asarray(array)
        actual = loaded.tensors["model"][name]
        np.testing.assert_array_equal(actual, expected)
        assert actual.shape == expected.shape
        assert actual.flags.writeable
    again = np.random.default_rng(0)
    again.bit_generator.state = loaded.state["rng"]
    assert again.random() == rng.random()
    assert loaded.state["best"] == -math.inf
    assert math.isnan(loaded.state["nan"])
    assert (loaded.state["count"], loaded.state["third"]) == (3, 1 / 3)
    assert (loaded.state["pair"], loaded.state["nothing"]) == ([1, "a"], None)
    assert loaded.metrics == {"loss": None}


def test_holds_only_safetensors_json_and_done(tmp_path: Path) -> None:
    path = save(tmp_path, 10)
    tensors = ["model.safetensors", "optimizer.safetensors"]
    names = ["done", "manifest.json", "metrics.json", *tensors, "state.json"]
    assert sorted(file.name for file in path.iterdir()) == names
    for file in path.glob("*.json"):
        json.loads(file.read_text(), parse_constant=pytest.fail)  # NaN and Infinity are not JSON


def test_objects_that_would_need_pickle_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"model/w has dtype object"):
        save_checkpoint(tmp_path, 1, {"model": {"w": np.array([object()])}}, {}, {})
    with pytest.raises(TypeError, match=r"value\.agent is a object"):
        save_checkpoint(tmp_path, 1, {}, {"agent": object()}, {})
    with pytest.raises(TypeError, match="key 3"):
        save_checkpoint(tmp_path, 1, {}, {"by_epoch": {3: 1.0}}, {})
    with pytest.raises(ValueError, match="stem"):
        save_checkpoint(tmp_path, 1, {"../model": {}}, {}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["model.safetensors", "state.json", "manifest.json"])
def test_a_corrupt_byte_is_told_with_the_file(tmp_path: Path, name: str) -> None:
    file = save(tmp_path, 10) / name
    data = bytearray(file.read_bytes())
    data[-2] ^= 1
    file.write_bytes(data)
    with pytest.raises(RunError, match=rf"{name} .*(damaged|cannot be read)"):
        load_checkpoint(tmp_path / LAST)
    assert steps(tmp_path) == [10]


def test_missing_and_cut_files(tmp_path: Path) -> None:
    path = save(tmp_path, 10)
    with (path / "model.safetensors").open("r+b") as file:
        file.truncate(20)
    with pytest.raises(RunError, match=r"model\.safetensors is damaged: its size is 20"):
        load_checkpoint(path)
    (path / "model.safetensors").unlink()
    with pytest.raises(RunError, match=r"model\.safetensors is missing"):
        load_checkpoint(path)
    (path / "done").unlink()
    with pytest.raises(RunError, match="unfinished"):
        load_checkpoint(path)
    assert steps(tmp_path) == []
    assert pointer_env_steps(tmp_path, LAST) is None
    with pytest.raises(RunError, match="no checkpoint at"):
        load_checkpoint(tmp_path / "20")


def test_a_format_of_another_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymnasium_solver.runs.checkpoint.FORMAT", 99)
    path = save(tmp_path, 10)
    monkeypatch.undo()
    with pytest.raises(RunError, match="format 99, expected 1"):
        load_checkpoint(path)


def test_reading_last_while_it_moves_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, 100, {"model": {"w": np.array(1)}}, {"n": 1}, {})
    verify = checkpoint.verified_manifest

    def verify_then_save(path: Path) -> dict[str, Any]:
        manifest = verify(path)
        save_checkpoint(tmp_path, 200, {"model": {"w": np.array(2)}}, {"n": 2}, {})
        return manifest

    monkeypatch.setattr(checkpoint, "verified_manifest", verify_then_save)
    loaded = load_checkpoint(tmp_path / LAST)
    assert (loaded.env_steps, loaded.tensors["model"]["w"], loaded.state) == (100, 1, {"n": 1})


def test_pointers_and_scores(tmp_path: Path) -> None:
    save(tmp_path, 100, score=1.0, best=True)
    save(tmp_path, 200, score=math.nan)
    save_checkpoint(tmp_path, 300, {}, {}, {"val/roll/ep_rew/mean": 5}, last=False)
    seen = [(c.env_steps, c.is_best, c.is_last, c.score) for c in list_checkpoints(tmp_path)]
    assert seen == [(100, True, False, 1.0), (200, False, True, None), (300, False, False, 5.0)]
    point_to(tmp_path, BEST, 300)
    assert pointer_env_steps(tmp_path, BEST) == 300
    assert os.readlink(tmp_path / BEST) == "300"
    with pytest.raises(RunError, match="no checkpoint at 400"):
        point_to(tmp_path, BEST, 400)
    with pytest.raises(ValueError, match="pointer"):
        point_to(tmp_path, "../best", 300)


def test_saving_the_same_env_steps_again_replaces(tmp_path: Path) -> None:
    save(tmp_path, 100, score=1.0, best=True)
    path = save_checkpoint(tmp_path, 100, {"model": {"w": np.ones(2)}}, {"n": 2}, {"score": 9})
    loaded = load_checkpoint(path)
    assert list(loaded.tensors) == ["model"]
    assert (loaded.state, loaded.metrics) == ({"n": 2}, {"score": 9})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["100", "best", "last"]


def test_a_failed_save_keeps_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 100)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gymnasium_solver.runs.checkpoint.write_synced", full)
    with pytest.raises(RunError, match=r"at 200 env steps .* No space left.*intact"):
        save(tmp_path, 200)
    assert load_checkpoint(tmp_path / LAST).env_steps == 100
    assert sorted(p.name for p in tmp_path.iterdir()) == ["100", "last"]


def test_prune_keeps_best_and_last(tmp_path: Path) -> None:
    for env_steps in range(100, 800, 100):
        save(tmp_path, env_steps, best=env_steps == 200)
    assert prune(tmp_path, keep=2) == [100, 300, 400]
    assert steps(tmp_path) == [200, 500, 600, 700]
    assert prune(tmp_path, keep=0) == [500, 600]
    assert prune(tmp_path, keep=0) == []
    assert steps(tmp_path) == [200, 700]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["200", "700", "best", "last"]


def test_rewind_drops_what_lies_beyond(tmp_path: Path) -> None:
    for env_steps, score in ((100, 1.0), (200, 3.0), (300, 2.0), (400, 9.0)):
        save(tmp_path, env_steps, score=score, best=env_steps == 400)
    assert rewind(tmp_path, 300) == [400]
    assert steps(tmp_path) == [100, 200, 300]
    assert pointer_env_steps(tmp_path, LAST) == 300
    assert pointer_env_steps(tmp_path, BEST) == 200
    with pytest.raises(RunError, match="no checkpoint at 250"):
        rewind(tmp_path, 250)
    assert steps(tmp_path) == [100, 200, 300]


def test_without_symlinks_pointers_are_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("symbolic links are not supported")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    save(tmp_path, 100, best=True)
    save(tmp_path, 200)
    assert not (tmp_path / LAST).is_symlink()
    assert pointer_env_steps(tmp_path, LAST) == 200
    assert pointer_env_steps(tmp_path, BEST) == 100


def test_a_copy_that_followed_links_still_works(tmp_path: Path) -> None:
    save(tmp_path / "a", 100, best=True)
    save(tmp_path / "a", 200)
    copy = tmp_path / "b"
    shutil.copytree(tmp_path / "a", copy, symlinks=False)
    assert (pointer_env_steps(copy, BEST), pointer_env_steps(copy, LAST)) == (100, 200)
    save(copy, 300)
    assert pointer_env_steps(copy, LAST) == 300
    assert (copy / LAST).is_symlink()


def test_pointers_never_lead_out_of_the_folder(tmp_path: Path) -> None:
    save(tmp_path / "other", 100)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / LAST).symlink_to("../other/100")
    assert pointer_env_steps(tmp_path / "checkpoints", LAST) is None
    assert find_checkpoint(tmp_path / "checkpoints", 100) is None
