"""Observations: nested spaces made flat, native observations read, batches recognised."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import (
    allocate_obs,
    as_batch,
    flatten_space,
    map_obs,
    native_part,
    obs_arrays,
    obs_len,
    part_spaces,
    put_rows,
    take_rows,
)

BOX = spaces.Box(-1, 1, (2,), np.float32)
SCALAR = spaces.Box(0, 10, (), np.float32)
NESTED = spaces.Dict(
    [
        ("robot", spaces.Dict([("pose", BOX), ("grip", spaces.Tuple([spaces.Discrete(3), BOX]))])),
        ("mission", spaces.Text(10)),
        ("bits", spaces.MultiBinary(3)),
    ]
)
FLAT = spaces.Dict([("pose", BOX), ("level", SCALAR), ("room", spaces.Discrete(5))])


def test_nested_parts_are_named_by_their_path_in_the_order_of_the_space() -> None:
    flat = flatten_space(NESTED)
    assert isinstance(flat.space, spaces.Dict)
    assert list(flat.space.spaces) == ["robot.pose", "robot.grip.0", "robot.grip.1", "bits"]
    assert flat.dropped == ("mission",)
    assert flat.space["robot.grip.0"] == spaces.Discrete(3)
    NESTED.seed(0)
    native = NESTED.sample()
    obs = flat(native)
    assert isinstance(obs, dict)
    assert list(obs) == list(flat.space.spaces)
    np.testing.assert_array_equal(obs["robot.grip.1"], native["robot"]["grip"][1])
    assert obs["robot.grip.1"] is native["robot"]["grip"][1], "parts are not copied"


def test_an_order_that_is_not_alphabetical_stays() -> None:
    flat = flatten_space(spaces.Dict([("z", BOX), ("a", BOX), ("m", SCALAR)]))
    assert isinstance(flat.space, spaces.Dict)
    assert list(flat.space.spaces) == ["z", "a", "m"]


def test_a_tuple_is_named_by_numbers() -> None:
    flat = flatten_space(spaces.Tuple([BOX, spaces.Discrete(2)]))
    assert isinstance(flat.space, spaces.Dict)
    assert list(flat.space.spaces) == ["0", "1"]
    obs = flat((np.zeros(2, np.float32), 1))
    assert isinstance(obs, dict)
    assert obs["1"] == 1


@pytest.mark.parametrize(
    "space",
    [BOX, SCALAR, spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(4)],
    ids=str,
)
def test_an_array_space_is_delivered_as_it_is(space: Any) -> None:
    flat = flatten_space(space)
    assert flat.space is space
    assert flat.dropped == ()
    value = space.sample()
    np.testing.assert_array_equal(flat(value), value)


@pytest.mark.parametrize(
    "space", [spaces.Text(4), spaces.Dict({"a": spaces.Text(4)}), spaces.Sequence(BOX)], ids=str
)
def test_a_space_without_a_part_to_deliver_is_refused(space: Any) -> None:
    with pytest.raises(EnvError, match=f"type {type(space).__name__} are not supported.*Supported"):
        flatten_space(space)


def test_parts_are_found_by_their_flat_names() -> None:
    native = {"a": {"b.c": 1, "d": (2, {"e": 3})}, "a.x": 4, "f": [5, 6]}
    assert native_part(native, "a.b.c") == 1, "a key may have a dot in it"
    assert native_part(native, "a.d.0") == 2
    assert native_part(native, "a.d.1.e") == 3
    assert native_part(native, "a.x") == 4
    assert native_part(native, "f.1") == 6
    for missing in ("b", "a.z", "a.d.1.z", "f.0.x"):
        with pytest.raises(KeyError):
            native_part(native, missing)


# -- batches ------------------------------------------------------------------------------------


def test_one_observation_becomes_a_batch_of_one() -> None:
    batch, is_single = as_batch(BOX, np.array([0.1, 0.2]))
    assert is_single
    assert isinstance(batch, np.ndarray)
    assert batch.shape == (1, 2)
    assert batch.dtype == np.float32, "what NumPy makes of Python's floats"
    batch, is_single = as_batch(BOX, np.zeros((5, 2), np.float32))
    assert not is_single
    assert len(batch) == 5
    batch, is_single = as_batch(spaces.Discrete(3), 2)
    assert is_single
    assert isinstance(batch, np.ndarray)
    assert batch.tolist() == [2]


@pytest.mark.parametrize("n", [None, 4])
def test_dicts_flat_or_nested(n: int | None) -> None:
    flat = flatten_space(NESTED).space
    lead = () if n is None else (n,)
    zeros = np.zeros((*lead, 2), np.float32)
    nested = {
        "robot": {"pose": zeros, "grip": (np.zeros(lead, int), zeros)},
        "bits": np.zeros((*lead, 3), np.int8),
        "mission": "go",
    }
    flattened = {
        "bits": nested["bits"],
        "robot.pose": zeros,
        "robot.grip.0": np.zeros(lead, int),
        "robot.grip.1": zeros,
    }
    for native in (nested, flattened):
        batch, is_single = as_batch(flat, native)
        assert is_single == (n is None)
        assert isinstance(batch, dict)
        assert list(batch) == ["robot.pose", "robot.grip.0", "robot.grip.1", "bits"]
        assert obs_len(batch) == (n or 1)
        assert batch["robot.grip.0"].shape == (n or 1,)


def test_a_missing_part_is_named() -> None:
    with pytest.raises(
        EnvError, match=r"no part 'level'; this policy takes pose \(2,\), level \(\)"
    ):
        as_batch(FLAT, {"pose": np.zeros(2), "room": 1})
    with pytest.raises(EnvError, match="no part 'pose'"):
        as_batch(FLAT, np.zeros(2))


def test_a_part_of_another_shape_is_named() -> None:
    with pytest.raises(
        EnvError, match=r"shape \(3,\) in its part 'pose'; this policy takes \(2,\)"
    ):
        as_batch(FLAT, {"pose": np.zeros(3), "level": 1.0, "room": 1})


def test_parts_that_are_batched_and_single_do_not_mix() -> None:
    with pytest.raises(EnvError, match="some parts of the observation are single"):
        as_batch(FLAT, {"pose": np.zeros((4, 2)), "level": 1.0, "room": 1})


def test_batches_of_different_lengths_do_not_mix() -> None:
    with pytest.raises(EnvError, match=r"different numbers of rows: pose 4, level 3, room 4"):
        as_batch(FLAT, {"pose": np.zeros((4, 2)), "level": np.zeros(3), "room": np.zeros(4, int)})


# -- helpers ------------------------------------------------------------------------------------


def test_storage_of_a_space() -> None:
    plain = allocate_obs(BOX, (3, 4))
    assert isinstance(plain, np.ndarray)
    assert (plain.shape, plain.dtype) == ((3, 4, 2), np.float32)
    parts = allocate_obs(FLAT, (3, 4))
    assert isinstance(parts, dict)
    assert {name: (a.shape, a.dtype.str) for name, a in parts.items()} == {
        "pose": ((3, 4, 2), "<f4"),
        "level": ((3, 4), "<f4"),
        "room": ((3, 4), "<i8"),
    }
    assert list(part_spaces(FLAT)) == ["pose", "level", "room"]
    assert part_spaces(BOX) == {"": BOX}


@pytest.mark.parametrize("space", [BOX, FLAT], ids=["array", "dict"])
def test_rows_are_taken_and_put(space: Any) -> None:
    obs = allocate_obs(space, (6,))
    row = take_rows(map_obs(lambda part: part + 1, obs), [2, 2])
    put_rows(obs, [1, 4], row)
    assert obs_len(obs) == 6
    for _, part in obs_arrays(obs):
        assert part.reshape(6, -1).any(axis=1).tolist() == [False, True, False, False, True, False]
    names = [name for name, _ in obs_arrays(obs)]
    assert names == (["pose", "level", "room"] if space is FLAT else [""])
