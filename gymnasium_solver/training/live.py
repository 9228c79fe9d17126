"""Changing a run while it trains: `gsolve set RUN policy_lr=1e-4`, or an edit of its config.yaml.

    request_edit(run, {"policy_lr": 1e-4})            # from any process
    answer = wait_for(run, request, seconds=10)       # what the training process made of it

Changes are made between two epochs. The agent is built anew with the changed config and takes over
the state of the old one, exactly as a resume with changed fields does, so that every part reads the
new values. An invalid change is refused and training continues unchanged.

A run may also change itself when a metric stalls (`interventions`): what its rules decide is made
as a live edit at the start of the next epoch. Their state is part of the progress, which
checkpoints save: a resumed run decides the same.
"""

import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import torch

from gymnasium_solver import processes
from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.config.find import read_config_file
from gymnasium_solver.config.load import apply_overrides, config_dict, differences, dump_config
from gymnasium_solver.config.marks import check_live
from gymnasium_solver.config.nested import Intervention
from gymnasium_solver.config.schedule import AUTO
from gymnasium_solver.config.schema import Config
from gymnasium_solver.config.yaml_file import value_text
from gymnasium_solver.errors import ConfigError, GsolveError, RunError, told_as
from gymnasium_solver.paths import read_regular
from gymnasium_solver.runs import edits, query
from gymnasium_solver.runs.files import write_atomic
from gymnasium_solver.runs.run import Run, is_alive_here
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.prepare import build_config, changed_from_shipped, load_config
from gymnasium_solver.training.threads import pick_threads
from gymnasium_solver.training.trainer import Trainer

FROM_FILE = "config.yaml"
REFUSED_FILE = "config.refused.yaml"


# -- requests, from any process -------------------------------------------------------------


def edited(config: Config, changes: Mapping[str, Any]) -> Config:
    """The config with some fields changed; ConfigError if it is invalid, or if one of them cannot
    change while a run trains."""
    before = config_dict(config)
    after = build_config(apply_overrides(before, changes))
    check_live(type(config), differences(before, config_dict(after)))
    if getattr(after, "gamma", None) == AUTO:
        raise ConfigError("gamma: auto is decided before a run starts; give a number")
    return after


def request_edit(
    run: Run,
    changes: Mapping[str, Any],
    source: str = "gsolve set",
    at_env_steps: int = 0,
    *,
    trust: bool = False,
) -> edits.Request:
    """Ask the process that trains `run` to change fields at its next epoch; checked here first.

    `at_env_steps`: not before this clock. RunError if the run is not training."""
    if not changes:
        raise ConfigError("no field to change was given, such as policy_lr=1e-4")
    meta = run.meta()
    if not is_alive_here(meta):
        flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in changes.items())
        raise RunError(
            f"{run.id} is not training on this machine. Change it when you continue it: "
            f"gsolve train --resume {run.id} {flags}"
        )
    config = load_config(str(run.config_path), trust=trust)
    if not differences(config_dict(config), config_dict(edited(config, changes))):
        raise ConfigError(f"nothing to change: {', '.join(changes)} already has this value")
    request = edits.Request(dict(changes), source, at_env_steps)
    edits.put_request(run, request)
    return request


@dataclass(frozen=True)
class Answer:
    """What the training process made of a request."""

    env_steps: int
    epoch: int
    changed: dict[str, Any]  # new values by field; empty if it was refused
    refused: str | None = None


def wait_for(run: Run, request: edits.Request, seconds: float) -> Answer | None:
    """The answer to a request; None if there is none after `seconds`, or when the run ends."""
    until = time.monotonic() + seconds
    while True:
        if not (run.requests_dir / f"{request.id}.json").exists():
            for event in reversed(query.get_events(run)):
                if event.get("id") == request.id:
                    clock = event["env_steps"], event["epoch"]
                    return Answer(*clock, event.get("changed", {}), event.get("text"))
        if time.monotonic() > until or not is_alive_here(run.meta()):
            return None
        time.sleep(0.05)


# -- the training process -------------------------------------------------------------------


