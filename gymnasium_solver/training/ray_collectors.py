"""Collectors on a Ray cluster that act in the environments for one learner (`collectors`).

    learner (here)  -- weights, clock -->   actor (collecting_actor.py)
                    <-- rollout, state --

    collector = RemoteCollector(config, env, agent, say)     # in place of a Collector
    rollout = collector.collect(env_steps, budget, n_rows, version)

docs/backends.md#collectors-one-run-on-several-machines says who waits for whom. A version is the
number of rollouts that the learner had taken when it sent the weights, so that rollout j made with
version v is j - v updates behind: its staleness.

With every rollout comes what is needed to continue after it: the actions since the last reset of
the environments, the policy's carry and its random stream. The learner keeps that for each actor. A
checkpoint holds it, and an actor that was lost is rebuilt from it. Ray restarts nothing: a lost
actor is replaced by the learner, on any node that has room.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.config.env_ids import is_python_env
from gymnasium_solver.config.load import config_dict
from gymnasium_solver.config.nested import Collectors
from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import ConfigError, EnvError, GsolveError
from gymnasium_solver.timing import Timer
from gymnasium_solver.training.collect import boundary_steps
from gymnasium_solver.training.collecting_actor import (
    CollectingActor,
    EnvState,
    Share,
    Start,
    Weights,
    rows_of_round,
)
from gymnasium_solver.training.epoch_metrics import EpisodeStats
from gymnasium_solver.training.progress import Plan

MOST_LOSSES = 3  # of one collector in a row, without a rollout in between
START_S = 300.0  # an actor that has no room on the cluster waits for it
HEARING, ROLLOUTS = "weights", "rollouts"  # the two threads of an actor
COLUMNS = ("obs", "actions", "reward", "terminated", "truncated", "valid", "is_first", "mask",
           "log_prob", "carry")  # fmt: skip


def check_collectors(config: Config, takes_stale: bool) -> None:
    """ConfigError if this config cannot be collected by other processes."""
    settings = config.collectors
    assert settings is not None
    n, algo, instead = settings.n, config.algo_id, "use collectors: null"
    fitting = n * max(1, round(config.n_envs / n))
    stages = "curriculum" if config.curriculum else "tasks"
    of_one_process = "environments of one process"
    given = "the environment was given as Python code, which no other process has. Register it, or"
    problems: dict[str, Any] = {
        f"{given} {instead}": is_python_env(config.env_id),
        f"n_envs {config.n_envs} cannot be divided among {n} collectors; use n_envs: {fitting}": (
            config.n_envs % n
        ),
        f"same_start_envs compares {of_one_process}; {instead}": (
            getattr(config, "same_start_envs", 1) > 1
        ),
        f"{stages} is of the {of_one_process}; {instead}": config.curriculum or config.tasks,
        f"{algo} learns from demonstrations and steps no environment; {instead}": (
            hasattr(config, "dataset")
        ),
        f"{algo} learns only from rollouts of its newest policy; use max_staleness: 0": (
            settings.max_staleness and not takes_stale
        ),
    }
    for problem, is_wrong in problems.items():
        if is_wrong:
            raise ConfigError(f"collectors: {problem}")


# -- the cluster ----------------------------------------------------------------------------


class CollectorLost(Exception):
    """The actor, or the machine that it ran on, is gone."""


class Cluster(NamedTuple):
    ray: Any
    actor_class: Any
    is_own: bool


def join_cluster(settings: Collectors) -> Cluster:
    """The Ray cluster at RAY_ADDRESS, or one that is started on this machine."""
    try:
        import ray
    except ImportError:
        raise EnvError(
            "collectors: Ray is not installed: pip install 'gymnasium-solver[ray]'; or, on one "
            "machine, use collectors: null and vectorization_mode: async"
        ) from None
    is_own, needed = not ray.is_initialized(), settings.n * settings.cpus
    if is_own:
        # A cluster of our own has as many CPUs as it needs, also on a small machine.
        where = os.environ.get("RAY_ADDRESS")
        n_cpus = max(os.cpu_count() or 1, math.ceil(needed))
        room: Any = {} if where else {"num_cpus": n_cpus}
        try:
            ray.init(address=where, log_to_driver=False, configure_logging=False, **room)
        except Exception as error:
            raise EnvError(
                f"collectors: no Ray cluster at {where or 'this machine'}: {error}"
            ) from None
    there = ray.cluster_resources().get("CPU", 0.0)
    if there < needed:
        raise EnvError(
            f"collectors: {settings.n} collectors of {settings.cpus:g} CPUs do not fit the Ray "
            f"cluster, which has {there:g}. Use fewer, or a smaller cpus in the block."
        )
    options: dict[str, Any] = {"num_cpus": settings.cpus, "max_restarts": 0}
    options["concurrency_groups"] = {HEARING: 1, ROLLOUTS: 1}
    return Cluster(ray, ray.remote(**options)(CollectingActor), is_own)


class Member:
    """One collector: its actor, and where its environments stand after its last rollout. Waiting
    for the actor raises CollectorLost if it is gone."""

    def __init__(self) -> None:
        self.actor: Any = None
        self.state: EnvState | None = None
        self.losses = 0
        self._actions: list[np.ndarray] = []  # since the last reset

    # -- the actor --------------------------------------------------------------------------

    def begin(self, cluster: Cluster, start: Start) -> None:
        """Start an actor; `wait_ready` next."""
        self._ray, self._ahead, self._next = cluster.ray, start.max_staleness, start.first_round
        self.actor = cluster.actor_class.remote(start)
        self._ready = self.actor.ready.options(concurrency_group=ROLLOUTS).remote()
        self._rollouts: dict[int, Any] = {}

    def wait_ready(self) -> None:
        self._get(self._ready, START_S)

    def send(self, weights: Weights) -> None:
        """Give it weights; does not wait until they are used."""
        self.actor.hear.options(concurrency_group=HEARING).remote(weights)

    def take(self, j: int) -> Share:
        """Rollout j; waits for it."""
        while self._next <= j + self._ahead:
            rollout = self.actor.rollout.options(concurrency_group=ROLLOUTS)
            self._rollouts[self._next] = rollout.remote(self._next)
            self._next += 1
        share: Share = self._get(self._rollouts.pop(j))
        return share

    def close(self) -> None:
        """End the actor at once. Safe to call twice."""
        if self.actor is not None:
            with suppress(Exception):  # it may be gone already
                self._ray.kill(self.actor)
            self.actor = None

    def _get(self, ref: Any, timeout_s: float | None = None) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(ref, timeout=timeout_s)
        except errors.GetTimeoutError:
            self.close()
            raise EnvError(
                f"collectors: the Ray cluster gave a collector no CPU within {START_S:g} s. Add "
                "nodes, or use fewer collectors, or a smaller cpus in the block."
            ) from None
        except errors.RayTaskError as error:
            if isinstance(error.cause, GsolveError):
                raise EnvError(str(error.cause)) from None
            raise error.as_instanceof_cause() from None  # a bug, not a loss
        except errors.RayError as error:
            raise CollectorLost(type(error).__name__) from None

    # -- its environments -------------------------------------------------------------------

    def keep(self, state: EnvState, is_restart: bool) -> None:
        self._actions = [*([] if is_restart else self._actions), state.arrays["actions"]]
        self.state = state

    def whole_state(self) -> EnvState | None:
        """The state with all actions since the last reset."""
        if self.state is not None:
            self._actions = [np.concatenate(self._actions)]
            self.state.arrays["actions"] = self._actions[0]
        return self.state

    def set_state(self, state: EnvState | None) -> None:
        self.state, self._actions = state, [] if state is None else [state.arrays["actions"]]


# -- the learner ----------------------------------------------------------------------------


class RemoteCollector(EpisodeStats):
    def __init__(
        self, config: Config, env: VectorEnv, agent: Agent, say: Callable[[str, str], None]
    ):
        """`env`: one environment like those of the collectors. `say`: takes a level and a text for
        the user."""
        super().__init__()
        assert config.collectors is not None
        check_collectors(config, getattr(agent, "takes_stale", False))
        self.env, self.timer, self.say = JournaledEnv(env), Timer(), say
        self.config, self.agent, self.settings = config, agent, config.collectors
        self.boundary_steps = boundary_steps(config, env)
        self.members = [Member() for _ in range(self.settings.n)]
        self._cluster: Cluster | None = None
        self._round = 0
        self._restarts: dict[int, tuple[int, int]] = {}  # Weights.restarts
        self._is_cut = False  # the envs are ahead of what was learnt from
        self._lags: list[int] = []
        self._speeds: list[float] = []
        self._n_lost = 0

    def collect(
        self, env_steps: int, budget: int | None, n_rows: int | None = None, version: int = 0
    ) -> Rollout:
        """The next rollout of all collectors, of at most `budget` env steps."""
        if self.activity.is_paused:
            self.activity.wait_while_paused()
        rows_due = rows_of_round(self.config, self._round)
        assert n_rows in (None, rows_due), "rollouts follow the epochs of the config"
        self._plan_restart(env_steps)
        self._start_missing()
        weights = self._weights(env_steps)
        for member in self.members:
            member.send(weights)
        shares = [self._take(i, weights) for i in range(len(self.members))]
        whole = joined_rollout([share.rollout for share in shares])
        rollout = cut_to(whole, budget)
        for member, share in zip(self.members, shares, strict=True):
            member.keep(share.state, rollout.is_restart)
        self._note(shares, rollout)
        if self._round in self._restarts:
            self._boundary = self._restarts.pop(self._round)[0]
        self._is_cut = len(rollout.valid) < len(whole.valid)
        self._round += 1
        return rollout

    def _plan_restart(self, env_steps: int) -> None:
        """Reset all environments at every multiple of `boundary_steps`, in the same round. With
        stale weights collectors may have begun rollouts already: it is the first that none has."""
        boundary = env_steps // self.boundary_steps
        if any(member.state is None for member in self.members):
            for member in self.members:
                member.close()
                member.set_state(None)
            self._restarts = {self._round: (boundary, self._restarted_at)}
            return
        planned = [number for number, _ in self._restarts.values()]
        if boundary > max([self._boundary, *planned]):
            first = self._round + self.settings.max_staleness
            self._restarts[first] = (boundary, self._restarted_at)

    def _weights(self, env_steps: int) -> Weights:
        return Weights(
            version=self._round,
            arrays=self.agent.export_flat(),
            config=config_dict(self.config),
            env_steps=env_steps,
            total_steps=Plan(self.config, None).total_steps,
            restarts=dict(self._restarts),
        )

    def _take(self, i: int, weights: Weights) -> Share:
        """The rollout of collector i for this round. A collector that is lost is replaced."""
        member = self.members[i]
        while True:
            try:
                share = member.take(self._round)
                break
            except CollectorLost as loss:
                self._replace(i, str(loss), weights)
        member.losses = 0
        assert share.round == self._round
        assert 0 <= self._round - share.version <= self.settings.max_staleness
        return share

    def _note(self, shares: Sequence[Share], rollout: Rollout) -> None:
        """Count episodes, in the order of a collector with all environments, and staleness."""
        n_rows, width = len(rollout.valid), rollout.valid.shape[1] // len(shares)
        ended = [(found, i * width) for i, share in enumerate(shares) for found in share.ended]
        for (row, envs, episodes), first in sorted(ended, key=lambda item: (item[0][0], item[1])):
            if row < n_rows:
                self.count_episodes(episodes.only(rollout.valid[row, first + envs]))
        self._lags += [self._round - share.version for share in shares]
        self._speeds.append(sum(s.rollout.valid.sum() / max(s.seconds, 1e-9) for s in shares))

    def metrics(self) -> dict[str, float]:
        if not self._lags:
            return {}
        found = {
            "roll/policy_lag/mean": float(np.mean(self._lags)),
            "roll/policy_lag/max": float(max(self._lags)),
            "sys/timing/collectors_fps": float(np.mean(self._speeds)),
            "cnt/lost_collectors": float(self._n_lost),
        }
        self._lags, self._speeds = [], []
        return found

    @property
    def unfinished(self) -> Rollout:
        """No rows: those of a collector that failed are lost with it."""
        kinds = self.agent.policy.actions
        return Rollout.allocate(1, 1, self.env.observation_space, kinds).first(0)

    # -- actors -----------------------------------------------------------------------------

    def _start_missing(self) -> None:
        missing = [(i, member) for i, member in enumerate(self.members) if member.actor is None]
        for i, member in missing:
            self._cluster = self._cluster or join_cluster(self.settings)
            start = Start(
                config=config_dict(self.config),
                index=i,
                n=self.settings.n,
                max_staleness=self.settings.max_staleness,
                first_round=self._round,
                state=member.whole_state(),
            )
            member.begin(self._cluster, start)
        for _, member in missing:
            with suppress(CollectorLost):  # replaced when its rollout is taken
                member.wait_ready()

    def _replace(self, i: int, why: str, weights: Weights) -> None:
        """Start a lost collector again where its last rollout ended."""
        member = self.members[i]
        member.losses += 1
        self._n_lost += 1
        if member.losses > MOST_LOSSES:
            raise EnvError(
                f"collectors: collector {i} was lost {member.losses} times in a row ({why}); "
                "Ray's logs have its messages"
            )
        self.say("warning", f"collector {i} was lost ({why}) and is replaced")
        member.close()
        self._start_missing()
        member.send(weights)

    def use(self, agent: Agent, config: Config) -> None:
        """Continue with this agent, whose config changed."""
        self.agent, self.config = agent, config

    def close(self) -> None:
        for member in self.members:
            member.close()
        if self._cluster is not None and self._cluster.is_own:
            self._cluster.ray.shutdown()
        self.env.close()

    # -- state ------------------------------------------------------------------------------

    def state(self, with_env: bool = True) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and JSON as of a Collector, with the seeds and random streams of each."""
        known = [state for member in self.members if (state := member.whole_state()) is not None]
        arrays: dict[str, np.ndarray] = {}
        journal: dict[str, Any] = {}
        if with_env and not self._is_cut and len(known) == len(self.members):
            arrays = {
                name: np.concatenate([state.arrays[name] for state in known], _axis(name))
                for name in known[0].arrays
            }
            seeds, rngs = [state.seed for state in known], [state.rng for state in known]
            journal = {"seeds": seeds, "rngs": rngs}
        return arrays, {"journal": journal, **self.episode_state()}

    def restore_envs(self, arrays: dict[str, np.ndarray], state: dict[str, Any]) -> None:
        """Start the collectors where a checkpoint was saved; each replays its own journal."""
        journal = state["journal"]
        n_saved = len(journal.get("seeds", ()))
        if n_saved != len(self.members) or len(arrays["is_first"]) != self.config.n_envs:
            raise EnvError(
                f"The environments were those of {n_saved or 'no'} collectors, now there are "
                f"{len(self.members)}."
            )
        each = [
            {name: np.split(array, n_saved, _axis(name))[i] for name, array in arrays.items()}
            for i in range(len(self.members))
        ]
        states = map(EnvState, journal["seeds"], journal["rngs"], each)
        for member, own in zip(self.members, states, strict=True):
            member.set_state(own)
        self._start_missing()

    def restart_envs(self, env_steps: int) -> None:
        """Start new episodes, with a seed derived from the clock."""
        self._restarted_at = env_steps
        for member in self.members:
            member.set_state(None)


