"""Collects rollouts from environments that step in C with a policy that acts in C.

A row is one call (fast/native/rows.py) instead of a hundred of Python and NumPy, and it is the row
of a plain Collector, bit for bit. Where the policy or the environments are not compiled, or a
rollout may be cut short, this is a plain Collector.
"""

from dataclasses import dataclass

import numpy as np

from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.vector import CompiledEnvs, Engine, Totals
from gymnasium_solver.errors import Unsupported
from gymnasium_solver.fast.native.forward import NativeForward
from gymnasium_solver.fast.native.rows import CompiledRows
from gymnasium_solver.training.collect import Collector

N_OUTPUTS_WITH_VALUE = 5  # of a policy with memory


@dataclass
class Arrays:
    """What the rows are collected into."""

    rows: CompiledRows
    obs: np.ndarray  # [T + 1, N, ...]
    noise: np.ndarray  # [T, N, ...]
    log_prob: np.ndarray  # [T, N]
    value: np.ndarray | None  # [T, N], if the program returns it
    episode_return: np.ndarray  # [T + 1, N]: before and after each row
    episode_length: np.ndarray

    def totals(self, row: int) -> Totals:
        return Totals(self.rows.done, self.episode_return[row], self.episode_length[row])


class CompiledCollector(Collector):
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
        collect, ended = arrays.rows.collect, []
        timer.switch("env")
        try:
            for t in range(n_rows):
                if activity.is_paused:
                    activity.wait_while_paused()
                if collect():
                    ended.append(t)
        finally:  # also after an interrupt: what evaluates next must not write into these rows
            timer.exclude("act", arrays.rows.end())
        timer.switch()
        for t in ended:
            over = rows.terminated[t] | rows.truncated[t]
            totals = arrays.totals(t + 1)
            self.count_episodes(
                totals.episode_return[over], totals.episode_length[over], rows.terminated[t][over]
            )
        self._rows_done = n_rows - 1
        activity.rollout_steps = int(np.count_nonzero(rows.valid[:n_rows]))
        self._obs, self._is_first = arrays.obs[n_rows].copy(), rows.is_first[n_rows].copy()
        self._carry = {name: kept[n_rows].copy() for name, kept in rows.carry.items()}
        engine.totals = Totals(*(array.copy() for array in arrays.totals(n_rows)))
        self.env.record_rows(rows.actions[:n_rows], self._obs, engine.totals)
        return rows.first(n_rows)

    def _arrays_for(self, n_rows: int, budget: int | None) -> Arrays | None:
        """None: this rollout is not for compiled rows."""
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
        n_rows, n = rows.reward.shape
        drawn = actions.noise(n, np.random.default_rng(0))
        if drawn is None or rows.outputs is None or not isinstance(rows.obs, np.ndarray):
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
        inputs, outputs = [rows.obs, noise], [rows.outputs, rows.actions, log_prob]
        if rows.carry:
            inputs += [rows.carry["core"], rows.is_first]
            outputs += [rows.carry["core"][1:]]
        if value is not None:
            outputs.append(value)
        compiled = CompiledRows(program, envs, inputs, outputs, arrays)
        return Arrays(compiled, rows.obs, noise, log_prob, value, **totals)