class LiveEdits:
    """Makes the requested changes; asked by the training loop at the start of every epoch."""

    def __init__(self, trainer: Trainer, run: Run):
        self.trainer, self.run = trainer, run
        # As text: joining paths takes longer than asking for the files, in every epoch.
        self._requests = os.fspath(run.requests_dir)
        self._config, self._pause = os.fspath(run.config_path), os.fspath(run.pause_path)
        self._done = {edit.id for edit in edits.read_edits(run)}
        # A resume at the clock of an edit makes it again; its event is in the file already.
        self._logged = {event.get("id") for event in query.get_events(run)}
        self._file = self._signature()
        with suppress(OSError):  # asked of a process that has ended
            os.unlink(self._pause)

    def wait_while_paused(self) -> None:
        """A pause that was asked for from outside, if there is one."""
        if not os.path.exists(self._pause):
            return
        trainer = self.trainer
        trainer.observer.on_message("info", "paused; gsolve set RUN --go-on continues")
        self.run.tell_activity("paused")
        trainer.activity.wait_while_paused(lambda: os.path.exists(self._pause))
        self.run.tell_activity()

    def make_due(self) -> None:
        """Make what was requested, and what rules decided, since the last call."""
        p = self.trainer.progress
        for source, changes in take_due(self.trainer.config, p.interventions):
            self.change(changes, source, f"{edits.BY_RULE}-{p.env_steps}-{source}")
        if os.path.exists(self._requests):
            self._answer_requests()
        if self._signature() != self._file:
            self._read_file()

    def change(self, changes: Mapping[str, Any], source: str, edit_id: str) -> Config | None:
        """Change fields now. None if that is refused, which is reported, or changes nothing."""
        trainer = self.trainer
        try:
            config = edited(trainer.config, changes)
            changed = differences(config_dict(trainer.config), config_dict(config))
            if changed:
                reconfigure(trainer, config)
        except GsolveError as error:
            self._refuse(edit_id, source, str(error))
            return None
        if not changed:
            self._log(edit_id, {}, source)
            return None
        p = trainer.progress
        edits.add_edit(self.run, edits.Edit(edit_id, p.env_steps, p.epoch, changed, source))
        self._done.add(edit_id)
        self._write_config()
        self.run.update_meta(
            changed=changed_from_shipped(config), max_env_steps=config.max_env_steps
        )
        self._log(edit_id, changed, source)
        return config

    def _answer_requests(self) -> None:
        try:
            requests = edits.pending_requests(self.run)
        except RunError as error:
            self.trainer.observer.on_message("warning", str(error))
            return
        for request in requests:
            if request.at_env_steps > self.trainer.progress.env_steps:
                continue
            if request.id not in self._done:
                self.change(request.changes, request.source, request.id)
            edits.drop_request(self.run, request.id)

    def _read_file(self) -> None:
        """Take over an edited config.yaml. If it is refused, the file is restored and the edited
        one is kept next to it."""
        path, edit_id = self.run.config_path, edits.Request({}).id
        try:
            before = config_dict(self.trainer.config)
            given = config_dict(build_config(read_config_file(path).section(None)))
            given["project_id"] = before["project_id"]  # reading a file sets it where it is unset
            new = {name: after for name, (_, after) in differences(before, given).items()}
        except (GsolveError, OSError) as error:
            self._refuse(edit_id, FROM_FILE, str(error))
            self._restore_file()
            return
        if new and self.change(new, FROM_FILE, edit_id) is None:
            self._restore_file()
        self._file = self._signature()

    def _restore_file(self) -> None:
        with suppress(OSError):  # deleted: there is nothing to keep
            write_atomic(self.run.path / REFUSED_FILE, read_regular(self.run.config_path))
        self._write_config()

    def _write_config(self) -> None:
        self.run.write_config(dump_config(self.trainer.config))
        self._file = self._signature()

    def _signature(self) -> tuple[int, int, int] | None:
        try:
            stat = os.stat(self._config)
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _log(self, edit_id: str, changed: dict[str, list[Any]], source: str) -> None:
        p = self.trainer.progress
        if edit_id not in self._logged:
            after = {name: new for name, (_, new) in changed.items()}
            before = {name: old for name, (old, _) in changed.items()}
            self._log_event("config", edit_id, source, changed=after, before=before)
        for name, (old, new) in changed.items():
            text = f"{name}: {value_text(old)} → {value_text(new)}"
            text += f" at env step {p.env_steps:,} ({source})"
            self.trainer.observer.on_message("info", text)

    def _log_event(self, kind: str, edit_id: str, source: str, **facts: Any) -> None:
        clock = {"env_steps": self.trainer.progress.env_steps, "epoch": self.trainer.progress.epoch}
        self.run.log_event(kind, **clock, **facts, source=source, id=edit_id)

    def _refuse(self, edit_id: str, source: str, text: str) -> None:
        self._log_event("config_refused", edit_id, source, text=text)
        self.trainer.observer.on_message("warning", f"{source} was refused: {text}")