# -- the environments of all collectors, side by side ----------------------------------------


def joined_rollout(parts: Sequence[Rollout]) -> Rollout:
    """One rollout of the envs of all collectors, as old as the oldest of them."""
    columns = {name: _joined([getattr(part, name) for part in parts], 1) for name in COLUMNS}
    version = min(part.version for part in parts)
    return Rollout(**columns, version=version, is_restart=parts[0].is_restart)


def cut_to(rollout: Rollout, budget: int | None) -> Rollout:
    """The rows up to this number of env steps; what exceeds it in the last row is not valid."""
    steps = rollout.valid.sum(axis=1).cumsum()
    if budget is None or len(steps) == 0 or steps[-1] < budget:
        return rollout
    row = int(np.argmax(steps >= budget))
    surplus = int(steps[row]) - budget
    if surplus:
        rollout.valid[row, np.flatnonzero(rollout.valid[row])[-surplus:]] = False
    return rollout.first(row + 1)


def _axis(name: str) -> int:
    """The axis of the environments in an array of an EnvState."""
    return 1 if name == "actions" else 0


def _joined(parts: Sequence[Any], axis: int) -> Any:
    """Arrays, or dicts of arrays, side by side; None if there are none."""
    if isinstance(parts[0], Mapping):
        return {name: _joined([part[name] for part in parts], axis) for name in parts[0]}
    return None if parts[0] is None else np.concatenate(parts, axis)
