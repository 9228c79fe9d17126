"""The training loop: collect, learn, evaluate, save, until a stop condition is met.

    run = train(load_config("CartPole-v1:ppo"), runs_root=Path("runs"))
    run = resume("@last", runs_root=Path("runs"))

An epoch is `n_steps` rows of the envs and the updates on them: one rollout and its update, or many
short ones for algorithms with a replay buffer. All cadences are in epochs, all clocks in env steps.
A run that is killed and resumed produces the same weights, bit for bit, as an uninterrupted one:
the checkpoint holds everything that the loop depends on.

The functions read from top to bottom: a run, its epochs, one epoch. They share the components in
`Trainer` (trainer.py), which also saves and restores them. Rollouts come from collect.py; judge.py
evaluates the policy (evaluate.py) and decides when training is over and whether it is solved.
"""

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from gymnasium_solver import processes
from gymnasium_solver.algos.replay_learner import ReplayLearner
from gymnasium_solver.config.code import code_named
from gymnasium_solver.config.load import config_dict, dump_config
from gymnasium_solver.config.schema import Config
from gymnasium_solver.data.device_rollout import DeviceRollout
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.make import training_env
from gymnasium_solver.errors import DivergedError, EnvError, RunError
from gymnasium_solver.fast.stacked import Gradients, Inferences
from gymnasium_solver.fast.stacked_descent import Descents
from gymnasium_solver.lanes import Lane, Lanes, Program, current_lane
from gymnasium_solver.runs import checkpoint as checkpoints
from gymnasium_solver.runs import query
from gymnasium_solver.runs.edits import rewind_edits, rewound
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.runs.run import Run
from gymnasium_solver.timing import Timer
from gymnasium_solver.training import epoch_metrics, finite, threads
from gymnasium_solver.training.activity import Terminated, signals_handled, stop_on_signals
from gymnasium_solver.training.agents import transfer_weights
from gymnasium_solver.training.evaluate import BackgroundEvaluator
from gymnasium_solver.training.judge import Judged, finish, judge_epoch, submit_pending
from gymnasium_solver.training.live import LiveEdits, check_interventions, watch_row
from gymnasium_solver.training.observer import Observer, Observers
from gymnasium_solver.training.prepare import changed_from_shipped, load_config, settle_scales
from gymnasium_solver.training.profile import report_profile, share_seconds
from gymnasium_solver.training.progress import goals_behind
from gymnasium_solver.training.seeds import draw_seed
from gymnasium_solver.training.several import follow_first, lead
from gymnasium_solver.training.trainer import Trainer, configured_observers

HIDDEN_ENDS = (
    "the simulator gives no final observations (info has no final_observation): truncated episodes "
    "bootstrap from the observation one step before their end"
)


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
    table, as `profile: true` does."""
    _check_first()
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
            return run_to_end(trainer, run)


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
    `trust`: also import code that the config of a run made elsewhere names."""
    _check_first()
    found = resolve_checkpoint(ref, runs_root, default=checkpoints.LAST)
    run = found.run
    with run.lock():
        checkpoint = checkpoints.load_checkpoint(found.path)
        changed = dict(overrides or {})
        saved = checkpoints.list_checkpoints(run.checkpoints_dir)
        is_last = not any(other.env_steps > checkpoint.env_steps for other in saved)
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
            trainer.load(run, checkpoint)
            over = training_is_over(trainer, run, is_changed=bool(overrides))
            if over is None:
                trainer.restore_envs(checkpoint)
            run.begin_resume(checkpoint.env_steps, command, _code(config))
            changed |= dict.fromkeys(goals, False)
            if changed or edits.undone:
                run.write_config(dump_config(config))
            rewind_edits(run, edits)
            if changed:
                run.log_event("config", env_steps=checkpoint.env_steps, changed=changed)
            return run_to_end(trainer, run, checkpoint, over=over)


def _check_first() -> None:
    if processes.is_follower():
        raise RunError(
            "torchrun started several processes, which cannot train from Python together: use "
            "torchrun ... -m gymnasium_solver train"
        )


def follow() -> Run | None:
    """Take part in the training of the first of several processes (training/several.py)."""
    return follow_first(_trainer, collect_and_learn)


def training_is_over(trainer: Trainer, run: Run, is_changed: bool) -> str | None:
    """Why the loaded run needs no more training although it is not finished; None to continue.

    Raises RunError if it is finished and has no budget left."""
    p, spent = trainer.progress, trainer.plan.budget_spent(trainer.progress)
    is_finished = run.meta().get("status") == "finished" and run.report_path.exists()
    if spent and is_finished:
        raise RunError(
            f"{run.id} has used up its budget, {spent} (it is at {p.env_steps:,} env steps, "
            f"epoch {p.epoch}). Give it more, e.g. --max-env-steps {2 * p.env_steps}."
        )
    return None if is_finished else spent or (None if is_changed else p.over)


