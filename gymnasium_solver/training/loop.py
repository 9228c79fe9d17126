"""The training loop: collect, learn, evaluate, save, until a stop condition is met.

    run = train(load_config("CartPole-v1:ppo"), runs_root=Path("runs"))
    run = resume("@last", runs_root=Path("runs"))

An epoch is `n_steps` rows of the envs and the updates on them: one rollout and its update, or many
short ones for algorithms with a replay buffer. All cadences are in epochs, all clocks in env steps.
A run that is killed and resumed produces the same weights, bit for bit, as an uninterrupted one:
the checkpoint holds everything that the loop depends on.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gymnasium_solver.config.code import code_named
from gymnasium_solver.config.load import config_dict, dump_config
from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import training_env
from gymnasium_solver.envs.treatment import treatment_of
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import DivergedError, EnvError, RunError, WriteError, details_of
from gymnasium_solver.runs import query
from gymnasium_solver.runs.checkpoint import (
    BEST,
    LAST,
    LoadedCheckpoint,
    find_checkpoint,
    list_checkpoints,
    load_checkpoint,
    point_to,
    prune,
    save_checkpoint,
    set_metrics,
)
from gymnasium_solver.runs.edits import rewind_edits, rewound
from gymnasium_solver.runs.report import write_report
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.runs.run import Run
from gymnasium_solver.spaces.json_form import space_to_json
from gymnasium_solver.timing import Timer
from gymnasium_solver.training.activity import Activity
from gymnasium_solver.training.agents import build_agent, transfer_weights
from gymnasium_solver.training.alerting import Alerts
from gymnasium_solver.training.async_eval import BackgroundEvaluator, check_async
from gymnasium_solver.training.cadence import checkpoint_cadence, eval_cadence
from gymnasium_solver.training.collect import EPISODE_WINDOW, Collector, boundary_steps
from gymnasium_solver.training.details import RolloutDetails, detail_epochs, is_detailed
from gymnasium_solver.training.evaluator import Evaluator
from gymnasium_solver.training.finite import (
    check_metrics,
    check_rollout,
    check_weights,
    dump_rollout,
)
from gymnasium_solver.training.fits import (
    check_agent,
    check_collector,
    check_journal,
    fitting,
    load_progress,
)
from gymnasium_solver.training.interventions import watch_row
from gymnasium_solver.training.live import LiveEdits, check_interventions
from gymnasium_solver.training.memory import check_rollout_fits
from gymnasium_solver.training.observer import Control, EvalResult, Observer, TrainInfo
from gymnasium_solver.training.observers import Observers, configured_observers
from gymnasium_solver.training.plan import Goal, Plan, goals_behind
from gymnasium_solver.training.prepare import changed_from_shipped, load_config
from gymnasium_solver.training.profile import (
    collect_seconds,
    share_seconds,
    table,
    write_trace,
)
from gymnasium_solver.training.progress import (
    EpochStart,
    Means,
    Progress,
    epoch_row,
    timing,
    validation_row,
)
from gymnasium_solver.training.replay_log import ReplayLog
from gymnasium_solver.training.scales import settle_scales
from gymnasium_solver.training.seeds import draw_seed, stage_seed
from gymnasium_solver.training.signals import Terminated, stop_on_signals
from gymnasium_solver.training.threads import limited_threads, pick_threads
from gymnasium_solver.training.videos import can_record

REPLAY = "replay"  # folder in a run
LONG_JOURNAL = 100_000  # env steps; replaying them takes a minute in slow envs


def train(
    config: Config,
    *,
    runs_root: Path,
    command: list[str] | None = None,
    observers: Sequence[Observer] = (),
    timer: Timer | None = None,
    name: str | None = None,
) -> Run:
    """Train from scratch in a new run folder, called `name` if given.

    The observers of the config are called after `observers`. `timer`: use this timer and report its
    table, as `profile: true` does.
    """
    if config.seed is None:
        config = config.replace(seed=draw_seed())
    source = None
    if config.init_from_run:
        source = query.get_config(resolve_checkpoint(config.init_from_run, runs_root).run)
    config, notes = settle_scales(config, source)
    with _trainer(config, observers, timer) as trainer:
        trainer.notes += notes
        if config.init_from_run:
            trainer.notes.append(transfer_weights(trainer.agent, config.init_from_run, runs_root))
        identity = {
            **{name: getattr(config, name) for name in ("env_id", "algo_id", "variant", "seed")},
            "reward_threshold": trainer.plan.threshold,
            "max_env_steps": config.max_env_steps,
            "changed": changed_from_shipped(config),
        }
        run = Run.create(dump_config(config), identity, runs_root, command, name, _code(config))
        with run.lock():
            return trainer.run_to_end(run)


def resume(
    ref: str,
    *,
    runs_root: Path,
    overrides: Mapping[str, Any] | None = None,
    command: list[str] | None = None,
    observers: Sequence[Observer] = (),
    trust: bool = False,
) -> Run:
    """Continue from a run's last checkpoint (or the one named by `ref`), in the same folder.

    A run that was killed after training, during the final test, is completed: it is tested and gets
    its status and report. A run that ended because it reached its goal trains on to its budget.
    `trust`: also import code that the config of a run made elsewhere names.
    """
    found = resolve_checkpoint(ref, runs_root, default=LAST)
    run = found.run
    with run.lock():
        checkpoint = load_checkpoint(found.path)
        changed = dict(overrides or {})
        is_last = not any(
            c.env_steps > checkpoint.env_steps for c in list_checkpoints(found.run.checkpoints_dir)
        )
        edits = rewound(run, checkpoint.env_steps, is_last, changed)
        config = load_config(
            str(run.config_path), overrides={**edits.undone, **changed}, trust=trust
        )
        goals = goals_behind(config, run.meta(), changed)
        config, notes = settle_scales(config.replace(**dict.fromkeys(goals, False)))
        with _trainer(config, observers) as trainer:
            trainer.notes += notes
            if goals:
                trainer.notes.append(
                    "the run reached its goal before, so it now trains on to its budget "
                    f"({', '.join(f'{name}: false' for name in goals)})"
                )
            # Nothing in the folder changes before everything is loaded and checked.
            trainer.load_state(run, checkpoint)
            over = trainer.training_is_over(run, is_changed=bool(overrides))
            if over is None:
                trainer.restore_envs(checkpoint)
            run.begin_resume(checkpoint.env_steps, command, _code(config))
            changed |= dict.fromkeys(goals, False)
            if changed or edits.undone:
                run.write_config(dump_config(config))
            rewind_edits(run, edits)
            if changed:
                run.log_event("config", env_steps=checkpoint.env_steps, changed=changed)
            return trainer.run_to_end(run, resumed_from=checkpoint.env_steps, over=over)


def _code(config: Config) -> list[str]:
    return code_named(config_dict(config))


@contextmanager
def _trainer(
    config: Config, observers: Sequence[Observer], timer: Timer | None = None
) -> Iterator["Trainer"]:
    everyone = Observers([*observers, *configured_observers(config)])
    env = training_env(config)
    # Limit threads before initialising weights: the rounding of the initialisation depends on it.
    with limited_threads(pick_threads(config, env.observation_space)):
        trainer = Trainer(config, env, everyone, timer)
        try:
            yield trainer
        finally:
            trainer.close()


class Trainer:
    """The components of one run and the loop over them."""

    def __init__(
        self,
        config: Config,
        env: VectorEnv,
        observer: Observer,
        timer: Timer | None = None,
    ):
        """`env`: the training environment; the trainer closes it."""
        self.observer = observer
        self.timer = timer or Timer(detailed=config.profile)
        self.activity = Activity(self.timer)
        self.activity.epoch_size = config.n_envs * config.n_steps
        self.control = Control(self.activity)
        self.control.can_record_video = can_record(config)
        self.run: Run
        self.progress = Progress()
        self.notes: list[str] = []
        self.stop_detail: str | None = None
        self._is_over = False
        self.beside: BackgroundEvaluator | None = None  # once there is a run, for eval_async
        self._submits = False
        self.replay_log: ReplayLog | None = None
        check_interventions(config)
        check_rollout_fits(config, env.observation_space, env.action_space)
        if config.eval_async:
            check_async(config)
        self.alerts: Alerts | None = None  # once there is a run
        self.agent = build_agent(config, env.observation_space, env.action_space)
        self._update_mode = self.agent.update_mode  # as the user knows it
        self.agent.use_goals(env.goal_functions)
        self.agent.start_training()
        self.collector = Collector(
            JournaledEnv(env),
            self.agent.policy,
            config.rollout_rows,
            stage_seed(config, "train"),
            boundary_steps(config, env.spec),
            None if self.agent.has_replay else self.agent.device,
        )
        self.agent.timer = self.collector.timer = self.timer
        self.collector.activity = self.activity
        self.evaluator = Evaluator(config, env.spec, self.activity)
        self.edits: LiveEdits | None = None  # once there is a run
        self.follow(config)

    def follow(self, config: Config) -> None:
        """Plan by this config from now on: at the start, and after a live edit."""
        self.config = config
        spec = self.collector.env.spec
        self.plan = Plan(config, spec.reward_threshold)
        self.evaluator.follow(config, spec)
        self.should_eval = eval_cadence(config, self.plan.planned_epochs)
        self.should_checkpoint = checkpoint_cadence(config.checkpoint_freq_epochs)
        self.details_freq = detail_epochs(config)

    # -- the loop ---------------------------------------------------------------------------

    def run_to_end(self, run: Run, resumed_from: int | None = None, over: str | None = None) -> Run:
        """Train, unless training already ended for the reason `over`; then test and write the
        report."""
        self.run = run
        try:
            self._announce(resumed_from)
            if over is None and self.config.eval_async:
                self.beside = BackgroundEvaluator(run)
                self._submit_pending()
            if over is None:
                with stop_on_signals(self.activity):
                    over = self._loop()
            self._finish(over)
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            if self.timer.detailed:
                self._report_profile()
            run.close()
        return run

    def _loop(self) -> str:
        p, started = self.progress, self.activity.clock_s() - self.progress.wall_s
        p.over = p.passed_test = None
        self.edits = LiveEdits(self, self.run)
        while True:
            self.edits.make_due()
            start = self._clocks()
            p.epoch += 1
            self.activity.begin_epoch(p.epoch)
            metrics = self._collect_and_learn()

            stop_reason = self.plan.budget_spent(p)
            train_goal = self.plan.train_goal_reached(p, self.collector)
            is_due = self.should_eval(p.epoch, start.env_steps, p.env_steps)
            is_due = is_due or stop_reason is not None or train_goal is not None
            is_due = self.control.take_evaluation() or (is_due and self.plan.evaluates)
            result = None
            if is_due and self.beside is not None:
                goal_reason = self._take_pending()
                is_last = bool(stop_reason or goal_reason or train_goal)
                stop_reason = stop_reason or goal_reason
                self._submits = not is_last  # once this epoch is logged
            if is_due and not self._submits and p.passed_test is None:
                result = self._evaluate()
            is_best = result is not None and p.note_score(result)
            if not stop_reason:
                stop_reason = self._goal_reached(result, train_goal)
            if p.passed_test and result is not None:  # the tested checkpoint was selected
                p.choose(result)
                is_best = True
            p.over = stop_reason

            p.wall_s = self.activity.clock_s() - started
            row = epoch_row(p, start, self.collector, metrics, result)
            seconds = share_seconds(self.timer)
            row |= timing(p, start, self._clocks(), self.plan.share_done(p), seconds)
            with self.timer.section("log"):
                self.run.log_metrics(row)
                watch_row(self.config, p.interventions, row)
                self.observer.on_epoch(row)
                if self.alerts is not None:
                    self.alerts.see(row)
            if result is not None:
                self.observer.on_eval(result, is_best)
            stop_reason = self._asked_to_stop(stop_reason)
            is_asked = self.control.take_checkpoint()
            if self._submits:
                p.pending_eval = {"env_steps": p.env_steps, "epoch": p.epoch}
                is_asked = True
            if is_best or stop_reason or self.should_checkpoint(p.epoch) or is_asked:
                kind = "best" if is_best else "last" if stop_reason else "periodic"
                with self.timer.section("checkpoint"):
                    self._save(kind, result)
            if self._submits:
                self._submits = False
                self._submit_pending()
            if stop_reason:
                return stop_reason

    def _clocks(self) -> EpochStart:
        p, episodes = self.progress, self.collector.n_episodes
        collect_s = collect_seconds(self.timer)
        return EpochStart(self.activity.clock_s(), p.env_steps, p.vec_steps, episodes, collect_s)

    def _asked_to_stop(self, over: str | None) -> str | None:
        """`over`, the reason why training ended by itself, or a stop that can be resumed: requested
        by a signal or an observer. A signal does not wait for the final test either; a resume makes
        it."""
        if self.activity.stop_signal is not None and (over is None or self.plan.tests):
            self.stop_detail = self.activity.stop_signal
            self.observer.on_message("warning", f"{self.stop_detail}: saving, then stopping")
            return "interrupted"
        if over is None and self.control.stop_reason is not None:
            self.stop_detail = self.control.stop_reason
            return "requested"
        return over

    def _collect_and_learn(self) -> dict[str, float]:
        """One epoch. If anything in it is not finite, the weights are restored."""
        p, agent, means = self.progress, self.agent, Means()
        snapshot = agent.snapshot() if self.config.check_finite else None
        rows_left = self.config.n_steps
        agent.wants_details = is_detailed(p.epoch, self.details_freq)
        details = self._new_details() if agent.wants_details else None
        rollout = None
        if agent.has_replay:  # collecting and learning take turns within milliseconds
            self.activity.begin("training")
        try:
            while rows_left > 0 and not self.plan.steps_spent(p):
                n_rows = min(rows_left, self.config.rollout_rows)
                rows_left -= n_rows
                # Schedules use the same clock for the rollout and its update; otherwise the last
                # update of a linear schedule would have a learning rate of 0.
                clock = p.env_steps, self.plan.total_steps
                agent.set_clock(*clock)
                agent.before_rollout(*clock)
                rollout = self._collect(n_rows)
                if details is not None:
                    details.add(rollout)
                if not agent.has_replay:
                    self.activity.begin("learning")
                with self.timer.section("update"):
                    means.add({**agent.update(rollout, *clock), **agent.side_metrics(rollout)})
            metrics = means.values() | ({} if details is None else details.metrics())
            metrics["cnt/total_updates"] = agent.n_updates
            if snapshot is not None:
                check_metrics(metrics)
                check_weights(agent.learnt_weights())
        except DivergedError:
            if snapshot is not None:
                agent.restore(snapshot)
            if rollout is not None:
                self._dump(rollout)
            raise
        self._report_update_mode()
        return metrics

    def _new_details(self) -> RolloutDetails:
        cfg, env = self.config, self.collector.env
        n_rollouts = -(-cfg.n_steps // cfg.rollout_rows)
        return RolloutDetails(env.observation_space, self.agent.policy.actions, n_rollouts)

    def _report_update_mode(self) -> None:
        """Whether a loss can be recorded is known after its first update: correct the header."""
        if self.agent.update_mode != self._update_mode:
            self._update_mode = self.agent.update_mode
            self.observer.on_message("info", f"updates run in {self._update_mode}")

    def _collect(self, n_rows: int) -> Rollout:
        p = self.progress
        if not self.agent.has_replay:
            self.activity.begin("collecting")
        try:
            with self.timer.section("store"):  # the collector times acting and stepping separately
                rollout = self.collector.collect(
                    p.env_steps, self.plan.steps_left(p), n_rows, self.agent.n_updates
                )
        except EnvError:
            # NaN inputs or weights produce NaN actions, which the environments reject: report where
            # the NaN came from.
            p.env_steps += self.collector.unfinished.env_steps
            self._check_data(self.collector.unfinished)
            if self.config.check_finite:
                check_weights(self.agent.learnt_weights())
            raise
        p.env_steps += rollout.env_steps
        p.vec_steps += len(rollout.valid)
        p.rollouts += 1
        self.activity.count(p.env_steps)
        self._check_data(rollout)
        return rollout

    def _check_data(self, rollout: Rollout) -> None:
        if self.config.check_finite:
            try:
                check_rollout(rollout, self.config.env_id)
            except DivergedError:
                self._dump(rollout)
                raise

    def _evaluate(self) -> EvalResult:
        p = self.progress
        with self.timer.section("eval"):
            result = self.evaluator.validate(self.agent.policy, p.env_steps, p.epoch)
            self.run.log_event("eval", stage="val", **result.to_dict())
        return result

    def _submit_pending(self) -> None:
        """Let the other process evaluate the checkpoint of the pending evaluation."""
        pending, directory = self.progress.pending_eval, self.run.checkpoints_dir
        if pending is None or self.beside is None:
            return
        path = find_checkpoint(directory, pending["env_steps"])
        if path is None:  # a resume from an older checkpoint, whose neighbour was pruned
            self.progress.pending_eval = None
            return
        self.beside.submit(path, pending["env_steps"], pending["epoch"])

    def _take_pending(self) -> str | None:
        """Wait for the pending evaluation and log it at its own env steps; the stop reason if it
        reached the goal."""
        p, pending, directory = self.progress, self.progress.pending_eval, self.run.checkpoints_dir
        if pending is None or self.beside is None:
            return None
        self.activity.begin_evaluation("evaluating", self.config.eval_episodes)
        with self.timer.section("eval"):
            result = self.beside.result()
        p.pending_eval = None
        is_best = p.note_score(result)
        late = {"logged_at": p.env_steps}
        self.run.log_event("eval", stage="val", **late, **result.to_dict())
        clock = {"env_steps": result.env_steps, "epoch": result.epoch, "wall_s": p.wall_s}
        row = clock | late | validation_row(p, result)
        self.run.log_metrics(row)
        watch_row(self.config, p.interventions, row)
        scores = {"score": result.mean, "eval": result.to_dict()}
        path = set_metrics(directory, result.env_steps, scores)
        if path is not None and is_best:
            point_to(directory, BEST, result.env_steps)
        self.observer.on_eval(result, is_best)
        if path is None:
            return None
        self.observer.on_checkpoint(path, "best" if is_best else "periodic")
        goal = self.plan.eval_goal_reached(result)
        if goal is None or not goal.needs_test:
            return None if goal is None else goal.reason
        self.beside.submit(path, result.env_steps, result.epoch, kind="test")
        if not self._judge(self.beside.result()):
            return None
        p.choose(result)
        point_to(directory, BEST, result.env_steps)
        return goal.reason

    def _goal_reached(self, result: EvalResult | None, train_goal: Goal | None) -> str | None:
        """The stop reason if a goal is reached and, where required, confirmed by a test."""
        goals = [goal for goal in (self.plan.eval_goal_reached(result), train_goal) if goal]
        untested = [goal for goal in goals if not goal.needs_test]
        if untested:
            return untested[0].reason
        return goals[0].reason if goals and self._passes_test() else None

    def _passes_test(self) -> bool:
        """Whether the current policy passes a held-out test, on episodes used by no other test."""
        p = self.progress
        with self.timer.section("eval"):
            result = self.evaluator.test(
                self.agent.policy,
                greedy=self.config.eval_deterministic,
                clock=p.env_steps,
                env_steps=p.env_steps,
                epoch=p.epoch,
            )
        return self._judge(result)

    def _judge(self, result: EvalResult) -> bool:
        """Record a held-out test during training, and whether it passed."""
        p = self.progress
        required = self.plan.required_mean(result, p.failed_tests)
        self.observer.on_test(result, required)
        if result.mean >= required:
            p.passed_test = result.to_dict()  # logged with the final tests
        else:
            p.failed_tests += 1
            p.next_train_test = self.collector.n_episodes + EPISODE_WINDOW
            self.run.log_event("eval", stage="failed_test", **result.to_dict())
        return p.passed_test is not None

    # -- state ------------------------------------------------------------------------------

    def load_state(self, run: Run, checkpoint: LoadedCheckpoint) -> None:
        path, tensors, state = checkpoint.path, checkpoint.tensors, checkpoint.state
        self.progress = load_progress(state, checkpoint.env_steps, path)
        check_agent(self.agent, tensors, state.get("agent"), path)
        check_collector(self.collector.state(with_env=False)[1], state.get("collector"), path)
        with fitting(path):
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

    def training_is_over(self, run: Run, is_changed: bool) -> str | None:
        """Why the loaded run needs no more training although it is not finished; None to continue.

        Raises RunError if it is finished and has no budget left.
        """
        p, spent = self.progress, self.plan.budget_spent(self.progress)
        is_finished = run.meta().get("status") == "finished" and run.report_path.exists()
        if spent and is_finished:
            raise RunError(
                f"{run.id} has used up its budget, {spent} (it is at {p.env_steps:,} env steps, "
                f"epoch {p.epoch}). Give it more, e.g. --max-env-steps {2 * p.env_steps}."
            )
        return None if is_finished else spent or (None if is_changed else p.over)

    def restore_envs(self, checkpoint: LoadedCheckpoint) -> None:
        """Restore the training environments to their state at the checkpoint."""
        env_steps, state = self.progress.env_steps, checkpoint.state["collector"]
        try:
            if not state["journal"]:
                self.collector.restart_envs(env_steps)
                return
            arrays = checkpoint.tensors.get("env", {})
            check_journal(arrays, checkpoint.path)
            n_steps = len(arrays["actions"]) * self.config.n_envs
            if n_steps >= LONG_JOURNAL:
                text = f"Replaying {n_steps:,} env steps to restore the environments' state."
                self.observer.on_message("info", text)
            with fitting(checkpoint.path):
                self.collector.restore_envs(arrays, state)
        except EnvError as error:
            self.notes.append(
                f"{error} New episodes are started instead, so this is not an exact resume."
            )
            self.collector.restart_envs(env_steps)

    def _announce(self, resumed_from: int | None) -> None:
        info = TrainInfo(
            env_spec=self.collector.env.spec,
            n_parameters=sum(p.numel() for p in self.agent.net.parameters()),
            device=str(self.agent.device),
            update_mode=self._update_mode,
            threshold=self.plan.threshold,
            planned_epochs=self.plan.planned_epochs,
            test_episodes=self.evaluator.test_episodes if self.plan.tests else None,
            resumed_from=resumed_from,
            wall_s=self.progress.wall_s,
            notes=[
                *self.config.notices(),
                *self.collector.env.spec.notes,
                *self.agent.notes,
                *self.notes,
            ],
            control=self.control,
            activity=self.activity,
        )
        self.run.update_meta(
            status="running",
            engine=info.env_spec.engine,
            max_episode_steps=info.env_spec.max_episode_steps,
            action_space=space_to_json(self.collector.env.action_space),
            **({"protocol": info.env_spec.protocol} if info.env_spec.protocol else {}),
            device=info.device,
            treatment=treatment_of(self.collector.env.env, self.config).to_json(),
            threshold=self.plan.threshold,
            test_episodes=info.test_episodes,
            max_env_steps=self.config.max_env_steps,
        )
        self.observer.on_start(self.run, self.config, info)
        self.alerts = Alerts(self.run, self.observer)

    def _update_meta(self, **fields: Any) -> None:
        p = self.progress
        self.run.update_meta(
            env_steps=p.env_steps,
            epoch=p.epoch,
            episodes=self.collector.n_episodes,
            wall_s=p.wall_s,
            best=p.best,
            last_eval=p.last_eval,
            **{"test": None, "solved": self.plan.solved(None), **fields},
        )

    def _save(self, kind: str, result: EvalResult | None = None, with_env: bool = True) -> None:
        p, directory = self.progress, self.run.checkpoints_dir
        self.activity.begin("saving")
        agent_tensors, agent_extra = self.agent.state()
        env_arrays, collector_state = self.collector.state(with_env)
        tensors: dict[str, dict[str, Any]] = {**agent_tensors, "env": env_arrays}
        state = {"progress": asdict(p), "agent": agent_extra, "collector": collector_state}
        if self.agent.saves_replay and self.agent.memory is not None:
            self.replay_log = self.replay_log or ReplayLog(self.run.path / REPLAY)
            tensors["replay"], state["replay"] = self.replay_log.save(self.agent.memory)
        path = save_checkpoint(
            directory,
            p.env_steps,
            tensors,
            state,
            {} if result is None else {"score": result.mean, "eval": result.to_dict()},
            best=kind == "best",
        )
        self.activity.saved_steps = p.env_steps
        pending = p.pending_eval or {}
        prune(directory, self.config.keep_checkpoints, pending.get("env_steps"))
        if self.replay_log is not None:
            self.replay_log.prune(directory)
        self.run.log_event("checkpoint", env_steps=p.env_steps, epoch=p.epoch, reason=kind)
        self._update_meta()
        self.observer.on_checkpoint(path, kind)

    # -- end of the run ---------------------------------------------------------------------

    def _finish(self, stop_reason: str) -> None:
        """Test the selected checkpoint, then write the verdict and the report.

        The status stays "running" until then, so a run that is killed here is completed by a
        resume.
        """
        self._is_over = True
        status = "interrupted" if stop_reason in ("interrupted", "requested") else "finished"
        final: dict[str, EvalResult] = {}
        if status == "finished" and self.plan.tests:
            with self.timer.section("eval"):
                final = self._final_test()
        test = final.get("greedy" if self.config.eval_deterministic else "sampled")
        self._update_meta(
            status=status,
            stop_reason=stop_reason,
            stop_detail=self.stop_detail,
            test=None if test is None else test.score(),
            solved=self.plan.solved(test),
        )
        write_report(self.run.path)
        self.activity.begin("over")
        self.observer.on_end(query.get_run(self.run), final)

    def _final_test(self) -> dict[str, EvalResult]:
        """Test the selected checkpoint on held-out episodes, greedy and sampled.

        This is the best checkpoint by validation, or the last one if nothing was evaluated. A test
        that ended training is not repeated.
        """
        p = self.progress
        chosen = load_checkpoint(resolve_checkpoint(self.run, self.run.path.parent).path)
        self.agent.load_weights(chosen.tensors["model"])
        self.agent.policy.load_state(chosen.state["agent"]["policy"])  # as it explored then
        passed = EvalResult.from_dict(p.passed_test) if p.passed_test else None
        results = {}
        for name, greedy in (("greedy", True), ("sampled", False)):
            if passed is not None and passed.greedy == greedy:
                results[name] = passed
            else:
                results[name] = self.evaluator.test(
                    self.agent.policy,
                    greedy=greedy,
                    clock=p.env_steps,
                    env_steps=chosen.env_steps,
                    epoch=chosen.state["progress"]["epoch"],
                )
            self.run.log_event("eval", stage="test", **results[name].to_dict())
        return results

    def _fail(self, error: BaseException) -> None:
        """Leave a folder that records the error and can be resumed, as far as it can be written."""
        if details := details_of(error):
            self.run.log_text(f"{error}\n\n{details}")
        try:
            if isinstance(error, DivergedError) and not self._is_over:
                self._save("last", with_env=False)
                self.run.log_event("diverged", env_steps=self.progress.env_steps, text=str(error))
                if self.alerts is not None:
                    self.alerts.diverged(str(error), self.progress.env_steps)
            self._record_failure(error)
        except WriteError as problem:
            if not isinstance(error, WriteError):
                self.observer.on_message("warning", f"how the run ended is not saved: {problem}")

    def _record_failure(self, error: BaseException) -> None:
        is_signal = isinstance(error, KeyboardInterrupt)
        reason = "diverged" if isinstance(error, DivergedError) else "error"
        if is_signal:
            self.stop_detail = "SIGTERM" if isinstance(error, Terminated) else "SIGINT"
        elif reason == "error":
            self.stop_detail = (str(error) or type(error).__name__).partition("\n")[0]
        self._update_meta(
            status="interrupted" if is_signal else "failed",
            stop_reason="interrupted" if is_signal else reason,
            stop_detail=self.stop_detail,
            error=str(error) or type(error).__name__,
        )

    def _dump(self, rollout: Rollout) -> None:
        """Save a rollout that holds a NaN, to find its cause."""
        try:
            dump_rollout(rollout, self.run.path)
        except OSError as error:
            text = f"the rollout cannot be saved to {self.run.path}: {error.strerror}"
            self.observer.on_message("warning", text)

    def _report_profile(self) -> None:
        self.timer.charge()
        try:
            trace = write_trace(self.timer, self.run.path)
        except OSError as error:
            text = f"the trace cannot be written to {self.run.path}: {error.strerror}"
            self.observer.on_message("warning", text)
        else:
            self.observer.on_profile(table(self.timer), trace)

    def close(self) -> None:
        if self.beside is not None:
            self.beside.close()
        self.collector.env.close()
        self.evaluator.close()
