"""The start and the end of a run: its header, its verdict and report, and what a failure leaves."""

from gymnasium_solver.envs.treatment import treatment_of
from gymnasium_solver.errors import DivergedError, WriteError, details_of
from gymnasium_solver.runs import query
from gymnasium_solver.runs.report import write_report
from gymnasium_solver.spaces.json_form import space_to_json
from gymnasium_solver.training.alerting import Alerts, rows_together
from gymnasium_solver.training.judging import final_test
from gymnasium_solver.training.observer import EvalResult, TrainInfo
from gymnasium_solver.training.profile import table, write_trace
from gymnasium_solver.training.saving import save
from gymnasium_solver.training.signals import Terminated
from gymnasium_solver.training.trainer import Trainer


def announce(trainer: Trainer, resumed_from: int | None) -> None:
    """Write the facts of the run to meta.json and tell the observers that it starts."""
    info = TrainInfo(
        env_spec=trainer.spec,
        n_parameters=sum(p.numel() for p in trainer.agent.net.parameters()),
        device=str(trainer.agent.device),
        update_mode=trainer.update_mode,
        threshold=trainer.plan.threshold,
        planned_epochs=trainer.plan.planned_epochs,
        test_episodes=trainer.evaluator.test_episodes if trainer.plan.tests else None,
        resumed_from=resumed_from,
        wall_s=trainer.progress.wall_s,
        notes=[
            *trainer.config.notices(),
            *trainer.spec.notes,
            *trainer.agent.notes,
            *trainer.notes,
        ],
        control=trainer.control,
        activity=trainer.activity,
    )
    trainer.run.update_meta(
        status="running",
        engine=info.env_spec.engine,
        max_episode_steps=info.env_spec.max_episode_steps,
        action_space=space_to_json(trainer.collector.env.action_space),
        **({"protocol": info.env_spec.protocol} if info.env_spec.protocol else {}),
        device=info.device,
        treatment=treatment_of(trainer.collector.env.env, trainer.config).to_json(),
        threshold=trainer.plan.threshold,
        test_episodes=info.test_episodes,
        max_env_steps=trainer.config.max_env_steps,
    )
    trainer.observer.on_start(trainer.run, trainer.config, info)
    trainer.alerts = Alerts(trainer.run, trainer.observer, rows_together(trainer.config))


def finish(trainer: Trainer, stop_reason: str) -> None:
    """Test the selected checkpoint, then write the verdict and the report.

    The status stays "running" until then, so a run that is killed here is completed by a
    resume.
    """
    trainer.is_over = True
    status = "interrupted" if stop_reason in ("interrupted", "requested") else "finished"
    final: dict[str, EvalResult] = {}
    if status == "finished" and trainer.plan.tests:
        with trainer.timer.section("eval"):
            final = final_test(trainer)
    test = final.get("greedy" if trainer.config.eval_deterministic else "sampled")
    trainer.update_meta(
        status=status,
        stop_reason=stop_reason,
        stop_detail=trainer.stop_detail,
        test=None if test is None else test.score(),
        solved=trainer.plan.solved(test),
    )
    write_report(trainer.run.path)
    trainer.activity.begin("over")
    trainer.observer.on_end(query.get_run(trainer.run), final)


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


def report_profile(trainer: Trainer) -> None:
    trainer.timer.charge()
    try:
        trace = write_trace(trainer.timer, trainer.run.path)
    except OSError as error:
        text = f"the trace cannot be written to {trainer.run.path}: {error.strerror}"
        trainer.observer.on_message("warning", text)
    else:
        trainer.observer.on_profile(table(trainer.timer), trace)