def _code(config: Config) -> list[str]:
    return code_named(config_dict(config))


@contextmanager
def _trainer(
    config: Config, observers: Sequence[Observer], timer: Timer | None = None
) -> Iterator[Trainer]:
    check_interventions(config)
    with processes.joined(), _built(config, observers, timer) as trainer:
        yield trainer


@contextmanager
def _built(
    config: Config, observers: Sequence[Observer], timer: Timer | None = None
) -> Iterator[Trainer]:
    everyone = Observers([*observers, *configured_observers(config)])
    env = training_env(processes.share_of(config))
    # Limit threads before initialising weights: the rounding of the initialisation depends on it.
    n_threads = threads.pick_threads(config, env.observation_space)
    n_compiled = threads.pick_compiled_threads(config, n_threads)
    with threads.limited_threads(n_threads, n_compiled), threads.gpu_arithmetic(config.perf):
        trainer = Trainer(config, env, everyone, timer)
        try:
            yield trainer
        finally:
            trainer.close()


def run_to_end(
    trainer: Trainer,
    run: Run,
    checkpoint: checkpoints.LoadedCheckpoint | None = None,
    over: str | None = None,
) -> Run:
    """Train, from a checkpoint that is loaded, unless training already ended for the reason `over`;
    then test and write the report."""
    trainer.run = run
    trainer.activity.teller = run.tell_activity
    try:
        trainer.announce(None if checkpoint is None else checkpoint.env_steps)
        if over is None and trainer.config.eval_async:
            trainer.background = BackgroundEvaluator(run)
            submit_pending(trainer)
        if over is None:
            lead(trainer, checkpoint)
            with stop_on_signals(trainer.activity), threads.old_objects_left_out():
                over = _loop(trainer)
        trainer.operators.stop()
        finish(trainer, over)
    except BaseException as error:
        trainer.fail(error)
        raise
    finally:
        trainer.operators.stop()
        if trainer.timer.detailed:
            report_profile(trainer.timer, run.path, trainer.observer)
        run.close()
    return run


def _loop(trainer: Trainer) -> str:
    """Epoch after epoch, until there is a reason to stop."""
    p, activity = trainer.progress, trainer.activity
    began_s = activity.clock_s() - p.wall_s
    p.over = p.passed_test = None
    edits = LiveEdits(trainer, trainer.run)
    while True:
        edits.wait_while_paused()
        edits.make_due()
        if trainer.stages is not None:
            trainer.stages.make_due(p, trainer.plan.total_steps)
        start = trainer.clocks()
        p.epoch += 1
        activity.begin_epoch(p.epoch)
        began = start.env_steps if p.cut is None else p.cut["began"]
        with processes.epoch():
            metrics = collect_and_learn(trainer)
        if p.cut is not None:
            p.cut["began"] = began
            p.wall_s = activity.clock_s() - began_s
            return _leave_epoch(trainer)
        found = judge_epoch(trainer, began)
        p.wall_s = activity.clock_s() - began_s
        _log_epoch(trainer, start, metrics, found)
        if trainer.stages is not None:
            trainer.stages.decide(p, trainer.plan.total_steps)
        if found.result is not None:
            trainer.observer.on_eval(found.result, found.is_best)
        stop_reason = _asked_to_stop(trainer, found.stop_reason)
        _save_if_due(trainer, found, stop_reason)
        trainer.operators.end_epoch(trainer.run.path)
        if stop_reason:
            return stop_reason


def _log_epoch(
    trainer: Trainer, start: epoch_metrics.EpochStart, metrics: dict[str, float], found: Judged
) -> None:
    p = trainer.progress
    row = epoch_metrics.epoch_row(p, start, trainer.collector, metrics, found.result)
    if trainer.stages is not None:
        row |= trainer.stages.metrics(p)
    seconds = share_seconds(trainer.timer)
    row |= epoch_metrics.timing(p, trainer.plan, start, trainer.clocks(), seconds)
    with trainer.timer.section("log"):
        watch_row(trainer.config, p.interventions, row)
        trainer.observer.on_epoch(row)  # which may add metrics
        trainer.run.log_metrics(row)
        if trainer.alerts is not None:
            trainer.alerts.see(row)


