"""The components of one run (environments, agent, collector, evaluator, plan and progress), and how
they are saved and restored.

loop.py has the loop over them, judge.py the evaluations, goals, tests and the verdict. A checkpoint
holds everything that the loop depends on, so that a resumed run produces the same weights, bit for
bit, as an uninterrupted one.
"""

from collections.abc import Mapping
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver import processes
from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.device_rollout import DeviceRollout
from gymnasium_solver.data.memory import Memory
from gymnasium_solver.data.memory_check import available_memory_bytes, check_fits
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.as_gymnasium import treatment_of
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import (
    ConfigError,
    DivergedError,
    EnvError,
    EnvValueError,
    WriteError,
    details_of,
)
from gymnasium_solver.registry import observers
from gymnasium_solver.runs import checkpoint as checkpoints
from gymnasium_solver.runs import segments
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.words import OF_THE_ENV
from gymnasium_solver.spaces.actions import action_kind
from gymnasium_solver.spaces.space_types import space_to_json
from gymnasium_solver.timing import Timer
from gymnasium_solver.training import agents
from gymnasium_solver.training.activity import Activity, Terminated
from gymnasium_solver.training.collect import Collector, collector_for
from gymnasium_solver.training.curriculum import Stages
from gymnasium_solver.training.device_collect import ON_DEVICE, DeviceCollector, keeps_on_host
from gymnasium_solver.training.epoch_metrics import EpochStart, detail_epochs
from gymnasium_solver.training.evaluate import BackgroundEvaluator, Evaluator, check_async
from gymnasium_solver.training.observer import (
    Alerts,
    Control,
    EvalResult,
    Observer,
    TrainInfo,
    rows_together,
)
from gymnasium_solver.training.profile import Operators, collect_seconds
from gymnasium_solver.training.progress import CheckpointCadence, Plan, Progress, eval_cadence
from gymnasium_solver.training.ray_collectors import RemoteCollector
from gymnasium_solver.training.videos import VideoRecorder, can_record

REPLAY = "replay"  # folder in a run
LONG_JOURNAL = 100_000  # env steps; replaying them takes a minute in slow envs
ON_HOST = (
    "the environments are tensors, but {} needs rollouts on the host: they are copied there, which "
    "is much slower. PPO without such settings stays on the device (docs/device_environments.md)"
)
ONE_PROCESS = (
    "{} needs rollouts on the host, which one process makes. Several train PPO on environments of "
    "tensors (docs/device_environments.md#several-gpus); start gsolve without torchrun"
)
HEAD = "head."  # prefix of the data of the newest observation, which is in no row yet


