"""Collects rollouts: act, step, store. Also episode statistics and the env state for resuming.

    collector = collector_for(config, env, agent)
    rollout = collector.collect(env_steps, budget)

`Collector` is the plain one. `CompiledCollector` makes the same rows in C where it can, and
`DemoFeed` hands out demonstrations in place of rollouts. Collectors on other machines are in
ray_collectors.py.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.demonstrations import Demonstrations
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.device import TensorEngine
from gymnasium_solver.envs.journal import JournaledEnv, can_save
from gymnasium_solver.envs.spec import task_rows
from gymnasium_solver.envs.vector import SUCCEEDED, CompiledEnvs, Engine, Step, Totals, VectorEnv
from gymnasium_solver.errors import EnvError, Unsupported
from gymnasium_solver.fast.native.program import NativeForward
from gymnasium_solver.fast.native.rollout import CompiledRows
from gymnasium_solver.policies.policy import Acted, Policy
from gymnasium_solver.spaces.observations import Obs, map_obs, put_rows, take_rows
from gymnasium_solver.timing import Timer
from gymnasium_solver.training.device_collect import DeviceCollector, keeps_on_host
from gymnasium_solver.training.epoch_metrics import (
    EPISODE_WINDOW,
    Ended,
    EpisodeStats,
    episode_numbers,
)
from gymnasium_solver.training.seeds import derive, stage_seed

BOUNDARY_STEPS = 250_000
NEVER = 2**62
LONGEST_EPISODE = 30_000  # a longer time limit counts as no limit
CARRY = "carry."  # prefix of the policy's carry in the saved arrays
AT_ONCE = 64  # rows in one call of C: an interrupt or a pause waits for so many
N_OUTPUTS_WITH_VALUE = 5  # of the acting program of a policy with memory


def collector_for(config: Config, env: VectorEnv, agent: Agent) -> "Collector | DeviceCollector":
    """What the agent learns from: rollouts of the environment, or demonstrations."""
    if isinstance(env, TensorEngine) and keeps_on_host(config, env, agent) is None:
        rows, seed = config.rollout_rows, stage_seed(config, "train")
        return DeviceCollector(env, agent, rows, seed, config.check_finite)
    return host_collector(config, env, agent)


def host_collector(
    config: Config, env: VectorEnv, agent: Agent, n_rows: int | None = None
) -> "Collector":
    """The same, as arrays on the host."""
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
        boundary_steps(config, env),
        None if agent.has_replay else agent.device,
    )


def boundary_steps(config: Config, env: VectorEnv) -> int:
    """Env steps between resets of all envs. Many envs with long episodes need a longer interval: an
    episode longer than the interval would never finish. Envs that can save their state need no
    resets."""
    if getattr(config, "same_start_envs", 1) > 1:
        # Every rollout begins with a reset. It has at least half as many steps as rows.
        return max(1, config.n_envs * config.n_steps // 2)
    if config.env_boundary_steps != "auto":
        return config.env_boundary_steps
    if can_save(env):
        return NEVER
    longest = min(env.spec.max_episode_steps or 0, LONGEST_EPISODE)
    return max(BOUNDARY_STEPS, longest * config.n_envs)


class Collector(EpisodeStats):
    adds_row = True  # whether a rollout that contains only reset rows gets another row

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
        self._obs: Obs | None = None
        self._is_first = np.ones(env.n_envs, bool)  # of the newest observations
        self._rows_done = 0

    def collect(
        self, env_steps: int, budget: int | None, n_rows: int | None = None, version: int = 0
    ) -> Rollout:
        """Collect a rollout of at most `n_rows` rows and at most `budget` env steps.

        `env_steps` is the clock before the rollout. At every multiple of `boundary_steps` all envs
        are reset with a seed derived from the clock, which bounds the length of the journal.
        `version` is the policy's version, recorded with the rollout."""
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
        """Store what is known of the choice of these actions, in addition to the actions."""
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
            step.info.get(SUCCEEDED),
            episode_numbers(step),
        ).only(over)

    def note_episodes(self, row: int, step: Step, over: np.ndarray) -> None:
        """Count the episodes that ended at this step."""
        self.count_episodes(self.ended_at(step, over))
        if self._task_of is not None:
            windows = list(self.task_returns.values())
            for i in np.flatnonzero(over):
                windows[self._task_of[i]].append(float(step.episode_return[i]))

    def use(self, agent: Agent, config: Config) -> None:
        """Continue with this agent, whose config changed."""
        self.policy = agent.policy

    def metrics(self) -> dict[str, float]:
        """Metrics of the last epoch, in addition to those of the rollouts."""
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
        return arrays, {"journal": scalars, **self.episode_state()}

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


# -- rows in C ------------------------------------------------------------------------------


@dataclass
class Arrays:
    """What a CompiledCollector collects into."""

    rows: CompiledRows
    noise: np.ndarray  # [T, N, ...]
    log_prob: np.ndarray  # [T, N]
    value: np.ndarray | None  # [T, N], if the program returns it
    episode_return: np.ndarray  # [T + 1, N]: before and after each row
    episode_length: np.ndarray

    def totals(self, row: int) -> Totals:
        return Totals(self.rows.done, self.episode_return[row], self.episode_length[row])