def _asked_to_stop(trainer: Trainer, over: str | None) -> str | None:
    """`over`, the reason why training ended by itself, or a stop that can be resumed: requested
    by a signal or an observer. A signal does not wait for the final test either; a resume makes
    it."""
    if trainer.activity.stop_signal is not None and (over is None or trainer.plan.tests):
        trainer.stop_detail = trainer.activity.stop_signal
        trainer.observer.on_message("warning", f"{trainer.stop_detail}: saving, then stopping")
        return "interrupted"
    if over is None and trainer.control.stop_reason is not None:
        trainer.stop_detail = trainer.control.stop_reason
        return "requested"
    return over


def _leave_epoch(trainer: Trainer) -> str:
    """Save in the middle of an epoch; a resume takes it up there."""
    trainer.progress.epoch -= 1
    reason = _asked_to_stop(trainer, None)
    assert reason is not None
    with trainer.timer.section("checkpoint"):
        trainer.save("last")
    trainer.operators.end_epoch(trainer.run.path)
    return reason


def _save_if_due(trainer: Trainer, found: Judged, stop_reason: str | None) -> None:
    p, is_asked = trainer.progress, trainer.control.take("checkpoint")
    if found.is_submitted:
        p.pending_eval = {"env_steps": p.env_steps, "epoch": p.epoch}
        is_asked = True
    if found.is_best or stop_reason or trainer.should_checkpoint(p.epoch) or is_asked:
        kind = "best" if found.is_best else "last" if stop_reason else "periodic"
        with trainer.timer.section("checkpoint"):
            trainer.save(kind, found.result)
    if found.is_submitted:
        submit_pending(trainer)


