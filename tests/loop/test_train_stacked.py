"""Seeds trained together: the same weights, metrics and verdicts as alone, bit for bit."""

import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from gymnasium_solver.fast import stacked
from gymnasium_solver.lanes import Lane
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training import loop
from gymnasium_solver.training.loop import train_stacked
from gymnasium_solver.training.observer import Observer
from tests.loop.conftest import learning_rows, make_config, weight_hash
from tests.optimizers import flat_optimizer

SEEDS = (3, 4, 5)
# Episodes of Pendulum are longer than these runs, so that all seeds have batches of the same size.
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ppo", "Pendulum-v1", {"clip_range": "lin_0.2", "ent_coef": 0.01, "target_kl": 0.5}),
    "ppo_statistics": (
        "ppo",
        "Pendulum-v1",
        {"normalize_obs": "rolling", "normalize_reward": True, "normalize_values": True},
    ),
    "a2c": ("a2c", "Pendulum-v1", {"activation": "relu", "hidden_dims": [16, 8]}),
    "reinforce": ("reinforce", "Pendulum-v1", {"policy_targets": "advantages"}),
    "dqn": ("dqn", "CartPole-v1", {"double": True, "tau": 0.1, "dueling": True}),
    "dqn_noisy": ("dqn", "CartPole-v1", {"noisy": True, "distributional": True, "n_atoms": 11}),
}
# The same numbers in another order of additions.
ROUNDING: dict[str, Any] = {"rel": 1e-5, "abs": 1e-6}


@pytest.fixture(autouse=True)
def _stack_from_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "CPU_STACK", range(2, 17))


def trained(lane: Lane) -> Run:
    if lane.error is not None:
        raise lane.error
    run: Run = lane.result
    return run


class Terminator(Observer):
    """SIGTERM at the first checkpoint of any seed."""

    is_done = False

    def on_checkpoint(self, path: Path, kind: str) -> None:
        if not self.is_done:
            self.is_done = True
            signal.raise_signal(signal.SIGTERM)


def together(
    root: Path,
    algo: str,
    env_id: str = "CartPole-v1",
    observers: Sequence[Observer] = (),
    **fields: Any,
) -> list[Run]:
    programs = {
        f"s{seed}": partial(
            loop.train,
            make_config(algo, env_id, seed=seed, **fields),
            runs_root=root,
            name=f"s{seed}",
            observers=observers,
        )
        for seed in SEEDS
    }
    return [trained(lane) for lane in train_stacked(programs)]


