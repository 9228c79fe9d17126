"""One collector, an actor on a Ray cluster: its share of the environments, and rollouts on demand.

    actor = CollectingActor(Start(...))
    actor.ready()                   # builds, and restores environments where a state is given
    actor.hear(weights)             # from another thread; the newest ones count
    share = actor.rollout(j)        # waits for weights that are new enough

The learner's side, which explains versions and staleness, is in ray_collectors.py.
"""

import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.algos.on_policy import acting_log_prob
from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.envs.vector import Step
from gymnasium_solver.spaces.observations import obs_arrays
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.collect import CARRY, Collector
from gymnasium_solver.training.epoch_metrics import Ended
from gymnasium_solver.training.prepare import build_config
from gymnasium_solver.training.seeds import derive, stage_seed

NO_BOUNDARY = 2**62
OBS = "obs."  # prefix of the observations in the arrays


@dataclass
class EnvState:
    """Everything that the next rollout of a collector depends on, besides the weights."""

    seed: int  # of the last reset
    rng: dict[str, Any]  # random stream of the policy
    arrays: dict[str, np.ndarray]
    """As in a checkpoint: `actions` since the last reset [T, N, ...]; by env [N, ...] all others,
    `is_first` and where the journal ended, `carry.<name>` and `obs.<name>`."""


@dataclass(frozen=True)
class Start:
    """What an actor is built from."""

    config: dict[str, Any]
    index: int  # of n collectors
    n: int
    max_staleness: int
    first_round: int = 0
    state: EnvState | None = None


@dataclass(frozen=True)
class Weights:
    """What the learner sends before each update."""

    version: int
    arrays: dict[str, np.ndarray]
    config: dict[str, Any]
    env_steps: int
    total_steps: int
    restarts: dict[int, tuple[int, int]]
    """Rounds that begin with a reset of all environments: its boundary, and the clock of the last
    restart."""


@dataclass(frozen=True)
class Share:
    """A collector's part of a rollout."""

    round: int
    version: int  # of the weights that acted
    rollout: Rollout
    ended: list[tuple[int, np.ndarray, Ended]]  # row, envs [n], their episodes
    state: EnvState  # after it, with the actions of this rollout alone
    seconds: float


def rows_of_round(config: Config, j: int) -> int:
    """Rows of rollout j; the last one of an epoch may be shorter."""
    row = j * config.rollout_rows % (config.n_steps + -config.n_steps % config.rollout_rows)
    return min(config.rollout_rows, config.n_steps - row)


class ShareCollector(Collector):
    """Restarts the environments only when told to, and keeps the episodes that ended for the
    learner to count."""

    restart: tuple[int, int] | None = None

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.ended: list[tuple[int, np.ndarray, Ended]] = []

    def next_boundary(self, env_steps: int) -> int | None:
        if self.restart is None:
            return None
        boundary, self._restarted_at = self.restart
        self.restart = None
        return boundary

    def note_episodes(self, row: int, step: Step, over: np.ndarray) -> None:
        self.ended.append((row, np.flatnonzero(over), self.ended_at(step, over)))

    def env_state(self, actions_from: int) -> EnvState:
        """Where the envs stand, with the actions from this step after the last reset on."""
        journal = self.env.state() | {"actions": self.env.actions_since(actions_from)}
        seed, obs = journal.pop("seed"), journal.pop("obs")
        arrays = journal | {f"{OBS}{name}": part for name, part in obs_arrays(obs)}
        arrays |= {f"{CARRY}{name}": part for name, part in self._carry.items()}
        arrays["is_first"] = self._is_first
        return EnvState(seed, dict(self.policy.rng.bit_generator.state), arrays)

    def take_up(self, state: EnvState) -> None:
        """Bring envs and policy to where `state` was taken; EnvError if the envs are not
        deterministic."""
        parts = {k.removeprefix(OBS): a for k, a in state.arrays.items() if k.startswith(OBS)}
        own = {name: a for name, a in state.arrays.items() if not name.startswith(OBS)}
        obs = parts[""] if list(parts) == [""] else parts
        self.restore_envs(own, {"journal": {"seed": state.seed, "obs": obs}})
        self.policy.rng.bit_generator.state = state.rng