def collect_and_learn(trainer: Trainer) -> dict[str, float]:
    """One epoch. If anything in it is not finite, the weights are restored."""
    p, agent, means = trainer.progress, trainer.agent, epoch_metrics.Means()
    snapshot = agent.snapshot() if trainer.config.check_finite else None
    rows_left = trainer.config.n_steps
    details = None
    agent.wants_details = epoch_metrics.is_detailed(p.epoch, trainer.details_freq)
    if agent.wants_details:
        n_rollouts = -(-trainer.config.n_steps // trainer.config.rollout_rows)
        space = trainer.collector.env.observation_space
        details = epoch_metrics.RolloutDetails(space, agent.policy.actions, n_rollouts)
    if agent.has_replay:  # collecting and learning take turns within milliseconds
        trainer.activity.begin("training")
    if isinstance(agent, ReplayLearner):
        agent.is_stopping = lambda: _may_leave_epoch(trainer)
    try:
        if p.cut is not None:
            rows_left = p.cut["rows"]
            means.add(_pay(trainer, p.cut["updates"], p.cut["env_steps"]))
        while rows_left > 0 and p.cut is None and not trainer.plan.steps_spent(p):
            n_rows = min(rows_left, trainer.config.rollout_rows)
            rows_left -= n_rows
            # Schedules use the same clock for the rollout and its update; otherwise the last
            # update of a linear schedule would have a learning rate of 0.
            clock = p.env_steps, trainer.plan.total_steps
            agent.set_clock(*clock)
            agent.before_rollout(*clock)
            rollout = _collect(trainer, n_rows)
            if details is not None:
                details.add(_on_host(rollout, epoch_metrics.MOST_ROWS))
            if not agent.has_replay:
                trainer.activity.begin("learning")
            with trainer.timer.section("update"):
                means.add({**agent.update(rollout, *clock), **agent.side_metrics(rollout)})
            if isinstance(agent, ReplayLearner) and agent.owed_updates:
                p.cut = {"updates": agent.owed_updates, "env_steps": clock[0], "rows": rows_left}
        metrics = means.values() | ({} if details is None else details.metrics())
        metrics["cnt/total_updates"] = agent.n_updates
        metrics |= trainer.collector.metrics()
        if snapshot is not None:
            finite.check_metrics(metrics)
            finite.check_weights(agent.learnt_weights())
    except DivergedError:
        if snapshot is not None:
            agent.restore(snapshot)
        _save_rollout(trainer)
        raise
    _report_form(trainer)
    return metrics


def _may_leave_epoch(trainer: Trainer) -> bool:
    """Whether a burst of updates is to end now. Stages and trainings side by side go on to the end
    of the epoch."""
    is_asked = trainer.activity.stop_signal is not None
    return is_asked and trainer.stages is None and current_lane() is None


def _pay(trainer: Trainer, n_updates: int, env_steps: int) -> dict[str, float]:
    """The updates that the last stop left undone."""
    p, agent, clock = trainer.progress, trainer.agent, (env_steps, trainer.plan.total_steps)
    assert isinstance(agent, ReplayLearner)
    agent.set_clock(*clock)
    with trainer.timer.section("update"):
        metrics = agent.pay_updates(n_updates, *clock)
    if agent.owed_updates:
        assert p.cut is not None
        p.cut["updates"] = agent.owed_updates
    else:
        p.cut = None
    return metrics


def _report_form(trainer: Trainer) -> None:
    """Correct the header: whether a loss can be recorded is known after its first update. And tell
    once what is known of a training on a device after a few epochs: what is no CUDA graph, and that
    final observations are hidden."""
    if trainer.agent.update_mode != trainer.update_mode:
        trainer.update_mode = trainer.agent.update_mode
        trainer.observer.on_message("info", f"updates run in {trainer.update_mode}")
    texts = {}
    for name, owner in (("rollouts", trainer.collector), ("updates", trainer.agent)):
        if (reason := getattr(owner, "uncaptured", None)) is not None:
            texts[name] = f"{name} run without a CUDA graph, several times slower: {reason}"
    if getattr(trainer.collector, "hides_ends", False):
        texts["ends"] = HIDDEN_ENDS
    for name, text in texts.items():
        if name not in trainer.told_of_device:
            trainer.told_of_device.add(name)
            trainer.observer.on_message("warning", text)


def _collect(trainer: Trainer, n_rows: int) -> Rollout | DeviceRollout:
    p = trainer.progress
    if not trainer.agent.has_replay:
        trainer.activity.begin("collecting")
    try:
        with trainer.timer.section("store"):  # the collector times acting and stepping separately
            rollout = trainer.collector.collect(
                p.env_steps, trainer.plan.steps_left(p), n_rows, trainer.agent.n_updates
            )
    except EnvError:
        # NaN inputs or weights produce NaN actions, which the environments reject: report where
        # the NaN came from.
        p.env_steps += trainer.collector.unfinished.env_steps
        _check_data(trainer, trainer.collector.unfinished)
        if trainer.config.check_finite:
            finite.check_weights(trainer.agent.learnt_weights())
        raise
    p.env_steps += rollout.env_steps
    p.vec_steps += rollout.n_rows
    p.rollouts += 1
    trainer.activity.count(p.env_steps)
    _check_data(trainer, rollout)
    return rollout


def _check_data(trainer: Trainer, rollout: Rollout | DeviceRollout) -> None:
    trainer.rollout = rollout
    if trainer.config.check_finite and isinstance(rollout, Rollout):
        # One on a device is checked there, when the epoch's numbers are read.
        finite.check_rollout(rollout, trainer.config.env_id)


def _on_host(rollout: Rollout | DeviceRollout, n_samples: int) -> Rollout:
    """The rollout, or of one on a device about this many samples."""
    return rollout if isinstance(rollout, Rollout) else rollout.on_host(n_samples)


def _save_rollout(trainer: Trainer) -> None:
    """Save the newest rollout, which holds a NaN or led to one, to find its cause."""
    if trainer.rollout is None or processes.rank():  # the first process has the folder
        return
    try:
        finite.dump_rollout(_on_host(trainer.rollout, trainer.rollout.env_steps), trainer.run.path)
    except OSError as error:
        text = f"the rollout cannot be saved to {trainer.run.path}: {error.strerror}"
        trainer.observer.on_message("warning", text)


# -- several seeds in one process ------------------------------------------------------------


def train_stacked(programs: Mapping[str, Program]) -> list[Lane]:
    """Run trainings together to their ends, each in a lane (lanes.py) of this process; the lanes
    hold their results and errors: train_stacked({"seed 1": train_one, "seed 2": train_two}).

    A lane runs the same loop as a training alone, with its own agent, environments, random streams
    and run folder. What costs most is done together for all of them: forward passes of small
    networks, gradients where that pays (fast/stacked.py), and whole updates on a GPU
    (fast/stacked_descent.py). A lane that ends leaves the others to go on.

    SIGINT and SIGTERM ask every lane to stop after its epoch; a second signal stops at once."""
    lanes = Lanes({"descent": Descents(), "gradient": Gradients(), "inference": Inferences()})

    def on_signal(number: int, frame: FrameType | None) -> None:
        error = Terminated if number == signal.SIGTERM else KeyboardInterrupt
        for lane in list(lanes.active):
            if lane.on_signal is None or not lane.on_signal(signal.Signals(number).name):
                lane.interruption = error

    with threads.limited_threads(1), signals_handled(on_signal):
        return lanes.run(programs)