def reconfigure(trainer: Trainer, config: Config) -> None:
    """Continue training with a changed config: a new agent with the state of the old one."""
    if processes.count() > 1:
        raise ConfigError("several processes learn together, so nothing changes while they train")
    old, env = trainer.agent, trainer.collector.env
    agent = build_agent(config, env.observation_space, env.action_space)
    if agent.device != old.device:
        raise ConfigError(
            f"these values would move the networks from {old.device} to {agent.device}; set "
            f"device: {old.device} at the start of the run to change them"
        )
    agent.use_goals(env.goal_functions)
    agent.demonstrations = getattr(old, "demonstrations", None)
    _take_state(agent, old)
    agent.timer = trainer.timer
    if old.memory is not None:
        agent.adopt_memory(old.memory)
    trainer.agent = agent
    trainer.collector.use(agent, config)
    trainer.follow(config)
    torch.set_num_threads(pick_threads(config, env.observation_space))


def _take_state(agent: Agent, old: Agent) -> None:
    tensors, extra = old.state()
    arrays: dict[str, dict[str, Any]] = {
        stem: {name: value.detach().cpu().numpy() for name, value in named.items()}
        for stem, named in tensors.items()
    }
    try:
        agent.load_state(arrays, extra)
    except Exception as error:  # another kind of `intrinsic`, or a field of a plugin
        names = [name for name, value in agent.config if getattr(old.config, name, None) != value]
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ConfigError(
            f"{', '.join(names)}: the trained state does not fit the new value ({what}). Start a "
            "new run for it."
        ) from None


# -- rules (`interventions`) -----------------------------------------------------------------


@dataclass
class RuleState:
    """What a rule remembers. All values are JSON types."""

    best: float | None = None
    stalled: int = 0
    cooldown: int = 0
    times: int = 0
    old: dict[str, Any] | None = None  # values to return to; None if nothing is to be reverted
    before: float | None = None  # the metric when the change was made
    age: int = 0
    due: dict[str, Any] | None = None  # the change to make at the start of the next epoch
    why: str = ""


def watch_row(config: Config, states: dict[str, Any], row: Mapping[str, Any]) -> None:
    """Let every rule see a row of metrics; `states` (by name of the rule) is updated."""
    for rule in config.interventions:
        value = row.get(rule.metric)
        if value is None or math.isnan(value):
            continue
        state = RuleState(**states.get(rule.name, {}))
        _see(rule, state, float(value), config)
        states[rule.name] = asdict(state)


def take_due(config: Config, states: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """(source, changes) of every change that is due; they count as made."""
    found = []
    for rule in config.interventions:
        state = states.get(rule.name, {})
        if state.get("due") is not None:
            found.append((f"rule {rule.name}: {state['why']}", state["due"]))
            state["due"] = None
    return found


def _see(rule: Intervention, state: RuleState, value: float, config: Config) -> None:
    signed = value if rule.mode == "max" else -value
    improved = state.best is None or signed > state.best + rule.min_delta
    if state.old is not None:
        state.age += 1
        is_over = rule.revert_after is not None and state.age >= rule.revert_after
        is_worse = state.before is not None and signed < state.before - rule.min_delta
        is_harmful = is_worse and rule.revert_on_worse
        if is_over or is_harmful or (improved and rule.revert_on_improvement):
            state.due, state.old = state.old, None
            state.why = f"reverted: {rule.metric} got worse" if is_harmful else "reverted"
    if improved:
        state.best, state.stalled = signed, 0
        return
    if state.cooldown > 0:
        state.cooldown -= 1
        return
    state.stalled += 1
    is_left = rule.max_times is None or state.times < rule.max_times
    if state.stalled < rule.patience or not is_left or state.old is not None or state.due:
        return
    now = config_dict(config)
    state.due = rule.new_values(now, state.times)
    state.why = f"{rule.metric} stalled {state.stalled} times"
    if rule.may_revert:
        state.old, state.age = {name: now[name] for name in state.due}, 0
        state.before = signed
    state.times, state.stalled, state.cooldown = state.times + 1, 0, rule.cooldown


def check_interventions(config: Config) -> None:
    """ConfigError if a rule changes a field that does not exist, cannot change, or would get an
    invalid value."""
    bare = config.replace(interventions=[])
    for rule in config.interventions:
        with told_as(ConfigError, f"interventions: {rule.name}", ConfigError, ValueError):
            for times, change in enumerate(rule.changes):
                unknown = [name for name in change if name not in type(config).model_fields]
                if unknown:
                    raise ConfigError(f"{config.algo_id} has no field {', '.join(unknown)}")
                edited(bare, rule.new_values(config_dict(bare), times))
