"""A gradient step as one graph does what separate calls do, and keeps the order of random draws."""

import gc
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from gymnasium_solver.algos.replay_learner import ReplayLearner
from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.make import training_env
from gymnasium_solver.fast.cuda_graph import N_BUFFERS, N_PLAIN_CALLS, Staging, capturing
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.epoch_metrics import Means
from gymnasium_solver.training.prepare import load_config
from tests.acting import collecting

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sac": ("Pendulum-v1:sac", {}),
    "discrete sac": ("CartPole-v1:sac", {}),
    "sac delayed": ("Pendulum-v1:sac", {"policy_delay": 2, "prioritized": True}),
    "td3": ("Pendulum-v1:td3", {}),
    "ddpg": ("Pendulum-v1:ddpg", {}),
    "tdmpc2": (
        "Pendulum-v1:tdmpc2",
        {"hidden_dims": None, "mlp_dim": 16, "latent_dim": 16, "pretrain_updates": 2},
    ),
    "dreamerv3": (
        "CartPole-v1:dreamerv3",
        # Not LaProp: it makes steps of a full length from differences in rounding.
        {"hidden_dims": None, "deter_dim": 16, "units": 8, "sequence_length": 4, "batch_size": 4}
        | {"optimizer": "adam", "adam_eps": 1e-3, "imagination_steps": 3},
    ),
    "dqn": ("CartPole-v1:dqn", {}),
    "rainbow": ("CartPole-v1:dqn", {"noisy": True, "prioritized": True, "n_step": 3}),
}
SMALL: dict[str, Any] = {"n_envs": 2, "buffer_size": 500, "learning_starts": 10, "batch_size": 16,
         "hidden_dims": [16, 16], "device": DEVICE, "seed": 3}  # fmt: skip


class Rerun:
    """Stands in for a CUDA graph on the CPU: a replay runs the function again."""

    def __init__(self, learner: ReplayLearner, function):
        self.learner, self.function = learner, function
        self.outputs = self._run_without_effect()

    def _run_without_effect(self):
        saved, drawn = self.learner.snapshot(), self.learner.rng.bit_generator.state
        outputs = [output.clone() for output in self.function()]
        counts = {name: own.n_steps for name, own in self.learner.optimizers.items()}
        self.learner.restore(saved)
        self.learner.rng.bit_generator.state = drawn
        for name, own in self.learner.optimizers.items():
            own.n_steps = counts[name]  # as in a capture: Python ran, the tensors did not change
        return outputs

    def replay(self):
        counts = {name: own.n_steps for name, own in self.learner.optimizers.items()}
        for place, value in zip(self.outputs, self.function(), strict=True):
            place.copy_(value)
        for name, own in self.learner.optimizers.items():
            own.n_steps = counts[name]


def use_graph(learner, capture=None):
    """Run the learner's program as one graph, on the CPU as a stand-in."""

    def rerun(function):
        graph = Rerun(learner, function)
        return graph, graph.outputs

    learner.program.graph = True
    if capture is not None or DEVICE == "cpu":
        learner.program._capture = capture or rerun
    return learner


def config_of(name: str, **changes) -> Config:
    config_name, own = CASES[name]
    given = {key: value for key, value in (SMALL | own | changes).items() if value is not None}
    return load_config(config_name).replace(**given)


def learner_of(config: Config) -> Any:
    env = training_env(config)
    env.close()
    return build_agent(config, env.observation_space, env.action_space)


def rollouts_of(config: Config, n: int = 24) -> list:
    agent, collector = collecting(config, 10)
    agent.policy.is_random = True
    rollouts = [collector.collect(0, None, 10 if i == 0 else 1) for i in range(n)]
    collector.close()
    return rollouts


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CASES)
def test_one_graph_trains_as_separate_calls_do(name):
    config = config_of(name)
    plain, graphed = learner_of(config), learner_of(config)
    plain.program.graph = False
    use_graph(graphed)
    means = Means(), Means()
    for i, rollout in enumerate(rollouts_of(config)):
        for learner, mean in zip((plain, graphed), means, strict=True):
            mean.add(learner.update(rollout, 100 + 2 * i, 10_000))
    assert graphed.program.failure is None
    assert graphed.program._launches
    assert plain.rng.bit_generator.state == graphed.rng.bit_generator.state
    for a, b in zip(plain.learnt_weights(), graphed.learnt_weights(), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)
    counts = [{n: o.n_steps for n, o in own.optimizers.items()} for own in (plain, graphed)]
    assert counts[0] == counts[1]
    wanted, got = (mean.values() for mean in means)
    assert got == pytest.approx(wanted, rel=1e-3, abs=1e-5)


