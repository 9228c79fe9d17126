"""Hands out demonstrations in place of a collector that steps environments.

    feed = DemoFeed(env, policy, demos, n_rows, seed)
    rollout = feed.collect(env_steps, budget)         # demonstrated steps, in random order

The clock counts demonstrated steps: step number i of the run is row i % n of pass i // n through
the dataset, and every pass has its own order, derived from the seed. So what is handed out depends
on nothing but the clock, and a resumed run goes on exactly where it stopped. The rows of a rollout
do not follow one another: each is a step by itself.
"""

from typing import Any

import numpy as np

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.demonstrations import Demonstrations
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.vector import Engine, VectorEnv
from gymnasium_solver.policies.policy import Policy
from gymnasium_solver.spaces.observations import put_rows, take_rows
from gymnasium_solver.training.collect import Collector, boundary_steps
from gymnasium_solver.training.compiled_rollouts import CompiledCollector
from gymnasium_solver.training.seeds import derive, stage_seed


def collector_for(
    config: Config, env: VectorEnv, agent: Agent, n_rows: int | None = None
) -> Collector:
    """What the agent learns from: rollouts of the environment, or demonstrations."""
    journaled, seed = JournaledEnv(env), stage_seed(config, "train")
    n_rows = n_rows or config.rollout_rows
    demos = getattr(agent, "demonstrations", None)
    if demos is not None:
        return DemoFeed(journaled, agent.policy, demos, n_rows, seed)
    kind = CompiledCollector if isinstance(env, Engine) else Collector
    return kind(
        journaled,
        agent.policy,
        n_rows,
        seed,
        boundary_steps(config, env.spec),
        None if agent.has_replay else agent.device,
    )


class DemoFeed(Collector):
    """`env` has the spaces and is never stepped."""

    def __init__(
        self,
        env: JournaledEnv,
        policy: Policy,
        demos: Demonstrations,
        n_rows: int,
        seed: int,
    ):
        super().__init__(env, policy, n_rows, seed, boundary_steps=1)
        self.demos = demos
        self._order: tuple[int, np.ndarray] = (-1, demos.train)  # pass, and its order

    def _collect(self, env_steps: int, budget: int | None, n_rows: int, version: int) -> Rollout:
        n_envs = self.env.n_envs
        n = n_rows * n_envs if budget is None else min(n_rows * n_envs, budget)
        n_rows = -(-n // n_envs)
        rows, demos = self.storage.first(n_rows), self.demos
        source = np.zeros((n_rows, n_envs), np.int64)
        source.reshape(-1)[:n] = self._rows_at(env_steps, n)
        put_rows(rows.obs, slice(0, n_rows), take_rows(demos.obs, source))
        rows.actions[...] = demos.actions[source]
        rows.reward[...] = demos.reward[source]
        rows.terminated[...] = demos.terminated[source]
        rows.truncated[...] = demos.truncated[source]
        rows.valid[...] = (np.arange(n_rows * n_envs) < n).reshape(n_rows, n_envs)
        rows.version, rows.is_restart = version, True
        self.activity.rollout_steps = n
        return rows

    def _rows_at(self, clock: int, n: int) -> np.ndarray:
        """The rows of the dataset for the steps clock, clock + 1, ..."""
        size, parts = len(self.demos.train), []
        while n > 0:
            number, first = divmod(clock, size)
            order = self._order_of(number)[first : first + n]
            parts.append(order)
            clock, n = clock + len(order), n - len(order)
        return np.concatenate(parts)

    def _order_of(self, number: int) -> np.ndarray:
        if self._order[0] != number:
            rng = np.random.default_rng(derive(self.seed, "demonstrations", number))
            self._order = (number, rng.permutation(self.demos.train))
        return self._order[1]

    # -- state: nothing but the clock -------------------------------------------------------

    def state(self, with_env: bool = True) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return super().state(with_env=False)

    def restart_envs(self, env_steps: int) -> None:
        """There is no episode to begin."""