class CollectingActor:
    """`hear` runs in a thread of its own; all else in the thread that steps the environments."""

    def __init__(self, start: Start):
        self.start = start
        self._newest: Weights | None = None
        self._news = threading.Condition()

    def ready(self) -> None:
        """Build everything, in the thread that also steps the envs."""
        torch.set_num_threads(1)
        start = self.start
        self._config_fields = start.config
        config = self._own(build_config(start.config))
        self.env = JournaledEnv(env_from_config(config, config.n_envs // start.n))
        self.agent: Agent = build_agent(config, self.env.observation_space, self.env.action_space)
        seed = stage_seed(config, "train")
        self.collector = ShareCollector(
            self.env, self.agent.policy, config.rollout_rows, seed, NO_BOUNDARY
        )
        # Alone it makes the rollouts of a run without collectors. Several keep in step instead: all
        # have the same number of rows.
        self.collector.adds_row = start.n == 1
        if start.state is not None:
            self.collector.take_up(start.state)

    def _own(self, config: Config) -> Config:
        """The config of this collector: on the CPU, with streams of its own. The first one has
        those of a run without collectors."""
        changes: dict[str, Any] = {"device": "cpu", "collectors": None, "interventions": []}
        if getattr(config, "compile", False):
            # Actions must not depend on which machine of several has a C compiler.
            changes["compile"] = "numpy"
        for name in ("seed", "seed_train"):
            own = getattr(config, name)
            if self.start.index and own is not None:
                changes[name] = derive(own, "collector", self.start.index)
        return config.replace(**changes)

    def hear(self, weights: Weights) -> None:
        """Take newer weights, while `rollout` waits or works."""
        with self._news:
            self._newest = weights
            self._news.notify()

    def rollout(self, j: int) -> Share:
        """Rollout number j, with the newest weights that have arrived."""
        with self._news:
            oldest = j - self.start.max_staleness
            while self._newest is None or self._newest.version < oldest:
                self._news.wait()
            weights = self._newest
        began_s, collector = time.perf_counter(), self.collector
        if weights.config != self._config_fields:
            self._reconfigure(weights.config)
        self.agent.import_flat(weights.arrays)
        self.agent.set_clock(weights.env_steps, weights.total_steps)
        self.agent.before_rollout(weights.env_steps, weights.total_steps)
        collector.restart, collector.ended = weights.restarts.get(j), []
        known = 0 if collector.restart is not None else self.env.n_steps
        rollout = collector.collect(
            weights.env_steps, None, rows_of_round(self.agent.config, j), self.agent.n_updates
        )
        return Share(
            round=j,
            version=weights.version,
            rollout=self._with_log_prob(rollout),
            ended=collector.ended,
            state=collector.env_state(known),
            seconds=time.perf_counter() - began_s,
        )

    @torch.no_grad()
    def _with_log_prob(self, rollout: Rollout) -> Rollout:
        """Replace the distribution by the log-probabilities of the actions: the policies of several
        collectors may differ, and it is less to send."""
        log_prob = rollout.log_prob
        if rollout.outputs is not None:
            learner: Any = self.agent
            actions = torch.from_numpy(rollout.actions).flatten(0, 1)
            found = acting_log_prob(learner, rollout, actions)
            log_prob = found.view(rollout.valid.shape).numpy()
        return replace(rollout, log_prob=log_prob, outputs=None, value=None, log_std=None)

    def _reconfigure(self, fields: dict[str, Any]) -> None:
        """After a live edit: a new agent with the random stream of the old one."""
        rng = self.agent.policy.rng
        config = self._own(build_config(fields))
        self.agent = build_agent(config, self.env.observation_space, self.env.action_space)
        self.agent.policy.rng.bit_generator.state = rng.bit_generator.state
        self.collector.policy = self.agent.policy
        self._config_fields = fields
