"""The learner's side of collectors: in place of a Collector, with the same methods.

    collector = RemoteCollector(config, env, agent, say)
    rollout = collector.collect(env_steps, budget, n_rows, version)

Messages (messages.py). The learner sends
- start: config, index and number of the collector, the round to begin with, and a state to continue
  from (parts.py);
- weights: their version, the clock of the schedules, the rows of the next rollouts, the rollouts
  before which the environments are reset, the config, and the weights themselves.
A collector answers with ready, with a rollout for each round, or with an error.

A version is the number of rollouts that the learner had taken when it sent the weights, so that
rollout j made with version v is j - v updates behind: its staleness.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.config.collectors import Collectors
from gymnasium_solver.config.env_ids import is_python_env
from gymnasium_solver.config.load import config_dict
from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.timing import Timer
from gymnasium_solver.training.collect import boundary_steps
from gymnasium_solver.training.collectors.handle import Backend, CollectorLost, Handle
from gymnasium_solver.training.collectors.messages import Message, prefixed
from gymnasium_solver.training.collectors.parts import (
    EnvState,
    cut_to,
    joined_rollout,
    joined_states,
    split_states,
)
from gymnasium_solver.training.episodes import EpisodeStats
from gymnasium_solver.training.plan import Plan

MOST_LOSSES = 3  # of one collector in a row, without a rollout in between


def check_collectors(config: Config, takes_stale: bool) -> None:
    """ConfigError if this config cannot be collected by other processes."""
    settings = config.collectors
    assert settings is not None
    if is_python_env(config.env_id):
        raise ConfigError(
            "collectors: the environment was given as Python code, which no other process has. "
            "Register it, or use collectors: null"
        )
    if config.n_envs % settings.n:
        raise ConfigError(
            f"collectors: n_envs {config.n_envs} cannot be divided among {settings.n} collectors; "
            f"use n_envs: {settings.n * max(1, round(config.n_envs / settings.n))}"
        )
    if getattr(config, "same_start_envs", 1) > 1:
        raise ConfigError(
            "collectors: same_start_envs compares environments of one process; use collectors: null"
        )
    for name in ("curriculum", "tasks"):
        if getattr(config, name):
            raise ConfigError(
                f"collectors: {name} is of the environments of one process; use collectors: null"
            )
    if hasattr(config, "dataset"):
        raise ConfigError(
            f"collectors: {config.algo_id} learns from demonstrations and steps no environment; "
            "use collectors: null"
        )
    if settings.max_staleness and not takes_stale:
        raise ConfigError(
            f"collectors: {config.algo_id} learns only from rollouts of its newest policy; use "
            "max_staleness: 0"
        )


def backend_for(settings: Collectors) -> Backend:
    if settings.backend == "ray":
        from gymnasium_solver.training.collectors.ray_actors import RayCollectors

        return RayCollectors(settings.n, settings.max_staleness, settings.cpus)
    from gymnasium_solver.training.collectors.process import ProcessBackend

    return ProcessBackend()


class Member:
    """One collector, and where its environments stand after its last rollout."""

    def __init__(self) -> None:
        self.handle: Handle | None = None
        self.state: EnvState | None = None
        self.losses = 0
        self._actions: list[np.ndarray] = []  # since the last reset

    def keep(self, state: EnvState, is_restart: bool) -> None:
        if is_restart:
            self._actions = []
        self._actions.append(state.actions)
        self.state = state

    def whole_state(self) -> EnvState | None:
        """The state with all actions since the last reset."""
        if self.state is not None and len(self._actions) > 1:
            self._actions = [np.concatenate(self._actions)]
        if self.state is not None:
            self.state.actions = self._actions[0]
        return self.state

    def set_state(self, state: EnvState | None) -> None:
        self.state, self._actions = state, [] if state is None else [state.actions]


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
        self.boundary_steps = boundary_steps(config, env.spec)
        self.members = [Member() for _ in range(self.settings.n)]
        self._backend: Backend | None = None
        self._round = 0
        self._row = 0  # of the epoch
        self._boundary = self._restarted_at = 0
        self._restarts: dict[int, list[int]] = {}  # round: [boundary, clock of a forced restart]
        self._is_cut = False  # the envs are ahead of what was learnt from
        self._lags: list[int] = []
        self._speeds: list[float] = []
        self._n_lost = 0

    # -- collecting -------------------------------------------------------------------------

    def collect(
        self,
        env_steps: int,
        budget: int | None,
        n_rows: int | None = None,
        version: int = 0,
    ) -> Rollout:
        """The next rollout of all collectors, of at most `budget` env steps."""
        if self.activity.is_paused:
            self.activity.wait_while_paused()
        assert n_rows in (None, self._rows_at(0)), "rollouts follow the epochs of the config"
        self._plan_restart(env_steps)
        self._start_missing()
        order = self._order(env_steps)
        for member in self.members:
            self._tell(member, order)
        answers = [self._take(i, env_steps) for i in range(len(self.members))]
        rollout = cut_to(
            joined_rollout(
                [answer.part("rollout.") for answer in answers],
                min(answer.fields["n_updates"] for answer in answers),
            ),
            budget,
        )
        rollout.is_restart = bool(answers[0].fields["is_restart"])
        for member, answer in zip(self.members, answers, strict=True):
            state = EnvState.from_message(answer.fields["state"], answer.part("state."))
            member.keep(state, rollout.is_restart)
        self._note(answers, rollout)
        if self._round in self._restarts:
            self._boundary = self._restarts.pop(self._round)[0]
        self._is_cut = len(rollout.valid) < len(answers[0].arrays["rollout.valid"])
        self._row = self._row_after(0)
        self._round += 1
        return rollout

    def _plan_restart(self, env_steps: int) -> None:
        """Reset all environments at every multiple of `boundary_steps`, in the same round. With
        stale weights collectors may have begun rollouts already: it is the first that none has."""
        boundary = env_steps // self.boundary_steps
        if any(member.state is None for member in self.members):
            self._stop()
            for member in self.members:
                member.set_state(None)
            self._restarts = {self._round: [boundary, self._restarted_at]}
            return
        planned = [number for number, _ in self._restarts.values()]
        if boundary > max([self._boundary, *planned]):
            first = self._round + self.settings.max_staleness
            self._restarts[first] = [boundary, self._restarted_at]

    def _rows_at(self, ahead: int) -> int:
        """Rows of the rollout that is `ahead` rounds from now."""
        row = self._row_after(ahead - 1) if ahead else self._row
        return min(self.config.rollout_rows, self.config.n_steps - row)

    def _row_after(self, ahead: int) -> int:
        """Rows of its epoch that are done after the rollout `ahead` rounds from now."""
        row = self._row
        for _ in range(ahead + 1):
            row += min(self.config.rollout_rows, self.config.n_steps - row)
            row %= self.config.n_steps
        return row

    def _order(self, env_steps: int) -> Message:
        rounds = range(self.settings.max_staleness + 1)
        fields = {
            "kind": "weights",
            "version": self._round,
            "env_steps": env_steps,
            "total_steps": Plan(self.config, None).total_steps,
            "rows": {str(self._round + ahead): self._rows_at(ahead) for ahead in rounds},
            "restarts": {str(j): list(restart) for j, restart in self._restarts.items()},
            "config": config_dict(self.config),
        }
        return Message(fields, self.agent.export_flat())

    def _take(self, i: int, env_steps: int) -> Message:
        """The rollout of collector i for this round. A collector that is lost is replaced."""
        member = self.members[i]
        while True:
            try:
                if member.handle is None:
                    raise CollectorLost("it is not running")
                answer = member.handle.take(self._round)
                break
            except CollectorLost as loss:
                self._replace(i, str(loss), env_steps)
        if answer.kind == "error":
            raise EnvError(answer.fields["text"])
        member.losses = 0
        lag = self._round - answer.fields["version"]
        if answer.fields["round"] != self._round or not 0 <= lag <= self.settings.max_staleness:
            raise RuntimeError(f"collector {i} sent {answer.fields}, expected {self._round}")
        return answer

    def _note(self, answers: list[Message], rollout: Rollout) -> None:
        """Count episodes, in the order of a collector with all environments, and staleness."""
        share = rollout.valid.shape[1] // len(answers)
        ended = [
            (episode["row"], i * share + episode["env"], episode)
            for i, answer in enumerate(answers)
            for episode in answer.fields["episodes"]
        ]
        for row, column, episode in sorted(ended, key=lambda item: item[:2]):
            if row < len(rollout.valid) and rollout.valid[row, column]:
                success = episode["success"]
                self.count_episodes(
                    np.array([episode["return"]]),
                    np.array([episode["length"]]),
                    np.array([episode["terminated"]]),
                    None if success is None else np.array([success]),
                    {name: np.array([total]) for name, total in episode["parts"].items()},
                )
        self._lags += [self._round - answer.fields["version"] for answer in answers]
        self._speeds.append(
            sum(a.arrays["rollout.valid"].sum() / max(a.fields["seconds"], 1e-9) for a in answers)
        )

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

    # -- processes --------------------------------------------------------------------------

    def _start_missing(self) -> None:
        missing = [member for member in self.members if member.handle is None]
        for i, member in enumerate(self.members):
            if member.handle is None:
                member.handle = self._started(i)
        for member in missing:
            assert member.handle is not None
            try:
                answer = member.handle.wait_ready()
            except CollectorLost:
                continue  # replaced when its rollout is taken
            if answer.kind == "error":
                raise EnvError(answer.fields["text"])

    def _started(self, i: int) -> Handle:
        fields = {
            "kind": "start",
            "config": config_dict(self.config),
            "index": i,
            "n": self.settings.n,
            "round": self._round,
            "max_staleness": self.settings.max_staleness,
        }
        arrays: dict[str, np.ndarray] = {}
        state = self.members[i].whole_state()
        if state is not None:
            fields["state"], arrays = state.to_message()
        return self._cluster().start(Message(fields, prefixed("state.", arrays)))

    def _cluster(self) -> Backend:
        if self._backend is None:
            self._backend = backend_for(self.settings)
        return self._backend

    def _tell(self, member: Member, order: Message) -> None:
        if member.handle is not None:
            with suppress(CollectorLost):  # replaced when its rollout is taken
                member.handle.send(order)

    def _replace(self, i: int, why: str, env_steps: int) -> None:
        """Start a lost collector again where its last rollout ended."""
        member = self.members[i]
        member.losses += 1
        self._n_lost += 1
        if member.losses > MOST_LOSSES:
            raise EnvError(
                f"collectors: collector {i} was lost {member.losses} times in a row ({why}); its "
                "messages are above"
            )
        self.say("warning", f"collector {i} was lost ({why}) and is replaced")
        if member.handle is not None:
            member.handle.close()
        member.handle = self._started(i)
        try:
            answer = member.handle.wait_ready()
        except CollectorLost:
            return
        if answer.kind == "error":
            raise EnvError(answer.fields["text"])
        self._tell(member, self._order(env_steps))

    def _stop(self) -> None:
        for member in self.members:
            if member.handle is not None:
                member.handle.close()
                member.handle = None

    def use(self, agent: Agent, config: Config) -> None:
        """Continue with this agent, whose config changed."""
        self.agent, self.config = agent, config

    def close(self) -> None:
        self._stop()
        if self._backend is not None:
            self._backend.close()
        self.env.close()

    # -- state ------------------------------------------------------------------------------

    def state(self, with_env: bool = True) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and JSON as of a Collector, with the seeds and random streams of each."""
        states = [member.whole_state() for member in self.members]
        known = [state for state in states if state is not None]
        arrays: dict[str, np.ndarray] = {}
        journal: dict[str, Any] = {}
        if with_env and not self._is_cut and len(known) == len(states):
            arrays = joined_states(known)
            seeds, rngs = [state.seed for state in known], [state.rng for state in known]
            journal = {"seeds": seeds, "rngs": rngs}
        return arrays, {
            "journal": journal,
            "boundary": self._boundary,
            "restarted_at": self._restarted_at,
            **self.episode_state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Load everything except the envs; call `restore_envs` or `restart_envs` next."""
        self._boundary, self._restarted_at = state["boundary"], state["restarted_at"]
        self.load_episodes(state)

    def restore_envs(self, arrays: dict[str, np.ndarray], state: dict[str, Any]) -> None:
        """Start the collectors where a checkpoint was saved; each replays its own journal."""
        journal = state["journal"]
        n_saved = len(journal.get("seeds", ())) or "no"
        if n_saved != len(self.members) or len(arrays["is_first"]) != self.config.n_envs:
            raise EnvError(
                f"The environments were those of {n_saved} collectors, now there are "
                f"{len(self.members)}."
            )
        states = split_states(arrays, journal["seeds"], journal["rngs"])
        for member, own in zip(self.members, states, strict=True):
            member.set_state(own)
        self._start_missing()

    def restart_envs(self, env_steps: int) -> None:
        """Start new episodes, with a seed derived from the clock."""
        self._restarted_at = env_steps
        for member in self.members:
            member.set_state(None)
