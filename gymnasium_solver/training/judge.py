"""Evaluations during training, the goals they reach, the held-out tests, and the verdict.

Validation scores select a checkpoint but do not judge it: the maximum of many noisy scores is
biased upwards. A run is solved only if the selected checkpoint reaches the threshold on test
episodes that were not used for the selection.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from gymnasium_solver.runs import checkpoint as checkpoints
from gymnasium_solver.runs import query
from gymnasium_solver.runs.report import write_report
from gymnasium_solver.runs.resolve import resolve_checkpoint
from gymnasium_solver.training.epoch_metrics import EPISODE_WINDOW, EpisodeStats, validation_row
from gymnasium_solver.training.evaluate import Validation, affordable, n_eval_episodes
from gymnasium_solver.training.live import watch_row
from gymnasium_solver.training.observer import EvalResult
from gymnasium_solver.training.progress import Goal, Plan, Progress
from gymnasium_solver.training.trainer import Trainer

MOST_EVAL_SHARE = 4  # env steps of an evaluation with eval_episodes auto, to those between two


@dataclass
class Judged:
    """What is known of the policy after an epoch."""

    stop_reason: str | None = None  # why training ends here; None: it goes on
    result: EvalResult | None = None  # an evaluation of it, if one was due
    is_best: bool = False
    is_submitted: bool = False  # another process is to evaluate it, once the epoch is saved


def judge_epoch(trainer: Trainer, steps_before: int) -> Judged:
    """Evaluate if that is due, and decide whether training is over: a budget is spent, or a goal is
    reached and, where required, confirmed by a test."""
    p, plan, stages = trainer.progress, trainer.plan, trainer.stages
    found = Judged(plan.budget_spent(p))
    train_goal = train_goal_reached(plan, p, trainer.collector)
    if stages is not None and not stages.is_last(p):
        train_goal = None  # an easier task than the one to be solved
    is_due = trainer.should_eval(p.epoch, steps_before, p.env_steps)
    is_due = is_due or found.stop_reason is not None or train_goal is not None
    is_due = trainer.control.take("evaluation") or (is_due and plan.evaluates)
    if is_due and trainer.background is not None:
        goal_reason = take_pending(trainer)
        found.is_submitted = not (found.stop_reason or goal_reason or train_goal)
        found.stop_reason = found.stop_reason or goal_reason
    if is_due and not found.is_submitted and p.passed_test is None:
        found.result = _validate(trainer)
        trainer.run.log_event("eval", stage="val", **found.result.to_dict())
        found.is_best = note_validation(trainer, found.result)
    if is_due and stages is not None:
        _evaluate_stage(trainer)
    if not found.stop_reason:
        found.stop_reason = goal_reached(trainer, found.result, train_goal)
    if p.passed_test and found.result is not None:  # the tested checkpoint was selected
        p.choose(found.result)
        found.is_best = True
    p.over = found.stop_reason
    return found


def _validate(trainer: Trainer) -> EvalResult:
    """Validate the current policy."""
    p, how = trainer.progress, validation_now(trainer)
    with trainer.timer.section("eval"):
        return trainer.evaluator.validate(trainer.agent.policy, p.env_steps, p.epoch, how)


def _test(trainer: Trainer) -> EvalResult:
    """A held-out test of the current policy: a verdict is claimed, so it has all its episodes."""
    p = trainer.progress
    if is_undecided(trainer) and p.last_eval is None:
        note_actions(trainer, _validate(trainer))
    with trainer.timer.section("eval"):
        return trainer.evaluator.evaluate(
            "test", trainer.agent.policy, p.env_steps, p.epoch, greedy=is_greedy(trainer)
        )


def _evaluate_stage(trainer: Trainer) -> None:
    p, stages = trainer.progress, trainer.stages
    assert stages is not None
    with trainer.timer.section("eval"):
        how = validation_now(trainer)
        result = stages.evaluate(p, trainer.agent.policy, trainer.activity, how)
    if result is not None:
        number = p.curriculum["stage"] + 1
        trainer.run.log_event("eval", stage="curriculum", number=number, **result.to_dict())


# -- which actions, and how many episodes ----------------------------------------------------


def is_undecided(trainer: Trainer) -> bool:
    """Whether validations choose between greedy and sampled actions."""
    return trainer.config.eval_deterministic == "auto" and trainer.agent.policy.is_stochastic


def is_greedy(trainer: Trainer) -> bool:
    """The actions of evaluations now."""
    if is_undecided(trainer):
        return trainer.progress.greedy
    return trainer.config.eval_deterministic is not False


def validation_now(trainer: Trainer) -> Validation:
    """How a validation is made now: by the config, the progress and the lengths of episodes."""
    p, config, steps = trainer.progress, trainer.config, trainer.plan.total_steps
    if config.eval_episodes == "auto":
        epochs = (config.eval_freq_epochs or 1) * config.n_envs * config.n_steps
        steps = min(steps, MOST_EVAL_SHARE * (config.eval_freq_steps or epochs))
    given, length = config.eval_episodes, episode_length(trainer)
    episodes = affordable(n_eval_episodes(config), given, steps, length)
    if not is_undecided(trainer):
        return Validation(episodes, is_greedy(trainer))
    usual = None if p.last_eval is None else p.last_eval["score"]
    return Validation(episodes, p.greedy, p.evals_to_comparison == 0, usual)


def episode_length(trainer: Trainer) -> float:
    """Mean length of the last episodes of training, or of the last evaluation if that is more.
    Before any has ended: the time limit, or what an environment has been stepped."""
    p, lengths = trainer.progress, trainer.collector.lengths
    known = [float(np.mean(lengths))] if lengths else []
    known += [p.last_eval.get("length", 0.0)] if p.last_eval else []
    if known:
        return max(known)
    return float(trainer.spec.max_episode_steps or p.env_steps / trainer.config.n_envs)


def note_validation(trainer: Trainer, result: EvalResult) -> bool:
    """Record a validation; whether it is the best so far."""
    note_actions(trainer, result)
    return trainer.progress.note_score(result)


def note_actions(trainer: Trainer, result: EvalResult) -> None:
    """Evaluate with the actions that scored more, and say so if these are others than before."""
    p = trainer.progress
    if result.other and result.greedy != p.greedy:
        names = ("greedy", "sampled") if result.greedy else ("sampled", "greedy")
        trainer.observer.on_message(
            "info",
            f"{names[0]} actions score more than {names[1]} ones on validation, "
            f"{result.mean:,.4g} against {result.other['mean']:,.4g}: evaluations and the test use "
            "them (eval_deterministic: auto)",
        )
    p.note_actions(result)


# -- evaluations by another process (eval_async) ---------------------------------------------


def submit_pending(trainer: Trainer) -> None:
    """Let the other process evaluate the checkpoint of the pending evaluation."""
    pending, directory = trainer.progress.pending_eval, trainer.run.checkpoints_dir
    if pending is None or trainer.background is None:
        return
    path = checkpoints.find_checkpoint(directory, pending["env_steps"])
    if path is None:  # a resume from an older checkpoint, whose neighbour was pruned
        trainer.progress.pending_eval = None
        return
    how = validation_now(trainer)
    trainer.background.submit(path, pending["env_steps"], pending["epoch"], how)


def take_pending(trainer: Trainer) -> str | None:
    """Wait for the pending evaluation and log it at its own env steps; the stop reason if it
    reached the goal."""
    p, directory = trainer.progress, trainer.run.checkpoints_dir
    if p.pending_eval is None or trainer.background is None:
        return None
    trainer.activity.begin_evaluation("evaluating", n_eval_episodes(trainer.config))
    with trainer.timer.section("eval"):
        result = trainer.background.result()
    p.pending_eval = None
    is_best = note_validation(trainer, result)
    late = {"logged_at": p.env_steps}
    trainer.run.log_event("eval", stage="val", **late, **result.to_dict())
    clock = {"env_steps": result.env_steps, "epoch": result.epoch, "wall_s": p.wall_s}
    row = clock | late | validation_row(p, result)
    trainer.run.log_metrics(row)
    watch_row(trainer.config, p.interventions, row)
    scores = {"score": result.mean, "eval": result.to_dict()}
    path = checkpoints.set_metrics(directory, result.env_steps, scores)
    if path is not None and is_best:
        checkpoints.point_to(directory, checkpoints.BEST, result.env_steps)
    trainer.observer.on_eval(result, is_best)
    if path is None:
        return None
    trainer.observer.on_checkpoint(path, "best" if is_best else "periodic")
    goal = eval_goal_reached(trainer.plan, result)
    if goal is None or not goal.needs_test:
        return None if goal is None else goal.reason
    how = Validation(trainer.evaluator.test_episodes, result.greedy)
    trainer.background.submit(path, result.env_steps, result.epoch, how, kind="test")
    if not _passes(trainer, trainer.background.result()):
        return None
    p.choose(result)
    checkpoints.point_to(directory, checkpoints.BEST, result.env_steps)
    return goal.reason


# -- goals ----------------------------------------------------------------------------------


def goal_reached(
    trainer: Trainer, result: EvalResult | None, train_goal: Goal | None
) -> str | None:
    """The stop reason if a goal is reached and, where required, confirmed by a test."""
    goals = [goal for goal in (eval_goal_reached(trainer.plan, result), train_goal) if goal]
    untested = [goal for goal in goals if not goal.needs_test]
    if untested:
        return untested[0].reason
    if goals and _passes(trainer, _test(trainer)):  # on episodes of no other test
        return goals[0].reason
    return None


def train_goal_reached(plan: Plan, p: Progress, episodes: EpisodeStats) -> Goal | None:
    """The training goal, if the last 100 episodes reach it; after a failed test, only new episodes
    count."""
    goal, returns = plan.train_goal, episodes.returns
    if goal is None or len(returns) < EPISODE_WINDOW:
        return None
    if goal.needs_test and episodes.n_episodes < p.next_train_test:
        return None
    return goal if np.mean(returns) >= goal.value else None


def eval_goal_reached(plan: Plan, result: EvalResult | None) -> Goal | None:
    goal = plan.eval_goal
    if goal is None or result is None:
        return None
    required = goal.value
    if result.tasks and goal.value == plan.threshold:
        required = required_mean(plan, result, 0)
    return goal if result.mean >= required else None


def _passes(trainer: Trainer, result: EvalResult) -> bool:
    """Record a held-out test during training, and whether it passed."""
    p = trainer.progress
    required = required_mean(trainer.plan, result, p.failed_tests)
    trainer.observer.on_test(result, required)
    if result.mean >= required:
        p.passed_test = result.to_dict()  # logged with the final tests
    else:
        p.failed_tests += 1
        p.next_train_test = trainer.collector.n_episodes + EPISODE_WINDOW
        trainer.run.log_event("eval", stage="failed_test", **result.to_dict())
    return p.passed_test is not None


# -- the verdict ----------------------------------------------------------------------------


def required_mean(plan: Plan, result: EvalResult, n_failed: int) -> float:
    """Mean that a test during training must reach after `n_failed` failed tests.

    The first test must reach the threshold. With repeated tests one would eventually pass by luck,
    so test k must exceed the threshold by sqrt(2 ln k) standard errors, about the expected maximum
    of k tests: 1.2 for the second, 2.1 for the tenth.

    Of several tasks each must do so; what is missing in the worst one is added to the mean."""
    assert plan.threshold is not None
    surplus = math.sqrt(2 * math.log(n_failed + 1))
    if not result.tasks:
        return plan.threshold + surplus * (result.stderr or 0.0)
    missing = [
        score["threshold"] + surplus * (score["stderr"] or 0.0) - score["mean"]
        for score in result.tasks.values()
    ]
    return result.mean + max(missing)


def is_solved(plan: Plan, test: EvalResult | None) -> bool | None:
    """Whether the test reaches the threshold: None without a threshold, False without a test."""
    if plan.threshold is None:
        return None
    return test is not None and test.mean >= required_mean(plan, test, 0)


def finish(trainer: Trainer, stop_reason: str) -> None:
    """Test the selected checkpoint, then write the verdict and the report.

    The status stays "running" until then, so a run that is killed here is completed by a
    resume."""
    trainer.is_over = True
    status = "interrupted" if stop_reason in ("interrupted", "requested") else "finished"
    final: dict[str, EvalResult] = {}
    test, note = None, None
    if status == "finished" and trainer.plan.tests:
        with trainer.timer.section("eval"):
            final, test, note = final_test(trainer)
    trainer.update_meta(
        status=status,
        stop_reason=stop_reason,
        stop_detail=trainer.stop_detail,
        test=None if test is None else test.score(),
        test_note=note,
        solved=is_solved(trainer.plan, test),
    )
    write_report(trainer.run.path)
    trainer.activity.begin("over")
    trainer.observer.on_end(query.get_run(trainer.run), final)


def final_test(trainer: Trainer) -> tuple[dict[str, EvalResult], EvalResult, str | None]:
    """Test the selected checkpoint on held-out episodes, greedy and sampled; which of the two
    judges, and a text about it.

    This is the best checkpoint by validation, or the last one if nothing was evaluated. A test
    that ended training is not repeated."""
    p, policy = trainer.progress, trainer.agent.policy
    path = resolve_checkpoint(trainer.run, trainer.run.path.parent).path
    chosen = checkpoints.load_checkpoint(path)
    trainer.agent.load_weights(chosen.tensors["model"])
    policy.load_state(chosen.state["agent"]["policy"])  # as it explored then
    clock = chosen.env_steps, chosen.state["progress"]["epoch"]
    passed = EvalResult.from_dict(p.passed_test) if p.passed_test else None
    greedy, notes = is_greedy(trainer), []
    measured = chosen.metrics.get("eval") or {}
    if is_undecided(trainer):
        greedy = p.best_greedy if passed is None else passed.greedy
        if passed is None and (compared := _compared_now(trainer, clock)) is not None:
            greedy, measured = compared.greedy, compared.to_dict()
        names = ("greedy", "sampled") if greedy else ("sampled", "greedy")
        notes.append(f"judged by {names[0]} actions: {names[1]} ones did no better on validation")

    def play(greedy: bool, episodes: int) -> EvalResult:
        return trainer.evaluator.evaluate(
            "test", policy, *clock, greedy=greedy, episodes=episodes, clock=p.env_steps
        )

    test = passed
    if test is None:
        episodes, why = test_episodes(trainer)
        notes += [] if why is None else [why]
        test = play(greedy, episodes)
    # The other actions are only shown: not for more env steps than those that judge, if they were
    # measured before.
    length = (measured.get("other") or {}).get("length", 0.0)
    other = play(not greedy, affordable(test.episodes, "auto", sum(test.lengths), length))
    pair = (test, other) if greedy else (other, test)
    results = dict(zip(("greedy", "sampled"), pair, strict=True))
    for result in results.values():
        trainer.run.log_event("eval", stage="test", **result.to_dict())
    limit = trainer.config.max_episode_steps
    if limit is not None and (n_cut := sum(length >= limit for length in test.lengths)):
        notes.append(f"{n_cut} of {test.episodes} test episodes had {limit:,} steps, the limit")
    return results, test, "; ".join(notes) or None


def _compared_now(trainer: Trainer, clock: tuple[int, int]) -> EvalResult | None:
    """A comparison of greedy with sampled actions of the selected checkpoint, where its validation
    made none, or there was no validation."""
    p = trainer.progress
    if p.best_score is not None and p.is_best_compared:
        return None
    start = p.best_greedy if p.best_score is not None else p.greedy
    how = replace(validation_now(trainer), greedy=start, compares=True)
    result = trainer.evaluator.validate(trainer.agent.policy, *clock, how)
    trainer.run.log_event("eval", stage="comparison", **result.to_dict())
    return result


def test_episodes(trainer: Trainer) -> tuple[int, str | None]:
    """How many episodes the final test has, and why if these are not all.

    All where a validation has reached the threshold. Otherwise nobody claims that the run is
    solved, and a test is not worth more env steps than training had."""
    p, plan, config = trainer.progress, trainer.plan, trainer.config
    full, returns = trainer.evaluator.test_episodes, trainer.collector.returns
    score = p.best_score if p.best_score is not None or not returns else float(np.mean(returns))
    if plan.threshold is None and config.test_episodes != "auto":
        return full, None
    if plan.threshold is not None and score is not None and score >= plan.threshold:
        return full, None
    n = affordable(full, config.test_episodes, p.env_steps, episode_length(trainer))
    if n == full:
        return full, None
    goal = "without a threshold" if plan.threshold is None else "below the threshold on validation"
    return n, (
        f"{n} test episodes instead of {full:,}: {goal}, a test plays no more than training did "
        f"({p.env_steps:,} env steps; gsolve eval --episodes {full} plays all)"
    )
