"""Several heads on one trunk, embeddings, outputs by task: shapes, maths, resume, mistakes."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from gymnasium_solver.algos import algo_class
from gymnasium_solver.cli.main import main
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.branches import Branches, KeepTask, TaskOutputs
from gymnasium_solver.training.prepare import build_config

PARTS = spaces.Dict(
    {
        "goal": spaces.Box(-1, 1, (3,), np.float32),
        "kind": spaces.Discrete(5, start=2),
        "place": spaces.MultiDiscrete([4, 3], start=[1, 0]),
        "speed": spaces.Box(-1, 1, (2,), np.float32),
    }
)
ACTIONS = spaces.Dict(
    {
        "gear": spaces.Discrete(3),
        "steer": spaces.Box(-1, 1, (2,), np.float32),
        "switches": spaces.MultiDiscrete([2, 4]),
    }
)


def agent_of(algo_id: str = "ppo", obs: Any = PARTS, actions: Any = ACTIONS, **fields: Any) -> Any:
    algo = algo_class(algo_id)
    given = {"env_id": "x", "algo_id": algo_id, "n_envs": 2, "n_steps": 8, "hidden_dims": [16]}
    return algo(algo.Config(**given | fields), obs, actions, seed=0)


def batch_of(space: spaces.Dict, n: int = 6) -> dict[str, torch.Tensor]:
    space.seed(0)
    rows = [space.sample() for _ in range(n)]
    return {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in space.spaces}


# -- inputs -----------------------------------------------------------------------------------


def test_parts_have_layers_of_their_own() -> None:
    agent = agent_of(input_dims={"goal": [8, 4], "kind": 6})
    features, obs = agent.net.actor_features, batch_of(PARTS)
    assert features.width == 4 + 6 + 7 + 2  # goal, kind, place as one-hot, speed
    x = agent.net.encoder(obs)
    out = features(x)
    goal, kind = features.own_layers
    torch.testing.assert_close(out[:, :2], obs["speed"])  # the others first, as they are
    torch.testing.assert_close(out[:, 9:13], goal(obs["goal"]))
    one_hot = torch.nn.functional.one_hot(obs["kind"].long() - 2, 5).float()
    torch.testing.assert_close(out[:, 13:], kind(one_hot))
    everywhere = agent_of(input_dims=[8]).net.actor_features
    assert (len(everywhere.own_layers), everywhere.width) == (4, 32)


@pytest.mark.parametrize("algo_id", ["dqn", "sac", "pqn"])
def test_every_algorithm_has_them(algo_id: str) -> None:
    actions = spaces.Box(-1, 1, (2,), np.float32) if algo_id == "sac" else spaces.Discrete(3)
    agent = agent_of(algo_id, actions=actions, input_dims={"goal": [8]}, embedding_dim=4)
    features = agent.net.actor.features if algo_id == "sac" else agent.net.q.features
    assert features.width == 8 + 2 + 4 + 2 * 4
    obs = {name: part.numpy() for name, part in batch_of(PARTS).items()}
    assert len(agent.act(obs)) == 6


def test_embeddings_of_discrete_parts() -> None:
    agent = agent_of(embedding_dim=4)
    features, obs = agent.net.actor_features, batch_of(PARTS)
    kind, place = features.embeddings
    assert (kind.num_embeddings, place.num_embeddings) == (5, 7)
    out = features(agent.net.encoder(obs))
    assert out.shape == (6, 5 + 4 + 8)
    torch.testing.assert_close(out[:, 5:9], kind.weight[obs["kind"].long() - 2])
    rows = obs["place"].long() - torch.tensor([1, 0]) + torch.tensor([0, 4])
    torch.testing.assert_close(out[:, 9:], place.weight[rows].flatten(1))
    plain = agent_of(obs=spaces.Discrete(16), actions=spaces.Discrete(4), embedding_dim=3)
    assert plain.net.actor_features.width == 3
    assert agent_of(obs=spaces.Discrete(2000)).net.actor_features.width == 64
    assert agent_of(obs=spaces.Discrete(20)).net.actor_features.width == 20


# -- outputs ----------------------------------------------------------------------------------


def test_outputs_have_layers_of_their_own() -> None:
    agent = agent_of(output_dims={"steer": [8], "value": [12, 6]})
    net, obs = agent.net, batch_of(PARTS)
    assert agent.actions.output_parts() == {
        "gear": 3, "steer": 2, "switches.0": 2, "switches.1": 4,
    }  # fmt: skip
    head = net.actor_head
    assert isinstance(head, Branches)
    outputs, value = net(obs)
    assert (outputs.shape, value.shape) == ((6, 11), (6,))
    latent = net.latent(obs)
    torch.testing.assert_close(outputs[:, 3:5], head.branches[1](latent))
    widths = [m.out_features for m in net.critic_head if isinstance(m, nn.Linear)]
    assert widths == [12, 6, 1]
    every = agent_of(output_dims=[8]).net
    assert [len(branch) for branch in every.actor_head.branches] == [3] * 4
    zeros = agent_of(output_dims=[8], zero_last=True).net
    assert not zeros(obs)[0].any()
    assert not zeros(obs)[1].any()


def test_outputs_by_task() -> None:
    agent = agent_of(heads_by="kind", input_dims={"goal": [4]}, embedding_dim=3)
    net, obs = agent.net, batch_of(PARTS, 8)
    assert isinstance(net.actor_torso, KeepTask)
    assert isinstance(net.actor_head, TaskOutputs)
    outputs, value = net(obs)
    latent = net.latent(obs)
    every = net.actor_head.every(latent[:, :16]).view(8, 5, 11)
    task = obs["kind"].long() - 2
    torch.testing.assert_close(outputs, every[torch.arange(8), task])
    critic = net.critic_torso(net.critic_features(net.encoder(obs)))
    values = net.critic_head.every(critic[:, :16])
    torch.testing.assert_close(value, values[torch.arange(8), task])
    # The outputs of one task do not move the others.
    weight: Any = net.actor_head.every.weight
    (grad,) = torch.autograd.grad(outputs[task == task[0]].sum(), [weight])
    moved = grad.view(5, 11, -1).flatten(1).any(dim=1)
    assert moved.tolist() == [i == int(task[0]) for i in range(5)]


@pytest.mark.parametrize("is_vector", [True, False])
@pytest.mark.parametrize("normalize", [False, "rolling", "static"])
def test_outputs_by_the_task_of_a_run_with_several(is_vector: bool, normalize: Any) -> None:
    one_hot = spaces.Box(0, 1, (3,), np.float32)
    vector = spaces.Box(np.array([-1, -1, 0, 0, 0], np.float32), np.ones(5, np.float32))
    obs = vector if is_vector else spaces.Dict({"obs": vector, "task": one_hot})
    fields: dict[str, Any] = {
        "tasks": ["A-v0", "B-v0", "C-v0"],
        "task_one_hot": True,
        "heads_by": "task",
    }
    agent = agent_of(
        obs=obs, actions=spaces.Discrete(2), n_envs=3, normalize_obs=normalize, **fields
    )
    rng, task = np.random.default_rng(0), np.array([0, 2, 1, 1, 0, 0])
    rows = rng.uniform(-1, 1, (6, 5)).astype(np.float32)
    rows[:, 2:] = np.eye(3)[task]
    given: Any = rows if is_vector else {"obs": rows, "task": rows[:, 2:]}
    agent.net.encoder.observe(given)
    tensors = torch.from_numpy(rows)
    tree: Any = tensors if is_vector else {"obs": tensors, "task": tensors[:, 2:]}
    latent = agent.net.latent(tree)
    torch.testing.assert_close(latent[:, 16:], tensors[:, 2:])
    every = agent.net.actor_head.every(latent[:, :16]).view(6, 3, 2)
    torch.testing.assert_close(agent.net(tree)[0], every[torch.arange(6), torch.from_numpy(task)])


# -- runs -------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {
    "seed": 3, "n_envs": 4, "n_steps": 32, "eval_freq_epochs": None, "test_episodes": 2,
    "algo_id": "ppo", "batch_size": 32, "hidden_dims": [8],
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"input_dims": {"gaol": [4]}}, "input_dims: there is no part 'gaol'. Did you mean goal"),
        ({"output_dims": {"ster": [4]}}, "output_dims: there is no part 'ster'. Did you mean st"),
        ({"heads_by": "goal"}, "'goal' is not a Discrete part .*; use kind"),
        ({"heads_by": "kind", "recurrent": "gru"}, "heads_by does not work with recurrent"),
        ({"heads_by": "kind", "layers": [{"linear": 4}]}, "heads_by needs hidden_dims"),
        ({"normalize_values": True, "output_dims": [4]}, "remove output_dims of value"),
        ({"input_dims": {"goal": [0]}}, "input_dims"),
        ({"embedding_dim": 0}, "embedding_dim"),
    ],
)
def test_mistakes(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        agent_of(**fields)


def test_written_as_they_were_given() -> None:
    for given in ([8], {"goal": [8, 4]}):
        config = build_config(SMALL | {"env_id": "Probe/DictObs-v0", "input_dims": given})
        assert config.model_dump()["input_dims"] == given


def test_gsolve_net_shows_them(capsys: Any) -> None:
    words = ["net", "Probe/DictAction-v0", "--algo-id", "ppo", "--output-dims", "8"]
    assert main(words) == 0
    assert "actor_head.branches.0.0" in capsys.readouterr().out