class Trainer:
    """The components of one run; the functions of the loop read and change them."""

    def __init__(
        self, config: Config, env: VectorEnv, observer: Observer, timer: Timer | None = None
    ):
        """`env`: the training environment; the trainer closes it."""
        self.observer = observer
        self.timer = timer or Timer(detailed=bool(config.profile))
        self.operators = Operators(config, observer)
        self.activity = Activity(self.timer)
        self.activity.epoch_size = config.n_envs * config.n_steps
        self.control = Control(self.activity)
        self.control.can_record_video = can_record(config)
        self.run: Run
        self.progress = Progress()
        self.notes: list[str] = []
        self.stop_detail: str | None = None
        self.told_of_device: set[str] = set()
        self.is_over = False
        self.background: BackgroundEvaluator | None = None  # once there is a run, for eval_async
        self.alerts: Alerts | None = None  # once there is a run
        self.replay_log: ReplayLog | None = None
        self.rollout: Rollout | DeviceRollout | None = None  # the newest
        own = processes.share_of(config)
        check_rollout_fits(own, env.observation_space, env.action_space)
        if config.eval_async:
            check_async(config)
        self.agent = agents.build_agent(own, env.observation_space, env.action_space)
        self.update_mode = self.agent.update_mode  # as the user knows it
        self.agent.use_goals(env.goal_functions)
        self.agent.start_training()
        self.spec = env.spec
        """Facts of the config's environment; a stage of a curriculum has others."""
        self.collector: Collector | DeviceCollector | RemoteCollector
        reason: str | None = "collectors"
        if config.collectors is not None:
            self.collector = RemoteCollector(config, env, self.agent, observer.on_message)
        else:
            self.collector = collector_for(own, env, self.agent)
            reason = keeps_on_host(config, env, self.agent)
            # JAX on a CPU hands its arrays over without a copy either way.
            if reason and (env.spec.engine == "torch" or self.agent.device.type != "cpu"):
                self.notes.append(ON_HOST.format(reason))
            steps, n = config.max_env_steps, config.n_envs
            if isinstance(self.collector, DeviceCollector) and steps and steps % n:
                rounded = -(-steps // n) * n
                self.notes.append(
                    f"max_env_steps: {steps:,} becomes {rounded:,}, whole rows of {n:,} envs"
                )
        if processes.count() > 1 and not isinstance(self.collector, DeviceCollector):
            raise ConfigError(ONE_PROCESS.format(reason or f"env_id: {config.env_id}"))
        if (n := processes.count()) > 1:
            self.notes.append(f"{n} processes learn together, with {own.n_envs:,} envs each")
        self.stages: Stages | None = None
        if config.curriculum is not None:
            self.stages = Stages(config, env, self.collector, self._tell_stage)
        self.agent.timer = self.collector.timer = self.timer
        self.collector.activity = self.activity
        self.evaluator = Evaluator(config, env.spec, self.activity)
        self.follow(config)

    def follow(self, config: Config) -> None:
        """Plan by this config from now on: at the start, and after a live edit."""
        self.config = config
        self.plan = Plan(config, self.spec.reward_threshold)
        self.evaluator.follow(config, self.spec)
        self.should_eval = eval_cadence(config, self.plan.planned_epochs)
        self.should_checkpoint = CheckpointCadence(config.checkpoint_freq_epochs)
        on_device = isinstance(self.collector, DeviceCollector)
        self.details_freq = detail_epochs(config, on_device)

    def announce(self, resumed_from: int | None) -> None:
        """Write the facts of the run to meta.json and tell the observers that it starts."""
        test_episodes = self.evaluator.test_episodes if self.plan.tests else None
        notes = [*self.config.notices(), *self.spec.notes, *self.agent.notes, *self.notes]
        info = TrainInfo(
            env_spec=self.spec,
            n_parameters=sum(p.numel() for p in self.agent.net.parameters()),
            device=str(self.agent.device),
            update_mode=self.update_mode,
            threshold=self.plan.threshold,
            planned_epochs=self.plan.planned_epochs,
            test_episodes=test_episodes,
            resumed_from=resumed_from,
            wall_s=self.progress.wall_s,
            notes=notes,
            control=self.control,
            activity=self.activity,
        )
        self.run.update_meta(
            status="running",
            engine=self.spec.engine,
            max_episode_steps=self.spec.max_episode_steps,
            action_space=space_to_json(self.collector.env.action_space),
            **({"protocol": self.spec.protocol} if self.spec.protocol else {}),
            device=info.device,
            treatment=treatment_of(self.collector.env.env, self.config).to_json(),
            threshold=self.plan.threshold,
            test_episodes=test_episodes,
            max_env_steps=self.config.max_env_steps,
        )
        self.observer.on_start(self.run, self.config, info)
        self.alerts = Alerts(self.run, self.observer, rows_together(self.config))

    def _tell_stage(self, text: str, facts: Mapping[str, Any]) -> None:
        """Report a change of the curriculum's stage."""
        clock = {"env_steps": self.progress.env_steps, "epoch": self.progress.epoch}
        self.run.log_event("curriculum", **clock, text=text, **facts)
        self.observer.on_message("info", f"curriculum: {text}")

    def clocks(self) -> EpochStart:
        """The clocks now."""
        p, episodes = self.progress, self.collector.n_episodes
        collect_s = collect_seconds(self.timer)
        return EpochStart(self.activity.clock_s(), p.env_steps, p.vec_steps, episodes, collect_s)

    def update_meta(self, **fields: Any) -> None:
        """Write the progress, and these fields, to meta.json."""
        p = self.progress
        untested = {"test": None, "solved": None if self.plan.threshold is None else False}
        self.run.update_meta(
            env_steps=p.env_steps,
            epoch=p.epoch,
            episodes=self.collector.n_episodes,
            wall_s=p.wall_s,
            best=p.best,
            last_eval=p.last_eval,
            **{**untested, **fields},
        )

    # -- checkpoints ------------------------------------------------------------------------

    def save(
        self,
        kind: str,
        result: EvalResult | None = None,
        with_env: bool = True,
        is_last: bool = True,
    ) -> None:
        """Write a checkpoint: periodic, best or last. `is_last`: a resume begins there."""
        p, directory = self.progress, self.run.checkpoints_dir
        if self.alerts is not None:
            self.alerts.catch_up()
        self.activity.begin("saving")
        agent_tensors, agent_extra = self.agent.state()
        env_arrays, collector_state = self.collector.state(with_env)
        if with_env:
            env_arrays |= processes.states_of_others()
        tensors: dict[str, dict[str, Any]] = {**agent_tensors, "env": env_arrays}
        state = {"progress": asdict(p), "agent": agent_extra, "collector": collector_state}
        if self.agent.saves_replay and self.agent.memory is not None:
            self.replay_log = self.replay_log or ReplayLog(self.run.path / REPLAY)
            tensors["replay"], state["replay"] = self.replay_log.save(self.agent.memory)
        scores = {} if result is None else {"score": result.mean, "eval": result.to_dict()}
        path = checkpoints.save_checkpoint(
            directory, p.env_steps, tensors, state, scores, best=kind == "best", last=is_last
        )
        self.activity.saved_steps = p.env_steps
        pending = (p.pending_eval or {}).get("env_steps")
        checkpoints.prune(directory, self.config.keep_checkpoints, pending)
        if self.replay_log is not None:
            self.replay_log.prune(directory)
        self.run.log_event("checkpoint", env_steps=p.env_steps, epoch=p.epoch, reason=kind)
        self.update_meta()
        self.observer.on_checkpoint(path, kind)

    def load(self, run: Run, checkpoint: checkpoints.LoadedCheckpoint) -> None:
        """Restore everything except the environments."""
        path, tensors, state = checkpoint.path, checkpoint.tensors, checkpoint.state
        self.progress = agents.load_progress(state, checkpoint.env_steps, path)
        agents.check_agent(self.agent, tensors, state.get("agent"), path)
        own = self.collector.state(with_env=False)[1]
        agents.check_collector(own, state.get("collector"), path)
        with agents.fitting(path):
            self.agent.load_state(tensors, state["agent"])
            if self.agent.saves_replay and "replay" in state:
                memory = self.agent.open_memory(state["replay"]["has_masks"])
                self.replay_log = ReplayLog(run.path / REPLAY)
                self.replay_log.load(memory, tensors["replay"], state["replay"])
            elif self.agent.has_replay:
                self.notes.append(
                    "no replay buffer was loaded: it is refilled before learning continues, so "
                    "this is not an exact resume"
                )
            self.collector.load_state(state["collector"])
        self.activity.count(self.progress.env_steps)
        self.activity.epoch = self.progress.epoch
        self.activity.saved_steps = self.progress.env_steps

    def restore_envs(self, checkpoint: checkpoints.LoadedCheckpoint) -> None:
        """Restore the training environments to their state at the checkpoint."""
        env_steps, state = self.progress.env_steps, checkpoint.state["collector"]
        if self.stages is not None and not self.stages.resume(self.progress):
            return
        try:
            if not state["journal"]:
                self.collector.restart_envs(env_steps)
                return
            arrays = checkpoint.tensors.get("env", {})
            if ON_DEVICE not in state["journal"]:
                agents.check_journal(arrays, checkpoint.path)
                n_steps = len(arrays["actions"]) * self.config.n_envs
                if n_steps >= LONG_JOURNAL:
                    text = f"Replaying {n_steps:,} env steps to restore the environments' state."
                    self.observer.on_message("info", text)
            with agents.fitting(checkpoint.path):
                self.collector.restore_envs(arrays, state)
        except EnvError as error:
            self.notes.append(
                f"{error} New episodes are started instead, so this is not an exact resume."
            )
            self.collector.restart_envs(env_steps)

    # -- the end ----------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Leave a folder that records the error and can be resumed, as far as it can be written."""
        if details := details_of(error):
            self.run.log_text(f"{error}\n\n{details}")
        try:
            if self.alerts is not None:
                self.alerts.catch_up()
            if isinstance(error, DivergedError) and not self.is_over:
                env_steps, of_env = self.progress.env_steps, isinstance(error, EnvValueError)
                # A run whose environment failed is repeated exactly from its checkpoint, once that
                # is mended. If the learner failed, another config goes on with new episodes.
                exact = None
                if of_env:
                    directory = self.run.checkpoints_dir
                    exact = checkpoints.pointer_env_steps(directory, checkpoints.LAST)
                if exact != env_steps:
                    self.save("last", with_env=False, is_last=exact is None)
                told = {"text": str(error), "of_env": of_env}
                self.run.log_event("diverged", env_steps=env_steps, **told)
                if self.alerts is not None:
                    self.alerts.diverged(str(error), env_steps, of_env)
            self._record_failure(error)
        except WriteError as problem:
            if not isinstance(error, WriteError):
                self.observer.on_message("warning", f"how the run ended is not saved: {problem}")

    def _record_failure(self, error: BaseException) -> None:
        is_signal = isinstance(error, KeyboardInterrupt)
        reason = "diverged" if isinstance(error, DivergedError) else "error"
        if is_signal:
            self.stop_detail = "SIGTERM" if isinstance(error, Terminated) else "SIGINT"
        elif isinstance(error, EnvValueError):
            self.stop_detail = OF_THE_ENV
        elif reason == "error":
            self.stop_detail = (str(error) or type(error).__name__).partition("\n")[0]
        self.update_meta(
            status="interrupted" if is_signal else "failed",
            stop_reason="interrupted" if is_signal else reason,
            stop_detail=self.stop_detail,
            error=str(error) or type(error).__name__,
        )

    def close(self) -> None:
        for component in (self.background, self.collector, self.evaluator, self.stages):
            if component is not None:
                component.close()


# -- the replay buffer of a run -----------------------------------------------------------------


class ReplayLog:
    """Stores a replay buffer in a run folder: each row is written once, and a checkpoint lists the
    segments it needs."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.segments: list[segments.Segment] = []

    def save(self, memory: Memory) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Write the rows added since the last save; return arrays and JSON for the checkpoint."""
        replay = memory.replay
        written = self.segments[-1]["stop"] if self.segments else 0
        start, stop = max(written, replay.oldest_row), replay.n_added
        rows = replay.rows(start, stop)
        head = {HEAD + name: a[-1:] for name, a in rows.items() if len(a) > stop - start}
        if stop > start:
            body = {name: a[: stop - start] for name, a in rows.items()}
            new = segments.append_segment(self.directory, start, stop, body, self.segments)
            self.segments = segments.extended(self.segments, new)
        self.segments = segments.needed(self.segments, replay.oldest_row)
        arrays, extra = memory.state()
        return arrays | head, {
            "segments": self.segments,
            "memory": extra,
            "has_masks": HEAD + "mask" in head,
        }

    def load(self, memory: Memory, arrays: dict[str, np.ndarray], state: dict[str, Any]) -> None:
        """Rebuild the replay buffer as it was at `save`."""
        head = {k.removeprefix(HEAD): a for k, a in arrays.items() if k.startswith(HEAD)}
        self.segments = segments.check_segments(state["segments"])
        before: tuple[int, dict[str, np.ndarray]] | None = None
        # A segment ends with the observation after its last row, which is the first one of the next
        # segment.
        saved = segments.load_segments(self.directory, self.segments)
        for start, after in chain(saved, [(0, head)]):
            if before is not None:
                first, rows = before
                for name in rows.keys() & head.keys():
                    rows[name] = np.concatenate([rows[name], after[name][:1]])
                memory.replay.put_rows(first, rows)
            before = start, after
        own = {name: a for name, a in arrays.items() if not name.startswith(HEAD)}
        memory.load_state(own, state["memory"])

    def prune(self, checkpoints_dir: Path) -> None:
        """Delete segments that no checkpoint lists."""
        segments.prune_segments(self.directory, segments.referenced(checkpoints_dir))


# -- what a training is built from --------------------------------------------------------------


def configured_observers(config: Config) -> list[Observer]:
    """Build the observers named in `config.observers`, and the recorder of videos."""
    built: list[Observer] = []
    for name in config.observers:
        try:
            built.append(observers.get(name)())
        except Exception as error:
            raise ConfigError(
                f"observers: {name} could not be built, {type(error).__name__}: {error}. The "
                "class of an observer is called without arguments."
            ) from error
    return [*built, VideoRecorder(config.video)]


def check_rollout_fits(config: Config, observation_space: Any, action_space: Any) -> None:
    """ConfigError if the rollout of a config does not fit into memory. Checked before the networks
    are built, which for very large observations takes minutes."""
    rows = config.rollout_rows
    estimate = Rollout.estimate_bytes(
        rows, config.n_envs, observation_space, action_kind(action_space)
    )
    # The update copies the valid rows, so they exist twice for a while.
    check_fits(
        2 * estimate,
        available_memory_bytes(),
        f"{config.env_id}: the rollout of {rows:,} rows and {config.n_envs:,} envs",
        "Reduce n_steps or n_envs, or make the observations smaller (resize_obs, obs_keys).",
    )