def test_a_step_that_cannot_be_captured_runs_as_before():
    config = config_of("sac")
    learner = learner_of(config)

    def refuse(function):
        raise RuntimeError("operation not permitted when stream is capturing")

    use_graph(learner, refuse)
    for i, rollout in enumerate(rollouts_of(config, 10)):
        learner.update(rollout, 100 + 2 * i, 10_000)
    assert "capturing" in learner.program.failure
    assert learner.optimizers["critic"].n_steps > N_PLAIN_CALLS


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA GPU")
def test_noise_on_a_gpu_goes_on_where_a_saved_learner_stopped():
    config = config_of("sac")
    rollouts = rollouts_of(config)
    whole, first, second = (learner_of(config) for _ in range(3))
    for i, rollout in enumerate(rollouts):
        whole.update(rollout, 100 + 2 * i, 10_000)
        if i < 12:
            first.update(rollout, 100 + 2 * i, 10_000)
    tensors, extra = first.state()
    second.open_memory(has_masks=False)
    for rollout in rollouts[:12]:
        second.memory.add(rollout)
    second.load_state(tensors, extra)
    assert extra["noise_generator"] == second.noise_generator.get_state().tolist()
    for i, rollout in enumerate(rollouts[12:], 12):
        second.update(rollout, 100 + 2 * i, 10_000)
    assert whole.noise_generator.get_state().equal(second.noise_generator.get_state())
    for a, b in zip(whole.learnt_weights(), second.learnt_weights(), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA GPU")
def test_a_value_that_changes_with_the_clock_is_not_frozen_in_a_graph():
    assert learner_of(config_of("sac")).program.graph
    assert not learner_of(config_of("sac", tau={"start": 0.01, "end": 0.001})).program.graph


def test_no_garbage_is_collected_during_a_capture(monkeypatch):
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: nullcontext())
    freed: list[bool] = []
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        gc.callbacks.append(lambda phase, info: freed.append(True))
        with capturing(None):  # type: ignore[arg-type]
            freed.clear()
            cycles: list[list[int]] = [[] for _ in range(1_000)]
            assert not freed
        assert gc.isenabled()
        more: list[list[int]] = [[] for _ in range(1_000)]
        assert freed
    finally:
        gc.callbacks.pop()
        gc.set_threshold(*before)
    assert len(cycles) == len(more)


def test_staging_keeps_shapes_types_and_the_newest_arrays():
    arrays = [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array([7, 8]),
        np.array([True, False, True]),
    ]
    staging = Staging(arrays, torch.device(DEVICE))
    for i in range(2 * N_BUFFERS + 1):
        given = [arrays[0] + i, arrays[1] * i, ~arrays[2]]
        staging.upload(given)
        for tensor, array in zip(staging.tensors, given, strict=True):
            assert tensor.shape == array.shape
            assert np.array_equal(tensor.cpu().numpy(), array)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA GPU")
@pytest.mark.parametrize("name", ["Pendulum-v1:sac", "CartPole-v1:ppo"])
def test_acting_on_the_gpu_equals_torch(name):
    config = load_config(name).replace(device="cuda", seed=1)
    env = training_env(config)
    agent = build_agent(config, env.observation_space, env.action_space)
    rng, shape = np.random.default_rng(0), env.observation_space.shape or ()
    for n in (1, 5, 1, 5, 1, 5, 1, 5, 1, 5):
        obs = rng.standard_normal((n, *shape)).astype(np.float32)
        assert len(agent.act(obs)) == n
    env.close()
