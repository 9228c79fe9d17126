"""Evaluations during training, the goals they reach, and the held-out tests that judge a run."""

from gymnasium_solver.runs.checkpoint import (
    BEST,
    find_checkpoint,
    load_checkpoint,
    point_to,
    set_metrics,
)
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.training.episodes import EPISODE_WINDOW
from gymnasium_solver.training.interventions import watch_row
from gymnasium_solver.training.observer import EvalResult
from gymnasium_solver.training.plan import Goal
from gymnasium_solver.training.progress import validation_row
from gymnasium_solver.training.trainer import Trainer


def evaluate(trainer: Trainer) -> EvalResult:
    p = trainer.progress
    with trainer.timer.section("eval"):
        result = trainer.evaluator.validate(trainer.agent.policy, p.env_steps, p.epoch)
        trainer.run.log_event("eval", stage="val", **result.to_dict())
    return result


def submit_pending(trainer: Trainer) -> None:
    """Let the other process evaluate the checkpoint of the pending evaluation."""
    pending, directory = trainer.progress.pending_eval, trainer.run.checkpoints_dir
    if pending is None or trainer.beside is None:
        return
    path = find_checkpoint(directory, pending["env_steps"])
    if path is None:  # a resume from an older checkpoint, whose neighbour was pruned
        trainer.progress.pending_eval = None
        return
    trainer.beside.submit(path, pending["env_steps"], pending["epoch"])


def take_pending(trainer: Trainer) -> str | None:
    """Wait for the pending evaluation and log it at its own env steps; the stop reason if it
    reached the goal."""
    p, directory = trainer.progress, trainer.run.checkpoints_dir
    if p.pending_eval is None or trainer.beside is None:
        return None
    trainer.activity.begin_evaluation("evaluating", trainer.config.eval_episodes)
    with trainer.timer.section("eval"):
        result = trainer.beside.result()
    p.pending_eval = None
    is_best = p.note_score(result)
    late = {"logged_at": p.env_steps}
    trainer.run.log_event("eval", stage="val", **late, **result.to_dict())
    clock = {"env_steps": result.env_steps, "epoch": result.epoch, "wall_s": p.wall_s}
    row = clock | late | validation_row(p, result)
    trainer.run.log_metrics(row)
    watch_row(trainer.config, p.interventions, row)
    scores = {"score": result.mean, "eval": result.to_dict()}
    path = set_metrics(directory, result.env_steps, scores)
    if path is not None and is_best:
        point_to(directory, BEST, result.env_steps)
    trainer.observer.on_eval(result, is_best)
    if path is None:
        return None
    trainer.observer.on_checkpoint(path, "best" if is_best else "periodic")
    goal = trainer.plan.eval_goal_reached(result)
    if goal is None or not goal.needs_test:
        return None if goal is None else goal.reason
    trainer.beside.submit(path, result.env_steps, result.epoch, kind="test")
    if not _judge(trainer, trainer.beside.result()):
        return None
    p.choose(result)
    point_to(directory, BEST, result.env_steps)
    return goal.reason


def goal_reached(
    trainer: Trainer, result: EvalResult | None, train_goal: Goal | None
) -> str | None:
    """The stop reason if a goal is reached and, where required, confirmed by a test."""
    goals = [goal for goal in (trainer.plan.eval_goal_reached(result), train_goal) if goal]
    untested = [goal for goal in goals if not goal.needs_test]
    if untested:
        return untested[0].reason
    return goals[0].reason if goals and _passes_test(trainer) else None


def _passes_test(trainer: Trainer) -> bool:
    """Whether the current policy passes a held-out test, on episodes used by no other test."""
    p = trainer.progress
    with trainer.timer.section("eval"):
        result = trainer.evaluator.test(
            trainer.agent.policy,
            greedy=trainer.config.eval_deterministic,
            clock=p.env_steps,
            env_steps=p.env_steps,
            epoch=p.epoch,
        )
    return _judge(trainer, result)


def _judge(trainer: Trainer, result: EvalResult) -> bool:
    """Record a held-out test during training, and whether it passed."""
    p = trainer.progress
    required = trainer.plan.required_mean(result, p.failed_tests)
    trainer.observer.on_test(result, required)
    if result.mean >= required:
        p.passed_test = result.to_dict()  # logged with the final tests
    else:
        p.failed_tests += 1
        p.next_train_test = trainer.collector.n_episodes + EPISODE_WINDOW
        trainer.run.log_event("eval", stage="failed_test", **result.to_dict())
    return p.passed_test is not None


def final_test(trainer: Trainer) -> dict[str, EvalResult]:
    """Test the selected checkpoint on held-out episodes, greedy and sampled.

    This is the best checkpoint by validation, or the last one if nothing was evaluated. A test
    that ended training is not repeated.
    """
    p = trainer.progress
    chosen = load_checkpoint(resolve_checkpoint(trainer.run, trainer.run.path.parent).path)
    trainer.agent.load_weights(chosen.tensors["model"])
    trainer.agent.policy.load_state(chosen.state["agent"]["policy"])  # as it explored then
    passed = EvalResult.from_dict(p.passed_test) if p.passed_test else None
    results = {}
    for name, greedy in (("greedy", True), ("sampled", False)):
        if passed is not None and passed.greedy == greedy:
            results[name] = passed
        else:
            results[name] = trainer.evaluator.test(
                trainer.agent.policy,
                greedy=greedy,
                clock=p.env_steps,
                env_steps=chosen.env_steps,
                epoch=chosen.state["progress"]["epoch"],
            )
        trainer.run.log_event("eval", stage="test", **results[name].to_dict())
    return results
