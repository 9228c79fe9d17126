"""Checkpoints of a training: what is saved, and how a resume restores it.

The checkpoint holds everything that the loop depends on, so that a resumed run produces the same
weights, bit for bit, as an uninterrupted one.
"""

from dataclasses import asdict
from typing import Any

from gymnasium_solver.errors import EnvError, RunError
from gymnasium_solver.runs.checkpoint import LoadedCheckpoint, prune, save_checkpoint
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.fits import (
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
    if trainer.stages is not None and not trainer.stages.resume(trainer):
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
