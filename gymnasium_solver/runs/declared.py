"""All metrics, declared once: meaning, unit, bounds, precision, direction, place in the console.

A group is a function of short declarations; `metrics.py` puts them together. A metric that is not
listed here may be logged as well; it has no description.
"""

from collections.abc import Sequence

from gymnasium_solver.runs.declared_episodes import episodes, evaluations, rollout, verdict
from gymnasium_solver.runs.declared_learning import hyper_parameters, losses, network, optimisation
from gymnasium_solver.runs.metric import FRACTION, POSITIVE, Metric, in_group


def clock() -> list[Metric]:
    steps = "Agent steps over all envs, the clock of the run"
    return [
        Metric("env_steps", steps, 0, unit="steps", bounds=POSITIVE),
        Metric("epoch", "Epochs of n_steps rows per env", 0, bounds=POSITIVE),
        Metric("wall_s", "Seconds of training, over all resumes", 1, unit="s", bounds=POSITIVE),
        Metric(
            "progress",
            "Fraction of the budget used, from 0 to 1",
            3,
            bounds=FRACTION,
            priority=100,
        ),
    ]


def counters() -> list[Metric]:
    return in_group(
        "train/cnt",
        Metric("lost_collectors", "Collectors that were lost and replaced", 0, "down"),
        Metric(
            "total_env_steps",
            "Agent steps over all envs",
            0,
            unit="steps",
            bounds=POSITIVE,
            priority=20,
        ),
        Metric(
            "total_vec_steps",
            "Steps of the vector env, reset rows included",
            0,
            unit="steps",
            bounds=POSITIVE,
        ),
        Metric("total_episodes", "Finished episodes", 0, bounds=POSITIVE, priority=21),
        Metric("total_rollouts", "Rollouts collected", 0, bounds=POSITIVE),
        Metric(
            "total_updates",
            "Updates: one per rollout, or gradient steps with a replay",
            0,
            bounds=POSITIVE,
        ),
        Metric("epoch", "Epochs of n_steps rows per env", 0, bounds=POSITIVE, priority=22),
    )


def curriculum() -> list[Metric]:
    """Of runs with a curriculum, or with several tasks."""
    return [
        Metric("train/curriculum/stage", "Stage of the curriculum, from 1", 0, bounds=POSITIVE),
        Metric("train/curriculum/score", "Score in the stage, which promotes or demotes", 3, "up"),
        Metric("train/curriculum/kwargs/<name>", "Argument <name> of the environments now", 4),
        Metric(
            "train/task/<task>/ep_rew/mean",
            "Mean return of the last 100 training episodes of <task>",
            2,
            "up",
        ),
        Metric("val/task/<task>/ep_rew/mean", "Mean return of <task> in an evaluation", 2, "up"),
    ]


def plateau() -> list[Metric]:
    best = "since the highest mean return of training"
    return in_group(
        "train/plateau",
        Metric("env_steps", f"Env steps {best}", 0, "down", unit="steps", bounds=POSITIVE),
        Metric("epochs", f"Epochs {best}", 0, "down", bounds=POSITIVE),
    )


def timing() -> list[Metric]:
    shares = {
        "env": "in the envs",
        "act": "choosing actions",
        "update": "learning",
        "eval": "evaluating",
    }
    return in_group(
        "train/sys/timing",
        Metric(
            "time_elapsed",
            "Seconds of training, over all resumes",
            1,
            unit="s",
            bounds=POSITIVE,
            priority=60,
        ),
        Metric(
            "fps",
            "Env steps per second over the whole run",
            0,
            "up",
            unit="steps/s",
            bounds=POSITIVE,
            priority=61,
        ),
        Metric(
            "fps_instant",
            "Env steps per second in the last epoch",
            0,
            "up",
            unit="steps/s",
            bounds=POSITIVE,
        ),
        Metric(
            "collect_fps",
            "Env steps per second of collecting in the last epoch, without learning and evaluating",
            0,
            "up",
            unit="steps/s",
            bounds=POSITIVE,
        ),
        Metric(
            "collectors_fps",
            "Env steps per second of all collectors together, while they collect",
            0,
            "up",
            unit="steps/s",
            bounds=POSITIVE,
        ),
        Metric(
            "eps", "Episodes per second over the whole run", 2, "up", unit="1/s", bounds=POSITIVE
        ),
        Metric(
            "eta_s",
            "Estimated seconds until the budget is used up",
            0,
            "down",
            unit="s",
            bounds=POSITIVE,
            priority=62,
        ),
        *(
            Metric(f"{name}_share", f"Fraction of the time spent {what}", 3, bounds=FRACTION)
            for name, what in shares.items()
        ),
    )


def machine() -> list[Metric]:
    load = "Processes that wanted a CPU in the last minute, per CPU; above 1 the machine is busy"
    return in_group("train/sys", Metric("load", load, 2, "down", bounds=POSITIVE, is_detail=True))


def alerts() -> list[Metric]:
    raised = "1 where the alert <rule> was raised, 0 where it ended (read from events.jsonl)"
    return in_group("alert", Metric("<rule>", raised, 0, "down", bounds=FRACTION))


def all_metrics() -> Sequence[Metric]:
    """In the order of the documentation."""
    return [
        *clock(),
        *episodes(),
        *curriculum(),
        *evaluations("val", "the evaluation", first=10),
        *evaluations("test", "the held-out test", first=None),
        *verdict(),
        *counters(),
        *plateau(),
        *rollout(),
        *losses(),
        *optimisation(),
        *network(),
        *hyper_parameters(),
        *timing(),
        *machine(),
        *alerts(),
    ]