@pytest.mark.parametrize("case", CASES)
def test_each_seed_is_trained_as_alone(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    algo, env_id, fields = CASES[case]
    sizes: list[int] = []
    plain = stacked._StackedGradient.__call__

    def spied(self: Any, items: Any) -> Any:
        sizes.append(len(items))
        return plain(self, items)

    monkeypatch.setattr(stacked._StackedGradient, "__call__", spied)
    runs = together(tmp_path / "together", algo, env_id, **fields)
    assert len(SEEDS) in sizes
    for seed, run in zip(SEEDS, runs, strict=True):
        config = make_config(algo, env_id, seed=seed, **fields)
        alone = loop.train(config, runs_root=tmp_path / "alone")
        assert weight_hash(run) == weight_hash(alone)
        assert run.meta()["test"] == alone.meta()["test"]
        for row, other in zip(learning_rows(run), learning_rows(alone), strict=True):
            assert {k: v for k, v in row.items() if v is not None} == pytest.approx(
                {k: v for k, v in other.items() if v is not None},
                rel=ROUNDING["rel"],
                abs=ROUNDING["abs"],
            )


def test_target_kl_stops_each_seed_by_itself(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"target_kl": 0.002, "n_epochs": 4, "policy_lr": 0.01}
    runs = together(tmp_path / "together", "ppo", **fields)
    name = "train/opt/ppo/kl_stop_triggered"
    stops = {tuple(row[name] for row in learning_rows(run)) for run in runs}
    assert len(stops) > 1
    for seed, run in zip(SEEDS, runs, strict=True):
        config = make_config("ppo", "CartPole-v1", seed=seed, **fields)
        assert weight_hash(run) == weight_hash(loop.train(config, runs_root=tmp_path / "alone"))


def test_a_seed_that_reaches_its_goal_leaves_and_the_others_go_on(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "early_stop_on_eval_threshold": 11.0,
        "eval_freq_epochs": 1,
        "max_env_steps": 700,
    }
    runs = together(tmp_path / "together", "ppo", **fields)
    ends = [(run.meta()["stop_reason"], run.meta()["env_steps"]) for run in runs]
    assert len({steps for _, steps in ends}) > 1
    for seed, run in zip(SEEDS, runs, strict=True):
        config = make_config("ppo", "CartPole-v1", seed=seed, **fields)
        alone = loop.train(config, runs_root=tmp_path / "alone")
        assert weight_hash(run) == weight_hash(alone)
        assert (alone.meta()["stop_reason"], alone.meta()["env_steps"]) == ends[SEEDS.index(seed)]


def test_a_seed_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    config = make_config("ppo", "CartPole-v1", seed=1)
    good = partial(loop.train, config, runs_root=tmp_path, name="good")
    bad = partial(loop.resume, "nothing", runs_root=tmp_path)
    lanes = train_stacked({"bad": bad, "good": good})
    assert "nothing" in str(lanes[0].error)
    assert trained(lanes[1]).meta()["status"] == "finished"


def test_a_network_that_a_stack_computes_otherwise_is_computed_alone(tmp_path: Path) -> None:
    """nn.LayerNorm is other operations in a stack, and rounds differently there."""
    fields: dict[str, Any] = {"block": "simba", "hidden_dims": [8], "max_epochs": 2}
    runs = together(tmp_path / "together", "ppo", **fields)
    config = make_config("ppo", "CartPole-v1", seed=SEEDS[0], **fields)
    alone = loop.train(config, runs_root=tmp_path / "alone")
    assert weight_hash(runs[0]) == weight_hash(alone)


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_stopped_by_a_signal_and_resumed_together_or_alone(algo: str, tmp_path: Path) -> None:
    whole = together(tmp_path / "whole", algo)
    broken = together(tmp_path / "broken", algo, observers=[Terminator()], checkpoint_freq_epochs=1)
    assert {run.meta()["stop_detail"] for run in broken} == {"SIGTERM"}
    *rest, last = SEEDS
    programs = {
        f"s{seed}": partial(loop.resume, f"s{seed}", runs_root=tmp_path / "broken") for seed in rest
    }
    resumed = [trained(lane) for lane in train_stacked(programs)]
    resumed.append(loop.resume(f"s{last}", runs_root=tmp_path / "broken"))
    for run, expected in zip(resumed, whole, strict=True):
        assert run.meta()["status"] == "finished"
        assert weight_hash(run) == weight_hash(expected)


def test_a_loss_that_cannot_be_stacked_is_computed_by_each() -> None:
    class Net(torch.nn.Linear):
        def loss(self, batch: Any, coefficients: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
            y = self(batch)
            return (y.square() if float(y.detach().sum()) else y).mean(), []  # depends on data

    items: list[Any] = []
    for _ in range(4):
        net = Net(3, 1)
        optimizer = flat_optimizer(net, "sgd")
        items.append((stacked.LossGradient(net.loss, optimizer.params, record=True),
                      torch.randn(8, 3), []))  # fmt: skip
    results = stacked.Gradients()(items)
    for (gradient, batch, _), result in zip(items, results, strict=True):
        expected = stacked.eager(gradient.loss, gradient.params, batch, [])
        assert torch.allclose(result[0], expected[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_on_a_gpu_each_seed_is_trained_as_alone_up_to_rounding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file

    from gymnasium_solver.fast import stacked_descent

    fields: dict[str, Any] = {"device": "cuda", "max_epochs": 8, "n_epochs": 3, "batch_size": 16}
    n_together: list[int] = []
    plain = stacked_descent._Program.__call__

    def spied(self: Any, items: Any) -> Any:
        n_together.append(len(items))
        return plain(self, items)

    monkeypatch.setattr(stacked_descent._Program, "__call__", spied)
    runs = together(tmp_path / "together", "ppo", **fields)
    assert len(SEEDS) in n_together
    for seed, run in zip(SEEDS, runs, strict=True):
        config = make_config("ppo", "CartPole-v1", seed=seed, **fields)
        alone = loop.train(config, runs_root=tmp_path / "alone")
        ours, theirs = (
            load_file(r.checkpoints_dir / "last/model.safetensors") for r in (run, alone)
        )
        assert ours.keys() == theirs.keys()
        for name, weights in ours.items():
            torch.testing.assert_close(weights, theirs[name], rtol=1e-3, atol=1e-4)
