"""Parts of a Dict observation that only the critic sees (`critic_keys`)."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.actor_critics import ActorCritics
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.prepare import build_config
from gymnasium_solver.tree import map_tree

OBS = spaces.Dict(
    {
        "seen": spaces.Box(-1, 1, (3,), np.float32),
        "state": spaces.Box(-5, 5, (2,), np.float32),
        "kind": spaces.Discrete(4),
    }
)
BOX, CHOICES = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)
HIDDEN = ["state", "kind"]
CASES = [
    ("sac", BOX, {}),
    ("sac", CHOICES, {}),
    ("sac", BOX, {"recurrent": "gru", "recurrent_dim": 4}),
    ("td3", BOX, {"norm": "batch"}),
    ("ddpg", BOX, {}),
    ("crossq", BOX, {}),
    ("ppo", CHOICES, {"share_trunk": False}),
    ("a2c", BOX, {}),
]


def agent_for(algo_id: str, actions: Any = BOX, obs: Any = OBS, **fields: Any) -> Any:
    small = {"env_id": "Probe/DictObs-v0", "n_envs": 2, "hidden_dims": [6], "seed": 1}
    given = {"critic_keys": HIDDEN, "normalize_obs": "rolling", "normalize_reward": False, **fields}
    return build_agent(build_config({"algo_id": algo_id, **small, **given}), obs, actions)


def drawn(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {  # in the order of the space
        "kind": rng.integers(4, size=n),
        "seen": rng.normal(size=(n, 3)).astype(np.float32),
        "state": rng.normal(size=(n, 2)).astype(np.float32),
    }


@pytest.mark.parametrize(("algo_id", "actions", "fields"), CASES)
def test_the_actor_does_not_see_them_and_the_critic_does(
    algo_id: str, actions: Any, fields: dict[str, Any]
) -> None:
    agent = agent_for(algo_id, actions, **fields)
    agent.observe(drawn(50))
    obs, policy = drawn(5), agent.policy
    other = obs | {"state": obs["state"] + 1, "kind": (obs["kind"] + 1) % 4}
    first, carry = np.ones(5, bool), policy.initial_carry(5)
    acted = [policy.greedy(given, carry, first).actions for given in (obs, other)]
    np.testing.assert_array_equal(*acted)
    values = [policy.outlook(given, carry, first, None).value for given in (obs, other)]
    assert (values[0] != values[1]).all()
    alone = {"seen": obs["seen"]}
    native = [agent.act(given, is_first=True) for given in (obs, alone)]
    np.testing.assert_array_equal(*native)
    agent.reset()
    single = agent.act({"seen": obs["seen"][0]}, is_first=True)
    np.testing.assert_allclose(single, native[0][0], rtol=1e-5)


def test_each_encoder_normalises_its_own_parts() -> None:
    agent = agent_for("sac")
    agent.observe(drawn(200))
    net: ActorCritics = agent.net
    x = map_tree(torch.from_numpy, drawn(7, seed=1))
    assert (net.actor_encoder.width, net.encoder.width) == (3, 9)
    torch.testing.assert_close(net.actor_encoder(x), net.encoder(x)[:, :3])


@pytest.mark.parametrize(
    ("algo_id", "obs", "fields", "text"),
    [
        ("sac", OBS["seen"], {}, "critic_keys: .* has no Dict observations"),
        ("sac", OBS, {"critic_keys": ["stat"]}, "no part 'stat'.*state"),
        ("td3", OBS, {"critic_keys": list(OBS)}, "are all parts"),
        ("sac", OBS, {"share_encoder": True, "input_dims": [4]}, "remove one of them"),
        ("ppo", OBS, {"share_trunk": True}, "share_trunk: false"),
        ("ppo", OBS, {"recurrent": "gru"}, "share_trunk: false"),
    ],
)
def test_what_does_not_fit_is_refused(
    algo_id: str, obs: Any, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        agent_for(algo_id, obs=obs, **fields)
