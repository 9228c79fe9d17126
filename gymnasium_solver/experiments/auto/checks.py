"""What is decided about a training: what replaces it on its way, whether more steps would pay, and
what its held-out test says.

A remedy answers an alert of the run (docs/alerts.md): the same preset with one change, or another.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gymnasium_solver.envs.probe import Probe
from gymnasium_solver.registry import config_class
from gymnasium_solver.runs.query import RunSummary, get_details
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training.choose import ADDED, Candidate, candidate, ppo_for, recalls

MORE_ENTROPY, LEAST_ENTROPY = 3.0, 0.003
LOWER_LR = 3.0
FAR_GAMMA = 0.995
N_STEP = 3
MEASURED = ("gamma", "max_episode_steps")  # kept by whatever replaces a preset
FEWEST_POINTS = 5
FLAT = 1e-3  # rise over the second half, as a share of the score, that counts as none
CLEARLY, SURELY = 2.0, 3.0  # standard errors
Z = 1.96


# -- by cause -------------------------------------------------------------------------------------


def remedy(alerts: Iterable[str], now: Candidate, p: Probe) -> tuple[Candidate, str] | None:
    """What replaces a training with these alerts, and the alert that it answers; None if none of
    them has an answer that was not tried."""
    active = set(alerts)
    for name, answer in REMEDIES.items():
        found = answer(now, p) if name in active else None
        if found is not None and found.fields != now.fields:
            return found, name
    return None


def remembers(now: Candidate, p: Probe) -> Candidate | None:
    """With a memory, where rewards depend on what was seen before."""
    is_tried = now.fields.get("recurrent") is not None
    return None if is_tried or not recalls(p) else _preset(now, p, ppo_for(p), "gru")


def _explores(now: Candidate, p: Probe) -> Candidate | None:
    """Nothing is ever met: counts of states, or noise that lasts."""
    if p.moves != "box":
        name = "rnd" if p.sees == "image" else "count"
        if now.fields["algo_id"] == "ppo":
            return _with(now, name, **ADDED[name])
        return _preset(now, p, ppo_for(p), name)
    if now.fields["algo_id"] == "sac":
        return _preset(now, p, "sac_sphere")
    return _with(now, "sde", sde=True) if _has(now, "sde") else None


def _is_calmer(now: Candidate, p: Probe) -> Candidate | None:
    """Values or the entropy bonus run away: weights on a sphere, and a lower learning rate."""
    if now.fields["algo_id"] == "sac" and p.moves == "box":
        now = _preset(now, p, "sac_sphere")
    lr = now.fields.get("policy_lr")
    return _with(now, "low_lr", policy_lr=lr / LOWER_LR) if isinstance(lr, int | float) else None


def with_more_entropy(now: Candidate, p: Probe) -> Candidate | None:
    bonus = now.fields.get("ent_coef")
    if not isinstance(bonus, int | float):
        return None
    return _with(now, "entropy", ent_coef=max(MORE_ENTROPY * bonus, LEAST_ENTROPY))


def _spreads_rewards(now: Candidate, p: Probe) -> Candidate | None:
    """No end is ever reached: a reward reaches more steps at once."""
    if _has(now, "n_step") and now.fields.get("n_step", 1) < N_STEP:
        return _with(now, "n_step", n_step=N_STEP)
    return _explores(now, p)


REMEDIES: dict[str, Callable[[Candidate, Probe], Candidate | None]] = {
    "constant_return": _explores,
    "batch_norm_sparse": _explores,
    "no_signal": _explores,
    "q_diverging": _is_calmer,
    "alpha_high": _is_calmer,
    "memory_needed": lambda now, p: _preset(now, p, ppo_for(p), "gru"),
    "entropy_collapse": with_more_entropy,
    "short_horizon": lambda now, p: _with(now, "far", gamma=FAR_GAMMA),
    "all_truncated": _spreads_rewards,
}
"""By alert, the more certain causes first."""


def _has(now: Candidate, name: str) -> bool:
    return name in config_class(now.fields["algo_id"]).model_fields


def _with(now: Candidate, name: str, **changes: Any) -> Candidate:
    return Candidate(f"{now.name}+{name}", now.fields | changes)


def _preset(now: Candidate, p: Probe, *parts: str) -> Candidate:
    kept = {name: now.fields[name] for name in MEASURED if name in now.fields}
    return candidate(parts, kept, p)


# -- more steps -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outlook:
    """How evaluations rise in the second half of a training."""

    slope: float  # of the score, per env step
    stderr: float
    more_steps: int | None  # further env steps that are worth it; None if it does not rise clearly
    text: str


def outlook(points: Sequence[tuple[int, float]], threshold: float | None = None) -> Outlook | None:
    """A straight line through the evaluations (env steps, score) of the second half; None if they
    are too few or the threshold is reached."""
    late = [(s, v) for s, v in points if s >= 0.5 * points[-1][0]] if points else []
    if len(late) < FEWEST_POINTS or (threshold is not None and late[-1][1] >= threshold):
        return None
    steps, scores = np.array(late, np.float64).T
    slope, stderr = _slope(steps, scores)
    per = 10 ** max(0, math.floor(math.log10(steps[-1])) - 1)
    rise = f"{per * slope:,.3g} ± {per * CLEARLY * stderr:,.2g} per {per:,} steps"
    is_flat = slope * float(np.ptp(steps)) <= FLAT * float(np.abs(scores).max())
    if is_flat or slope <= CLEARLY * stderr:
        text = "no clear rise any more"
        return Outlook(slope, stderr, None, text if is_flat else f"{text} ({rise})")
    now = float(scores.mean() + slope * (steps[-1] - steps.mean()))
    if threshold is not None and now < threshold:
        more = math.ceil((threshold - now) / slope)
        soonest = math.ceil((threshold - now) / (slope + CLEARLY * stderr))
        text = f"still rising by {rise}: about {more:,} more steps (at least {soonest:,}) to"
        return Outlook(slope, stderr, more, f"{text} {threshold:g}")
    more = int(steps[-1]) // 2
    return Outlook(slope, stderr, more, f"still rising by {rise}: {more:,} more steps are worth it")


def is_rising(points: Sequence[tuple[int, float]]) -> bool:
    """Whether all evaluations so far (env steps, score) rise clearly."""
    if len(points) < FEWEST_POINTS:
        return False
    slope, stderr = _slope(*np.array(points, np.float64).T)
    return slope > SURELY * stderr


def _slope(steps: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    """Of a straight line through the scores, and its standard error."""
    apart = steps - steps.mean()
    slope = float(apart @ scores / (apart @ apart))
    left = scores - scores.mean() - slope * apart
    return slope, math.sqrt(float(left @ left) / (len(steps) - 2) / float(apart @ apart))


# -- the verdict ----------------------------------------------------------------------------------


def is_above_random(mean: float, stderr: float | None, p: Probe) -> bool:
    """Whether a mean return is above that of random actions by more than both are uncertain."""
    if p.random_mean is None:
        return True
    return mean - Z * (stderr or 0.0) > p.random_mean + _random_error(p)


def is_unclear(mean: float, stderr: float | None, p: Probe) -> bool:
    """Whether too few random episodes are known to decide if a mean return is above theirs."""
    if p.random_mean is None:
        return False
    is_near = abs(mean - p.random_mean) <= Z * (stderr or 0.0) + _random_error(p)
    return is_near or p.random_sd is None


def _random_error(p: Probe) -> float:
    return CLEARLY * (p.random_sd or 0.0) / math.sqrt(max(p.episodes, 1))


def disagreement(scores: Mapping[str, float], p: Probe) -> str | None:
    """Which of these trainings of one algorithm learnt, and which did not; None if they agree.
    Strongly apart: the worst is not above random actions, the best is by two of their standard
    deviations."""
    if len(scores) < 2 or p.random_mean is None:
        return None
    best, worst = max(scores, key=lambda n: scores[n]), min(scores, key=lambda n: scores[n])
    is_learnt = scores[best] > p.random_mean + 2.0 * (p.random_sd or 0.0)
    if not is_learnt or is_above_random(scores[worst], None, p):
        return None
    return f"{best} has {scores[best]:,.4g}, {worst} only {scores[worst]:,.4g}"


def judged(
    run: RunSummary, p: Probe, apart: str | None = None, more_steps: int | None = None
) -> dict[str, Any]:
    """solved, learnt, unstable or not better than random, with the numbers and what to try.
    `apart`: how trainings of the same algorithm disagree. `more_steps`: that are worth it."""
    test = run.test
    assert test is not None
    stderr = test["stderr"] or 0.0
    low, high = test["mean"] - Z * stderr, test["mean"] + Z * stderr
    kind, why = "not better than random", ""
    if run.solved:
        kind = "solved"
    elif is_above_random(test["mean"], stderr, p):
        last = (run.last_eval or {}).get("score")
        if last is not None and not is_above_random(float(last), None, p):
            apart = f"the best checkpoint has {test['mean']:,.4g}, the last policy {last:,.4g}"
        kind = "learnt" if apart is None else "unstable"
        why = f"; {apart}" if apart else ""
    random = "" if p.random_mean is None else f", random {p.random_mean:,.4g}"
    goal = "no threshold known" if run.threshold is None else f"threshold {run.threshold:g}"
    text = (
        f"{kind}: {test['mean']:,.4g} [{low:,.4g}, {high:,.4g}] in {test['episodes']} held-out "
        f"episodes{random}; {goal}{why}"
    )
    return {
        "kind": kind, "mean": test["mean"], "low": low, "high": high, "text": text,
        "next": _advice(run, kind, more_steps),
    }  # fmt: skip


def _advice(run: RunSummary, kind: str, more_steps: int | None) -> list[str]:
    """What to try next, by what the run's alerts say."""
    if kind == "solved":
        return [f"gsolve play {run.id}"]
    alerts = [a for a in get_details(Run(Path(run.path))).alerts if a.is_active and a.advice]
    # A preset is no variant of a shipped config: its run has the config.
    shown, own = f"gsolve train {run.env_id}:{run.variant}", f"gsolve train {run.path}/config.yaml"
    found = [f"{a.name}: {a.advice.replace(shown, own)}" for a in alerts[:3]]
    if more_steps is not None:
        steps = run.env_steps + more_steps
        return [*found, f"gsolve train --resume {run.id} --max-env-steps {steps}"]
    return [*found, f"gsolve sweep {run.path}/config.yaml"]
