"""Statistics of rollouts, and when they are computed."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymnasium_solver.algos.units import error_spread, value_spread
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.spaces.actions import action_histogram, action_kind
from gymnasium_solver.training import epoch_metrics
from gymnasium_solver.training.epoch_metrics import RolloutDetails, detail_epochs, is_detailed
from gymnasium_solver.training.prepare import build_config

BOX = spaces.Box(np.array([-1.0, -np.inf], np.float32), np.array([1.0, np.inf], np.float32))
DISCRETE = spaces.Discrete(3)


def rollout_of(space: spaces.Space, n_rows: int = 4, n_envs: int = 2) -> Rollout:
    made = Rollout.allocate(n_rows, n_envs, space, action_kind(DISCRETE))
    made.valid[:] = True
    return made


def test_the_statistics_are_those_of_the_valid_rows() -> None:
    rollout = rollout_of(BOX)
    rollout.reward[:] = [[1, 2], [3, 4], [5, 6], [7, 1000]]
    rollout.actions[:] = [[0, 1], [1, 1], [2, 0], [1, 2]]
    rollout.valid[3, 1] = False
    found = RolloutDetails(BOX, action_kind(DISCRETE))
    found.add(rollout)
    metrics = found.metrics()
    assert metrics["roll/reward/mean"] == 4.0
    assert metrics["roll/reward/std"] == 2.0
    assert (metrics["roll/reward/min"], metrics["roll/reward/max"]) == (1.0, 7.0)
    assert metrics["roll/actions/hist/00"] == pytest.approx(2 / 7)
    assert metrics["roll/actions/hist/01"] == pytest.approx(4 / 7)
    assert metrics["roll/actions/hist/02"] == pytest.approx(1 / 7)


def test_several_rollouts_make_one_epoch() -> None:
    found = RolloutDetails(BOX, action_kind(DISCRETE), n_rollouts=2)
    for reward in (1.0, 3.0):
        rollout = rollout_of(BOX, 1)
        rollout.reward[:] = reward
        found.add(rollout)
    assert found.metrics()["roll/reward/mean"] == 2.0


def test_only_finite_bounds_can_be_violated() -> None:
    rollout = rollout_of(BOX)
    assert isinstance(rollout.obs, np.ndarray)
    rollout.obs[..., 1] = 1e9
    rollout.obs[0, 0, 0] = 1.00001  # rounding
    rollout.obs[0, 1, 0] = -1.5
    found = RolloutDetails(BOX, action_kind(DISCRETE))
    found.add(rollout)
    assert found.metrics()["roll/obs/outside"] == pytest.approx(1 / 8)


def test_the_parts_of_a_dict_are_measured_one_by_one() -> None:
    space = spaces.Dict({"image": spaces.Box(0, 255, (4, 4), np.uint8), "speed": BOX})
    rollout = rollout_of(space)
    assert isinstance(rollout.obs, dict)
    rollout.obs["image"][:] = 200
    found = RolloutDetails(space, action_kind(DISCRETE))
    found.add(rollout)
    metrics = found.metrics()
    assert metrics["roll/obs/image/mean"] == 200.0
    assert metrics["roll/obs/speed/std"] == 0.0
    assert metrics["roll/obs/outside"] == 0.0


def test_large_observations_are_measured_on_some_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_metrics, "MOST_NUMBERS", 8)
    monkeypatch.setattr(epoch_metrics, "LEAST_ROWS", 2)
    found = RolloutDetails(BOX, action_kind(DISCRETE))
    assert found.rows_each == 4
    found.add(rollout_of(BOX, 16))
    assert len(found._obs[""][0]) == 4


@pytest.mark.parametrize(
    ("space", "actions", "expected"),
    [
        (spaces.Discrete(2), [0, 1, 1, 1], [0.25, 0.75]),
        (spaces.MultiBinary(2), [[1, 0], [1, 1]], [1.0, 0.5]),
        (spaces.Box(-2, 2, (1,)), [[-9], [9]], [0.5, 0, 0, 0, 0, 0, 0, 0, 0, 0.5]),
        (spaces.Discrete(100), [0, 1], []),
        (spaces.MultiDiscrete([2, 3]), [[0, 1]], []),
    ],
)  # fmt: skip
def test_histograms_of_actions(space: spaces.Space, actions: list, expected: list[float]) -> None:
    kind = action_kind(space)
    found = action_histogram(kind, np.array(actions, kind.dtype))
    assert list(found.values()) == pytest.approx(expected)
    assert list(found) == [f"{i:02d}" for i in range(len(expected))]


def test_how_often_details_are_logged() -> None:
    def config(**fields):
        return build_config({"env_id": "CartPole-v1", "algo_id": "ppo", **fields})

    assert detail_epochs(config(n_envs=8, n_steps=32)) == 16
    for n_steps, epochs in ((128, 8), (256, 8), (1024, 2), (2048, 1), (4096, 1)):
        assert detail_epochs(config(n_envs=8, n_steps=n_steps)) == epochs
    assert detail_epochs(config(log_details_freq_epochs=3)) == 3
    assert detail_epochs(config(log_details_freq_epochs=0)) is None
    assert detail_epochs(config(log_details_freq_epochs=None)) is None
    assert [epoch for epoch in range(1, 10) if is_detailed(epoch, 4)] == [1, 4, 8]
    assert not any(is_detailed(epoch, None) for epoch in range(1, 10))


def test_td_errors_are_binned_by_their_deviation() -> None:
    found = error_spread(torch.tensor([6.0, 8.0, 6.0, 8.0]))
    assert (found["opt/td_error/mean"], found["opt/td_error/std"]) == (7.0, 1.0)
    shares = {i: found[f"opt/td_error/hist/{i:02}"] for i in range(12)}
    assert {i: share for i, share in shares.items() if share} == {4: 0.5, 8: 0.5}
    same = error_spread(torch.full((4,), 2.0))  # no deviation
    assert same["opt/td_error/hist/06"] == 1.0


def test_values_have_percentiles() -> None:
    found = value_spread(torch.arange(101.0))
    assert found["opt/q/percentile/05"] == pytest.approx(5)
    assert found["opt/q/percentile/50"] == pytest.approx(50)
