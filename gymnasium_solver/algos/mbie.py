"""MBIE-EB: model-based interval estimation with exploration bonus (Strehl and Littman 2008).

For one Discrete observation and a choice of actions. Counts of what each action in each state led
to, and what it paid, are a model of the environment. Value iteration in it gives two tables:

    Q(s, a)  = r(s, a) + gamma * sum over s' of p(s' | s, a) * max over a' of Q(s', a')
    Q+(s, a) = the same with r(s, a) + bonus * (range of the rewards) / sqrt(n(s, a)),
               and the highest value where a was never tried in s

The agent explores by Q+, which leads to what is hardly known, and is evaluated by Q. Differences
from the paper:
- The bonus falls to 0 by a schedule. Then the agent acts by Q.
- The largest possible reward is not given: it is taken to be `optimism` times the largest seen.
- Value iteration starts from the values that it had before. Without this each would take as many
  sweeps as the first.
- Illegal actions are left out of the best value of a state. Truncated episodes bootstrap from their
  final observation.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver.algos.agent import Agent, Metrics, Snapshot, Tensors
from gymnasium_solver.algos.configs.mbie import MBIEConfig
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.nets.network import Network
from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.policies.policy import Acted, ActObs, Carry, Mask
from gymnasium_solver.policies.q_policy import QPolicy, legal
from gymnasium_solver.spaces.action_dists import require_discrete
from gymnasium_solver.spaces.observations import Space
from gymnasium_solver.spaces.space_types import is_discrete, space_to_json
from gymnasium_solver.timing import OFF

PRECISION = 1e-4  # of values, in units of the range of the rewards: value iteration ends there


class OptimisticPolicy(QPolicy):
    """Takes the best action by the network's table Q. Explores by the table Q+: a random one of the
    best actions."""

    optimistic: np.ndarray  # Q+ [S, A]

    def _draw(self, obs: ActObs, carry: Carry, is_first: np.ndarray, mask: Mask) -> Acted:
        space: Any = self.observation_space
        q = legal(self.optimistic[np.asarray(obs) - space.start], mask)
        is_best = q == q.max(axis=1, keepdims=True)
        return Acted(np.where(is_best, self.rng.random(q.shape), -1.0).argmax(axis=1), carry)

    @property
    def chooses_tensors(self) -> bool:
        return False


class MBIE(Agent):
    Config = MBIEConfig
    policy: OptimisticPolicy

    def __init__(
        self,
        config: MBIEConfig,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str = "cpu",
    ):
        if not is_discrete(observation_space):
            raise ConfigError(
                f"algo_id: mbie needs one Discrete observation, but {config.env_id} has "
                f"{observation_space}; use dqn or ppo."
            )
        actions = require_discrete(action_space, config.algo_id, config.env_id)
        self.config = config
        self.observation_space, self.action_space = observation_space, action_space
        self.device, self.timer, self.notes = torch.device("cpu"), OFF, []
        self.start = int(observation_space.start)
        self.shape = n_states, n_actions = int(observation_space.n), actions.n
        # The embedding of a state is its row of the table; the layer after it changes nothing.
        layers = Network((), "relu", embedding_dim=n_actions)
        self.net = QNetwork(observation_space, n_actions, layers, generator=torch.Generator())
        with torch.no_grad():
            output: Any = self.net.q.advantage[-1]
            output.weight.copy_(torch.eye(n_actions))
            output.bias.zero_()
            self.table.zero_()
        rng = np.random.default_rng(seed)
        self.policy = OptimisticPolicy(
            self.net, observation_space, actions, rng, "greedy", record=False
        )
        self.policy.optimistic = np.zeros(self.shape)
        self.q = np.zeros(self.shape)
        self.n = np.zeros(n_states * n_actions)
        """Visits of each pair of a state and an action, by state * n_actions + action."""
        self.paid = np.zeros_like(self.n)  # the sum of their rewards
        self.is_legal = np.ones(self.shape, bool)
        self.moves = np.zeros(0, np.int64)
        """What was seen to follow, unless an episode ended: pair * n_states + next state."""
        self.n_moves = np.zeros(0)  # how often
        self.rewards = np.array([np.inf, -np.inf])  # lowest and highest

    @property
    def table(self) -> Tensor:
        """The weights that are Q [S, A]."""
        embedding: Any = self.net.q.features.embeddings[0]
        weight: Tensor = embedding.weight
        return weight

    @property
    def update_mode(self) -> str:
        return "value iteration"

    # -- learning ---------------------------------------------------------------------------

    def update(self, rollout: Rollout, env_steps: int, total_steps: int) -> Metrics:
        self._count(rollout)
        bonus = self.config.bonus.at(env_steps, total_steps)
        self.q = self._values(self.q, 0.0)
        self.policy.optimistic = self._values(self.policy.optimistic, bonus) if bonus else self.q
        self._publish()
        self.n_updates += 1
        seen = self.n.reshape(self.shape).any(axis=1)
        return {
            "opt/q/mean": float(_best(self.q, self.is_legal)[seen].mean()),
            "opt/model/states": float(seen.sum()),
            "opt/model/tried": float((self.n > 0).reshape(self.shape)[seen].mean()),
            "hp/bonus": bonus,
        }

    def _count(self, rollout: Rollout) -> None:
        n_states, n_actions = self.shape
        obs = np.asarray(rollout.obs) - self.start
        valid = rollout.valid
        if rollout.mask is not None:  # without a legal action where an episode has ended
            self.is_legal[obs] = rollout.mask | ~rollout.mask.any(axis=2, keepdims=True)
        pairs = obs[:-1][valid] * n_actions + rollout.actions[valid]
        reward = rollout.reward[valid]
        self.n += np.bincount(pairs, minlength=len(self.n))
        self.paid += np.bincount(pairs, reward, minlength=len(self.n))
        low, high = self.rewards
        lowest, highest = reward.min(initial=low), reward.max(initial=high)
        self.rewards = np.array([lowest, highest], np.float64)
        goes_on = ~rollout.terminated[valid]
        new = pairs[goes_on] * n_states + obs[1:][valid][goes_on]
        self.moves, at = np.unique(np.concatenate([self.moves, new]), return_inverse=True)
        times = np.concatenate([self.n_moves, np.ones(len(new))])
        self.n_moves = np.bincount(at, times).astype(np.float64)

    def _values(self, q: np.ndarray, bonus: float) -> np.ndarray:
        """Q+, or Q if the bonus is 0, by value iteration that starts from `q`."""
        cfg, n_states = self.config, self.shape[0]
        low, high = self.rewards
        scale = (high - low) or abs(high) or 1.0
        # An action that was never tried is worth the most while exploring, else the least.
        best = cfg.optimism * (high if high > 0 else float(low == high == 0.0))
        untried = (best if bonus else min(low, 0.0)) / (1.0 - cfg.gamma)
        visits = np.maximum(self.n, 1.0)
        reward = self.paid / visits + bonus * scale / np.sqrt(visits)
        pairs, states = np.divmod(self.moves, n_states)
        weight = cfg.gamma * self.n_moves / visits[pairs]
        value = _best(q, self.is_legal)
        for _ in range(cfg.n_sweeps):
            after = np.bincount(pairs, weight * value[states], minlength=len(self.n))
            q = np.where(self.n > 0, reward + after, untried).reshape(self.shape)
            value, before = _best(q, self.is_legal), value
            if np.abs(value - before).max() < PRECISION * scale:
                break
        return q

    def _publish(self) -> None:
        """Copy Q to the network, which the policy and exports read."""
        with torch.no_grad():
            self.table.copy_(torch.from_numpy(self.q))

    def learnt_weights(self) -> list[Tensor]:
        return [self.table.detach().flatten()]

    # -- state ------------------------------------------------------------------------------

    _MODEL = ("q", "n", "paid", "is_legal", "moves", "n_moves", "rewards")

    def _arrays(self) -> dict[str, np.ndarray]:
        own = {name: getattr(self, name) for name in self._MODEL}
        return {**own, "optimistic": self.policy.optimistic}

    def _take(self, arrays: dict[str, np.ndarray]) -> None:
        for name in self._MODEL:
            setattr(self, name, np.array(arrays[name]))
        self.policy.optimistic = np.array(arrays["optimistic"])
        self._publish()

    def snapshot(self) -> Snapshot:
        return {name: array.copy() for name, array in self._arrays().items()}

    def restore(self, snapshot: Snapshot) -> None:
        self._take(snapshot)

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        arrays = {name: torch.from_numpy(array.copy()) for name, array in self._arrays().items()}
        extra = {
            "observation_space": space_to_json(self.observation_space),
            "action_space": space_to_json(self.action_space),
            "policy": self.policy.state(),
            "act_rng": self.policy.rng.bit_generator.state,
            "n_updates": self.n_updates,
        }
        return {"model": dict(self.net.state_dict()), "optimizer": {}, "counts": arrays}, extra

    def load_state(self, tensors: dict[str, dict[str, Any]], extra: dict[str, Any]) -> None:
        counts = {name: np.asarray(value) for name, value in tensors["counts"].items()}
        moves, n_next = counts["moves"], self.n.size * self.shape[0]
        if moves.shape != counts["n_moves"].shape or not ((moves >= 0) & (moves < n_next)).all():
            raise RunError("the saved moves are not between states of this environment.")
        self.load_weights(tensors["model"])
        self._take(counts)
        self.policy.rng.bit_generator.state = extra["act_rng"]
        self.n_updates = extra["n_updates"]

    def load_weights(self, model: dict[str, Any]) -> None:
        own = self.net.state_dict()
        if {k: tuple(v.shape) for k, v in own.items()} != {k: v.shape for k, v in model.items()}:
            raise RunError(
                "the saved table does not match this environment: keep the spaces it was made with."
            )
        self.net.load_state_dict({k: torch.as_tensor(v) for k, v in model.items()})

    def export_flat(self) -> dict[str, np.ndarray]:
        tables = {"table": self.table.detach().numpy().copy(), "optimistic": self.policy.optimistic}
        return tables | {"version": np.array(self.n_updates)}

    def import_flat(self, arrays: Any) -> None:
        if arrays["table"].shape != self.shape:
            raise RunError("the table does not match this agent: it has another shape.")
        with torch.no_grad():
            self.table.copy_(torch.as_tensor(arrays["table"]))
        self.policy.optimistic = arrays["optimistic"]
        self.n_updates = int(arrays["version"])


def _best(q: np.ndarray, is_legal: np.ndarray) -> np.ndarray:
    """The value [S] of the best legal action of each state."""
    found: np.ndarray = np.where(is_legal, q, -np.inf).max(axis=1)
    return found