class CompiledCollector(Collector):
    """Collects from environments that step in C with a policy that acts in C.

    Rows are one call (fast/native/rollout.py) instead of a hundred of Python and NumPy each, and
    they are those of a plain Collector, bit for bit. Where the policy or the environments are not
    compiled, or a rollout may be cut short, this is a plain Collector."""

    _arrays: Arrays | None = None

    def _collect(self, env_steps: int, budget: int | None, n_rows: int, version: int) -> Rollout:
        arrays, engine = self._arrays_for(n_rows, budget), self.env.env
        if arrays is None:
            return super()._collect(env_steps, budget, n_rows, version)
        assert isinstance(engine, Engine)
        rows, timer, activity = self.storage, self.timer, self.activity
        self.open_rollout(env_steps, version)
        n, start = self.env.n_envs, engine.totals
        drawn = self.policy.actions.noise(n_rows * n, self.policy.rng)
        arrays.noise[:n_rows] = np.asarray(drawn).reshape(n_rows, *arrays.noise.shape[1:])
        arrays.episode_return[0], arrays.episode_length[0] = start[1:]
        rows.log_prob, rows.value = arrays.log_prob, arrays.value
        for name, kept in rows.carry.items():
            kept[0] = self._carry[name]
        arrays.rows.begin(start.is_over)
        collect, n_ended = arrays.rows.collect, 0
        timer.switch("env")
        try:
            for first in range(0, n_rows, AT_ONCE):
                if activity.is_paused:
                    activity.wait_while_paused()
                n_ended += int(collect(min(AT_ONCE, n_rows - first)).sum())
        finally:  # also after an interrupt: what evaluates next must not write into these rows
            timer.exclude("act", arrays.rows.end())
        timer.switch()
        if n_ended:
            terminated, after = rows.terminated[:n_rows], slice(1, n_rows + 1)
            totals = arrays.episode_return[after], arrays.episode_length[after]
            self.count_episodes(
                Ended(*totals, terminated).only(terminated | rows.truncated[:n_rows])
            )
        self._rows_done = n_rows - 1
        activity.rollout_steps = int(np.count_nonzero(rows.valid[:n_rows]))
        self._obs = map_obs(np.copy, take_rows(rows.obs, n_rows))
        self._is_first = rows.is_first[n_rows].copy()
        self._carry = {name: kept[n_rows].copy() for name, kept in rows.carry.items()}
        engine.totals = Totals(*(array.copy() for array in arrays.totals(n_rows)))
        if rows.mask is not None:
            engine.take_masks(rows.mask[1 : n_rows + 1], arrays.episode_length[1:])
        chosen = rows.actions[:n_rows]
        given = self.policy.to_env(chosen.reshape(n_rows * n, *chosen.shape[2:]))
        self.env.record_rows(given.reshape(n_rows, n, *given.shape[1:]), self._obs, engine.totals)
        return rows.first(n_rows)

    def _arrays_for(self, n_rows: int, budget: int | None) -> Arrays | None:
        """The arrays of compiled rows, or None if this rollout is not for them."""
        engine, program = self.env.env, self.policy.acting_program()
        envs = engine.compiled if isinstance(engine, Engine) else None
        can_be_cut = budget is not None and budget < n_rows * self.env.n_envs
        if program is None or envs is None or can_be_cut or n_rows < 2:
            return None
        found = self._arrays
        if found is None or (found.rows.program, found.rows.envs) != (program, envs):
            try:
                found = self._arrays = self._allocated(program, envs)
            except Unsupported:
                return None
        return found

    def _allocated(self, program: NativeForward, envs: CompiledEnvs) -> Arrays:
        rows, actions = self.storage, self.policy.actions
        takes_masks = getattr(self.policy, "takes_masks", False)
        n_rows, n = rows.reward.shape
        drawn = actions.noise(n, np.random.default_rng(0))
        if drawn is None or rows.outputs is None or takes_masks != (rows.mask is not None):
            raise Unsupported("the rows of this policy or of these environments")
        log_prob = np.zeros((n_rows, n), np.float32)
        value = np.zeros_like(log_prob) if program.n_outputs == N_OUTPUTS_WITH_VALUE else None
        noise = np.zeros((n_rows, *drawn.shape), drawn.dtype)
        totals = {
            "episode_return": np.zeros((n_rows + 1, n), np.float64),
            "episode_length": np.zeros((n_rows + 1, n), np.int64),
        }
        arrays = {
            "reward": rows.reward,
            "terminated": rows.terminated,
            "truncated": rows.truncated,
            "is_first": rows.is_first[1:],
            "valid": rows.valid,
            **totals,
        }
        inputs, outputs = [noise], [rows.outputs, rows.actions, log_prob]
        if rows.carry:
            inputs += [rows.carry["core"], rows.is_first]
            outputs += [rows.carry["core"][1:]]
        if rows.mask is not None:
            inputs.append(rows.mask)
        if value is not None:
            outputs.append(value)
        units = actions.env_units()
        compiled = CompiledRows(program, envs, rows.obs, inputs, outputs, arrays, units, rows.mask)
        return Arrays(compiled, noise, log_prob, value, **totals)


# -- demonstrations -------------------------------------------------------------------------


class DemoFeed(Collector):
    """Hands out demonstrated steps, in random order. `env` has the spaces and is never stepped.

    The clock counts demonstrated steps: step number i of the run is row i % n of pass i // n
    through the dataset, and every pass has its own order, derived from the seed. So what is handed
    out depends on nothing but the clock, and a resumed run goes on exactly where it stopped. The
    rows of a rollout do not follow one another: each is a step by itself."""

    def __init__(
        self, env: JournaledEnv, policy: Policy, demos: Demonstrations, n_rows: int, seed: int
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
