"""Checkpoints of a training: what is saved, how a resume restores it, and what a failure leaves.

The checkpoint holds everything that the loop depends on, so that a resumed run produces the same
weights, bit for bit, as an uninterrupted one.
"""

from dataclasses import asdict
from typing import Any

from gymnasium_solver.errors import DivergedError, EnvError, RunError, WriteError, details_of
from gymnasium_solver.runs.checkpoint import LoadedCheckpoint, prune, save_checkpoint
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.activity import Terminated
from gymnasium_solver.training.agents import (
    check_agent,
    check_collector,
    check_journal,
    fitting,
    load_progress,
)
from gymnasium_solver.training.observer import EvalResult
from gymnasium_solver.training.replay_log import ReplayLog
from gymnasium_solver.training.trainer import Trainer

REPLAY = "replay"  # folder in a run
LONG_JOURNAL = 100_000  # env steps; replaying them takes a minute in slow envs


def save(
    trainer: Trainer, kind: str, result: EvalResult | None = None, with_env: bool = True
) -> None:
    p, directory = trainer.progress, trainer.run.checkpoints_dir
    if trainer.alerts is not None:
        trainer.alerts.catch_up()
    trainer.activity.begin("saving")
    agent_tensors, agent_extra = trainer.agent.state()
    env_arrays, collector_state = trainer.collector.state(with_env)
    tensors: dict[str, dict[str, Any]] = {**agent_tensors, "env": env_arrays}
    state = {"progress": asdict(p), "agent": agent_extra, "collector": collector_state}
    if trainer.agent.saves_replay and trainer.agent.memory is not None:
        trainer.replay_log = trainer.replay_log or ReplayLog(trainer.run.path / REPLAY)
        tensors["replay"], state["replay"] = trainer.replay_log.save(trainer.agent.memory)
    path = save_checkpoint(
        directory,
        p.env_steps,
        tensors,
        state,
        {} if result is None else {"score": result.mean, "eval": result.to_dict()},
        best=kind == "best",
    )
    trainer.activity.saved_steps = p.env_steps
    pending = p.pending_eval or {}
    prune(directory, trainer.config.keep_checkpoints, pending.get("env_steps"))
    if trainer.replay_log is not None:
        trainer.replay_log.prune(directory)
    trainer.run.log_event("checkpoint", env_steps=p.env_steps, epoch=p.epoch, reason=kind)
    trainer.update_meta()
    trainer.observer.on_checkpoint(path, kind)


def load_state(trainer: Trainer, run: Run, checkpoint: LoadedCheckpoint) -> None:
    path, tensors, state = checkpoint.path, checkpoint.tensors, checkpoint.state
    trainer.progress = load_progress(state, checkpoint.env_steps, path)
    check_agent(trainer.agent, tensors, state.get("agent"), path)
    check_collector(trainer.collector.state(with_env=False)[1], state.get("collector"), path)
    with fitting(path):
        trainer.agent.load_state(tensors, state["agent"])
        if trainer.agent.saves_replay and "replay" in state:
            memory = trainer.agent.open_memory(state["replay"]["has_masks"])
            trainer.replay_log = ReplayLog(run.path / REPLAY)
            trainer.replay_log.load(memory, tensors["replay"], state["replay"])
        elif trainer.agent.has_replay:
            trainer.notes.append(
                "no replay buffer was loaded: it is refilled before learning continues, so "
                "this is not an exact resume"
            )
        trainer.collector.load_state(state["collector"])
    trainer.activity.count(trainer.progress.env_steps)
    trainer.activity.epoch = trainer.progress.epoch
    trainer.activity.saved_steps = trainer.progress.env_steps


def training_is_over(trainer: Trainer, run: Run, is_changed: bool) -> str | None:
    """Why the loaded run needs no more training although it is not finished; None to continue.

    Raises RunError if it is finished and has no budget left.
    """
    p, spent = trainer.progress, trainer.plan.budget_spent(trainer.progress)
    is_finished = run.meta().get("status") == "finished" and run.report_path.exists()
    if spent and is_finished:
        raise RunError(
            f"{run.id} has used up its budget, {spent} (it is at {p.env_steps:,} env steps, "
            f"epoch {p.epoch}). Give it more, e.g. --max-env-steps {2 * p.env_steps}."
        )
    return None if is_finished else spent or (None if is_changed else p.over)


def restore_envs(trainer: Trainer, checkpoint: LoadedCheckpoint) -> None:
    """Restore the training environments to their state at the checkpoint."""
    env_steps, state = trainer.progress.env_steps, checkpoint.state["collector"]
    stages = trainer.stages
    if stages is not None and not stages.resume(trainer.progress, trainer.collector):
        return
    try:
        if not state["journal"]:
            trainer.collector.restart_envs(env_steps)
            return
        arrays = checkpoint.tensors.get("env", {})
        check_journal(arrays, checkpoint.path)
        n_steps = len(arrays["actions"]) * trainer.config.n_envs
        if n_steps >= LONG_JOURNAL:
            text = f"Replaying {n_steps:,} env steps to restore the environments' state."
            trainer.observer.on_message("info", text)
        with fitting(checkpoint.path):
            trainer.collector.restore_envs(arrays, state)
    except EnvError as error:
        trainer.notes.append(
            f"{error} New episodes are started instead, so this is not an exact resume."
        )
        trainer.collector.restart_envs(env_steps)


def fail(trainer: Trainer, error: BaseException) -> None:
    """Leave a folder that records the error and can be resumed, as far as it can be written."""
    if details := details_of(error):
        trainer.run.log_text(f"{error}\n\n{details}")
    try:
        if trainer.alerts is not None:
            trainer.alerts.catch_up()
        if isinstance(error, DivergedError) and not trainer.is_over:
            save(trainer, "last", with_env=False)
            trainer.run.log_event("diverged", env_steps=trainer.progress.env_steps, text=str(error))
            if trainer.alerts is not None:
                trainer.alerts.diverged(str(error), trainer.progress.env_steps)
        _record_failure(trainer, error)
    except WriteError as problem:
        if not isinstance(error, WriteError):
            trainer.observer.on_message("warning", f"how the run ended is not saved: {problem}")


def _record_failure(trainer: Trainer, error: BaseException) -> None:
    is_signal = isinstance(error, KeyboardInterrupt)
    reason = "diverged" if isinstance(error, DivergedError) else "error"
    if is_signal:
        trainer.stop_detail = "SIGTERM" if isinstance(error, Terminated) else "SIGINT"
    elif reason == "error":
        trainer.stop_detail = (str(error) or type(error).__name__).partition("\n")[0]
    trainer.update_meta(
        status="interrupted" if is_signal else "failed",
        stop_reason="interrupted" if is_signal else reason,
        stop_detail=trainer.stop_detail,
        error=str(error) or type(error).__name__,
    )
