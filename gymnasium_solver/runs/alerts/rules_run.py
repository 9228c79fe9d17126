"""Rules about the run itself: numbers that cannot be, the clock, the speed."""

from statistics import median

from gymnasium_solver.runs.alerts.history import FPS, MOST, N_SPEEDS, History
from gymnasium_solver.runs.alerts.rule import Rule, Seen
from gymnasium_solver.runs.metrics import describe

SLOWER = 3.0
LEAST_SECONDS = 30.0


def _not_finite(h: History) -> Seen:
    wrong = [name for name in h.odd if not _is_finite(h.row[name])]
    wrong = [name for name in wrong if not describe(name).may_be_null]
    if not wrong:
        return ""
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    return f"not finite: {', '.join(wrong[:3])}{more}"


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and -MOST <= value <= MOST


def _clock(h: History) -> Seen:
    now, before = h.value("env_steps"), h.steps_before
    if before is None or now is None:
        return None
    return f"env_steps went from {before:,.0f} to {now:,.0f}" if now <= before else ""


def _bounds(h: History) -> Seen:
    for name in h.odd:
        value, (low, high) = h.value(name), describe(name).bounds
        if value is None:
            continue
        if high is not None and value > high:
            return f"{name} is {value:,.6g}, above its highest possible value {high:g}"
        return f"{name} is {value:,.6g}, below its lowest possible value {low:g}"
    return ""


def _speed(h: History) -> Seen:
    if h.value(FPS) is None or h.n_rows < 3 * N_SPEEDS or len(h.early_speeds) < N_SPEEDS:
        return None
    if (h.value("wall_s") or 0.0) < LEAST_SECONDS:
        return None
    now, first = median(h.speeds), h.speed_at_first
    if now * SLOWER > first or h.is_machine_busy:
        return ""
    return f"{now:,.0f} env steps/s, {first:,.0f} at the beginning"


RULES = (
    Rule(
        "not_finite",
        _not_finite,
        "train/opt/loss/total",
        needs_metric=False,
        when="a logged value is NaN or infinite, or the run ended because of one",
        meaning="The update overflowed, or the environment returned NaN or infinity.",
        advice=lambda h: (
            "lower policy_lr or max_grad_norm, or normalize_obs: rolling and normalize_reward: "
            f"true; `gsolve doctor env {h.facts.config.get('env_id')}` checks the environment"
        ),
    ),
    Rule(
        "clock_stalled",
        _clock,
        "train/cnt/total_env_steps",
        needs_metric=False,
        when="env_steps does not grow from one row to the next",
        meaning="An epoch collected nothing, or two processes write to one run folder.",
        advice=lambda h: "stop the other process, or continue with `gsolve train --resume RUN`",
    ),
    Rule(
        "bound_violated",
        _bounds,
        "train/opt/value/explained_var",
        needs_metric=False,
        when="a metric is outside the bounds that it is declared with (gsolve metrics --json), "
        "such as an explained variance above 1",
        meaning="The number is impossible: a bug in an algorithm, a wrapper or a plugin.",
        advice=lambda h: "check the code that computes it; report it if it is not your own",
    ),
    Rule(
        "throughput_falling",
        _speed,
        FPS,
        when="the median speed of the last 20 epochs is below a third of that of the first 20, "
        "after 30 s, while the machine is not busy with other processes",
        meaning="The environment became slower, memory is short, or the device is throttled.",
        advice=lambda h: (
            "`gsolve train --resume RUN --profile` shows where the time goes; look at the free "
            "memory"
        ),
        rows=5,
    ),
)
