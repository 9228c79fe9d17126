"""Collects rollouts from two halves of the environments: one is stepped while the policy acts for
the other.

    half A:  act step------- act step------- act
    half B:      act step------- act step-------

The policy always acts with the newest observations of a half, and in the same order, so a run is as
deterministic, and resumes as exactly, as one whose environments are stepped together. Two halves
also hide slow resets: while one waits for its last environment, the cores work for the other.
"""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.halves import HalvedEnv
from gymnasium_solver.envs.joined import joined
from gymnasium_solver.envs.vector import Step
from gymnasium_solver.policies.policy import Carry
from gymnasium_solver.spaces.observations import take_rows
from gymnasium_solver.training.collect import Collector


@dataclass
class Half:
    number: int
    rows: slice  # of all environments
    seen: Any  # newest observations, as the policy takes them
    mask: np.ndarray | None
    is_first: np.ndarray
    carry: Carry
    env_actions: Any = None  # of the step that goes on


class OverlappedCollector(Collector):
    def _collect(self, env_steps: int, budget: int | None, n_rows: int, version: int) -> Rollout:
        if n_rows < 2 or (budget is not None and budget <= n_rows * self.env.n_envs):
            # Whether another row follows is known only once all environments are stepped.
            return super()._collect(env_steps, budget, n_rows, version)
        rows = self.storage
        halves = self._halves(self.open_rollout(env_steps, version))
        envs = self._halved
        for half in halves:
            self._act(0, half)
        n_env_steps = 0
        for t in range(n_rows):
            if self.activity.is_paused:
                self.activity.wait_while_paused()
            self._rows_done = t
            steps, env_actions = [], []
            for half in halves:
                self.timer.switch("env")
                step = envs.end(half.number)
                self.timer.switch()
                steps.append(step)
                env_actions.append(half.env_actions)
                self._take(t + 1, half, step)
                if t + 1 < n_rows:
                    self._act(t + 1, half)
            # The observations are in the rollout already; the journal needs the last ones.
            both = envs.join(steps, has_obs=t + 1 == n_rows)
            step = self.env.record(joined(env_actions), both)
            n_env_steps = self.close_row(t, step, n_env_steps)
        self._obs, self._is_first = step.obs, step.is_reset
        self._carry = {name: joined([h.carry[name] for h in halves]) for name in self._carry}
        for name, kept in rows.carry.items():
            kept[n_rows] = self._carry[name]
        return rows.first(n_rows)

    @property
    def _halved(self) -> HalvedEnv:
        return cast(HalvedEnv, self.env.env)

    def _halves(self, seen: Any) -> list[Half]:
        return [
            Half(
                i,
                rows,
                take_rows(seen, rows),
                env.action_mask,
                self._is_first[rows],
                take_rows(self._carry, rows),
            )
            for i, (rows, env) in enumerate(zip(self._halved.rows, self._halved.envs, strict=True))
        ]

    def _act(self, t: int, half: Half) -> None:
        """Choose the actions of row t, and start the step."""
        rows, policy, own = self.storage, self.policy, half.rows
        for name, kept in rows.carry.items():
            kept[t, own] = half.carry[name]
        self.timer.switch("act")
        acted = policy.sample(half.seen, half.carry, half.is_first, half.mask)
        half.carry = acted.carry
        half.env_actions = self.env.as_kept(policy.to_env(acted.actions))
        self._halved.begin(half.number, half.env_actions)
        self.timer.switch()
        rows.actions[t, own] = acted.actions
        self._keep_choice(t, acted, own)

    def _take(self, t: int, half: Half, step: Step) -> None:
        """Store the observations that a step led to: those of row t."""
        half.seen = self.storage.put_obs(t, step.obs, half.rows)
        half.is_first = self.storage.is_first[t, half.rows] = step.is_reset
        half.mask = self._halved.envs[half.number].action_mask
        self._keep_mask(t, half.mask, half.rows)
