"""Collects rollouts: act, step, store. Also episode statistics and the env state for resuming."""

import math
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.goals import successes
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.spec import EnvSpec, task_rows
from gymnasium_solver.envs.vector import Step
from gymnasium_solver.envs.wrappers.shaping import EPISODE_PARTS
from gymnasium_solver.errors import EnvError
from gymnasium_solver.policies.policy import Acted, Policy
from gymnasium_solver.spaces.observations import Obs
from gymnasium_solver.timing import Timer
from gymnasium_solver.training.episodes import EPISODE_WINDOW, Ended, EpisodeStats
from gymnasium_solver.training.seeds import derive

if TYPE_CHECKING:
    from gymnasium_solver.algos.agent import Agent

BOUNDARY_STEPS = 250_000
LONGEST_EPISODE = 30_000  # a longer time limit counts as no limit
CARRY = "carry."  # prefix of the policy's carry in the saved arrays


def boundary_steps(config: Config, spec: EnvSpec) -> int:
    """Env steps between resets of all envs. Many envs with long episodes need a longer interval: an
    episode longer than the interval would never finish."""
    if getattr(config, "same_start_envs", 1) > 1:
        # Every rollout begins with a reset. It has at least half as many steps as rows.
        return max(1, config.n_envs * config.n_steps // 2)
    if config.env_boundary_steps != "auto":
        return config.env_boundary_steps
    longest = min(spec.max_episode_steps or 0, LONGEST_EPISODE)
    return max(BOUNDARY_STEPS, longest * config.n_envs)


class Collector(EpisodeStats):
    adds_row = True
    """Whether a rollout that contains only reset rows gets another row."""

    def __init__(
        self,
        env: JournaledEnv,
        policy: Policy,
        n_rows: int,
        seed: int,
        boundary_steps: int,
        device: torch.device | None = None,
    ):
        """`device`: also keep the observations on this device, for learning."""
        super().__init__()
        self.env, self.policy, self.seed = env, policy, seed
        self.boundary_steps = boundary_steps
        self.n_rows = n_rows
        # One extra row, for `adds_row`.
        self.storage = Rollout.allocate(
            n_rows + 1,
            env.n_envs,
            env.observation_space,
            policy.actions,
            n_outputs=policy.n_outputs,
            device=None if policy.acts_on_host(env.n_envs) else device,
        )
        self._carry = policy.initial_carry(env.n_envs)
        self.storage.carry = {
            name: np.zeros((n_rows + 2, *part.shape), part.dtype)
            for name, part in policy.recorded_carry(self._carry).items()
        }
        tasks = env.spec.tasks
        self._task_of = task_rows(len(tasks), env.n_envs) if tasks else None
        self.task_returns = {task.name: deque(maxlen=EPISODE_WINDOW) for task in tasks}
        self.timer = Timer()  # replaced by that of the training loop
        self._boundary = 0
        self._restarted_at = 0
        self._obs: Obs | None = None
        self._is_first = np.ones(env.n_envs, bool)  # of the newest observations
        self._rows_done = 0

    def collect(
        self,
        env_steps: int,
        budget: int | None,
        n_rows: int | None = None,
        version: int = 0,
    ) -> Rollout:
        """Collect a rollout of at most `n_rows` rows and at most `budget` env steps.

        `env_steps` is the clock before the rollout. At every multiple of `boundary_steps` all envs
        are reset with a seed derived from the clock, which bounds the length of the journal.
        `version` is the policy's version, recorded with the rollout.
        """
        try:
            with self.policy.still():
                return self._collect(env_steps, budget, n_rows or self.n_rows, version)
        finally:
            self.policy.end_rollout()

    def _collect(self, env_steps: int, budget: int | None, n_rows: int, version: int) -> Rollout:
        rows, timer, activity, policy = self.storage, self.timer, self.activity, self.policy
        seen = self.open_rollout(env_steps, version)
        obs, mask, is_first, carry = self._obs, self.env.action_mask, self._is_first, self._carry
        limit, n_env_steps = math.inf if budget is None else budget, 0
        for t in range(n_rows + 1):
            if t == n_rows and (not self.adds_row or rows.valid[:t].any()):
                break
            if activity.is_paused:
                activity.wait_while_paused()
            for name, kept in rows.carry.items():
                kept[t] = carry[name]
            timer.switch("act")
            acted = policy.sample(seen, carry, is_first, mask)
            actions, carry = acted.actions, acted.carry
            self._rows_done = t
            timer.switch("env")
            step = self.env.step(policy.to_env(actions))
            timer.switch()
            obs, mask, is_first = step.obs, self.env.action_mask, step.is_reset
            rows.actions[t], seen = actions, rows.put_obs(t + 1, obs)
            rows.is_first[t + 1] = is_first
            self._keep_choice(t, acted)
            self._keep_mask(t + 1, mask)
            n_env_steps = self.close_row(t, step, n_env_steps, limit)
            n_done = t + 1
            if n_env_steps >= limit:
                break
        for name, kept in rows.carry.items():
            kept[n_done] = carry[name]
        self._obs, self._carry, self._is_first = obs, carry, is_first
        return rows.first(n_done)

    def open_rollout(self, env_steps: int, version: int) -> Any:
        """Store what is known before the first row; returns its observations as `put_obs` does."""
        self._rows_done = 0
        rows, policy = self.storage, self.policy
        boundary = self.next_boundary(env_steps)
        rows.is_restart = boundary is not None
        if boundary is not None:
            self._boundary = boundary
            self._obs = self.env.reset(derive(self.seed, boundary, self._restarted_at))
            self._is_first = np.ones(self.env.n_envs, bool)
        assert self._obs is not None
        seen = rows.put_obs(0, self._obs)
        policy.begin_rollout()
        rows.is_first[0] = self._is_first
        rows.version, rows.log_std = version, policy.log_std()
        self._keep_mask(0, self.env.action_mask)
        return seen

    def close_row(self, t: int, step: Step, n_env_steps: int, limit: float = math.inf) -> int:
        """Store the results of a step, and count its episodes. `n_env_steps` before this row;
        returns those after it, which may exceed `limit`: the surplus is dropped."""
        rows = self.storage
        rows.reward[t] = step.reward
        rows.terminated[t], rows.truncated[t] = step.terminated, step.truncated
        valid = np.logical_not(step.is_reset, out=rows.valid[t])
        n_env_steps += int(np.count_nonzero(valid))
        if n_env_steps > limit:
            valid[np.flatnonzero(valid)[int(limit) - n_env_steps :]] = False
        self.activity.rollout_steps = n_env_steps
        over = step.is_over & valid
        if over.any():
            self.note_episodes(t, step, over)
        return n_env_steps

    def next_boundary(self, env_steps: int) -> int | None:
        """Number of the boundary at which this rollout resets all envs; None: they go on."""
        boundary = env_steps // self.boundary_steps
        return boundary if self._obs is None or boundary > self._boundary else None

    @property
    def unfinished(self) -> Rollout:
        """The rows of a rollout that was interrupted by an error, up to the last observation."""
        return self.storage.first(self._rows_done)

    def _keep_mask(self, row: int, mask: np.ndarray | None) -> None:
        if mask is not None:
            if self.storage.mask is None:
                shape = (*self.storage.is_first.shape, *mask.shape[1:])
                self.storage.mask = np.ones(shape, bool)
            self.storage.mask[row] = mask

    def _keep_choice(self, row: int, acted: Acted) -> None:
        """Store what is known of the choice of these actions, besides the actions."""
        rows = self.storage
        if rows.outputs is not None:
            rows.outputs[row] = acted.outputs
        rows.log_prob = self._kept(rows.log_prob, row, acted.log_prob)
        rows.value = self._kept(rows.value, row, acted.value)

    def _kept(
        self, column: np.ndarray | None, row: int, found: np.ndarray | None
    ) -> np.ndarray | None:
        """A column [T, N] with this row; None if the policy does not say it, here or in an earlier
        row: it is computed when learning."""
        if found is None or (column is None and row):
            return None
        if column is None:
            column = np.zeros(self.storage.reward.shape, np.float32)
        column[row] = found
        return column

    def ended_at(self, step: Step, over: np.ndarray) -> Ended:
        """The episodes that ended at this step, `over` [N]."""
        return Ended(
            step.episode_return,
            step.episode_length,
            step.terminated,
            successes(step.info, self.env.n_envs),
            step.info.get(EPISODE_PARTS, {}),
        ).only(over)

    def note_episodes(self, row: int, step: Step, over: np.ndarray) -> None:
        """Count the episodes that ended at this step."""
        self.count_episodes(*self.ended_at(step, over))
        if self._task_of is not None:
            windows = list(self.task_returns.values())
            for i in np.flatnonzero(over):
                windows[self._task_of[i]].append(float(step.episode_return[i]))

    def use(self, agent: "Agent", config: Config) -> None:
        """Continue with this agent, whose config changed."""
        self.policy = agent.policy

    def metrics(self) -> dict[str, float]:
        """Metrics of the last epoch, beside those of the rollouts."""
        return {}

    def close(self) -> None:
        self.env.close()

    def state(self, with_env: bool = True) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays (the journal) and the remaining state as JSON. Without env state, a resume starts
        new episodes."""
        journal = self.env.state() if with_env else {}
        arrays = {k: v for k, v in journal.items() if isinstance(v, np.ndarray)}
        if with_env:
            arrays |= {f"{CARRY}{name}": part for name, part in self._carry.items()}
            arrays["is_first"] = self._is_first
        scalars = {k: v for k, v in journal.items() if not isinstance(v, np.ndarray)}
        return arrays, {
            "journal": scalars,
            "boundary": self._boundary,
            "restarted_at": self._restarted_at,
            **self.episode_state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Load everything except the envs; call `restore_envs` or `restart_envs` next."""
        self._boundary = state["boundary"]
        self._restarted_at = state["restarted_at"]
        self.load_episodes(state)

    def restore_envs(self, arrays: dict[str, np.ndarray], state: dict[str, Any]) -> None:
        """Restore the envs by replaying the journal, and the policy's carry with them."""
        own = {"is_first", *(name for name in arrays if name.startswith(CARRY))}
        journal = {name: array for name, array in arrays.items() if name not in own}
        if "seed" not in state["journal"]:
            raise EnvError("The environments were those of collectors, and this run has none.")
        missing = [name for name in self._carry if f"{CARRY}{name}" not in arrays]
        if missing:
            raise EnvError(f"The policy carries {', '.join(missing)} since the config changed.")
        self._obs = self.env.restore({**journal, **state["journal"]})
        self._is_first = np.asarray(arrays["is_first"], bool)
        for name, part in self._carry.items():
            part[...] = arrays[f"{CARRY}{name}"]

    def take_env(self, env: JournaledEnv) -> None:
        """Collect from another env with the same spaces and rows; call `restore_envs` or
        `restart_envs` next."""
        self.env.close()
        self.env = env

    def restart_envs(self, env_steps: int) -> None:
        """Start new episodes, with a seed derived from the clock."""
        self._restarted_at = env_steps
        self._obs = None
