"""The rules that raise alerts: small functions of the newest row and the history of a run.

    @rule(KL, rows=3)
    def kl_high(h: History, kl: float) -> Seen:
        recent = h.recent(KL) or 0.0
        return recent > 0.05 and f"approx_kl {recent:.3g} nats per update, median of 10"

A rule is called with the values of its metrics, for rows that have them all. It returns what is
wrong, False if nothing is, or None if the row cannot tell. What users read about a rule is in
rules.txt; the advice may name attributes of the history.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from gymnasium_solver.runs.alerts.history import (
    ALPHA,
    BEST,
    CLIPPED,
    ENTROPY,
    EPISODES,
    EXPLAINED,
    FPS,
    KL,
    N_SPEEDS,
    NORMS,
    SCORE,
    VAL,
    History,
)
from gymnasium_solver.runs.files import finite
from gymnasium_solver.runs.metrics import describe, sections

LENGTH, CUT = "train/roll/ep_len/mean", "train/roll/ep_truncated"
DEAD, WORST = "train/opt/activations/dead", "train/opt/activations/dead_max"
Q = "train/opt/q/mean"
LEAST_EPISODES, FEW_EPISODES = 100, 10
FAR_TOO_FAR = 2.0  # nats in one update
NARROWER = 2.5  # nats per component of a Box: a standard deviation 12 times smaller
Seen = str | bool | None


@dataclass(frozen=True)
class Rule:
    name: str
    metric: str  # the metric whose row in the console is marked
    check: Callable[..., Seen]
    needs: tuple[str, ...]
    """Metrics that a row must have to be judged; the check is called with their values."""
    when: str  # when it is raised, for the documentation
    meaning: str  # what it usually means
    advice: str  # what to try; {h.name} is an attribute of the history
    rows: int = 1  # rows in a row that must be wrong before it is raised, and right before it ends
    share: float = 0.0  # share of the budget that the wrong rows must cover
    warm_up: float = 0.0  # share of the budget before it is judged at all
    at_once: Callable[[History], bool] = lambda h: False
    """Whether the newest row, if it is wrong, is bad enough to need no patience."""

    def advise(self, history: History) -> str:
        return self.advice.format(h=history)


TEXTS = {
    name: [line.partition(": ")[2] for line in lines]
    for name, lines in sections(Path(__file__).with_name("rules.txt"))
}
"""By rule: when it is raised, what it means, what to try."""
RULES: dict[str, Rule] = {}


def rule(
    metric: str, *others: str, any_row: bool = False, **patience: Any
) -> Callable[[Callable[..., Seen]], Callable[..., Seen]]:
    """Declare a rule. `any_row`: it takes no values and looks at all rows."""

    def declare(check: Callable[..., Seen]) -> Callable[..., Seen]:
        name, needs = check.__name__, () if any_row else (metric, *others)
        when, meaning, advice = TEXTS[name]
        RULES[name] = Rule(name, metric, check, needs, when, meaning, advice, **patience)
        return check

    return declare


# -- the run itself -------------------------------------------------------------------------------


@rule("train/opt/loss/total", any_row=True)
def not_finite(h: History) -> Seen:
    wrong = [name for name in h.odd if finite(h.row[name]) is None]
    wrong = [name for name in wrong if not describe(name).may_be_null]
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    return bool(wrong) and f"not finite: {', '.join(wrong[:3])}{more}"


@rule("train/cnt/total_env_steps", any_row=True)
def clock_stalled(h: History) -> Seen:
    now, before = h.value("env_steps"), h.steps_before
    if before is None or now is None:
        return None
    return now <= before and f"env_steps went from {before:,.0f} to {now:,.0f}"


@rule(EXPLAINED, any_row=True)
def bound_violated(h: History) -> Seen:
    for name in h.odd:
        if (value := h.value(name)) is not None:
            low, high = describe(name).bounds
            if high is not None and value > high:
                return f"{name} is {value:,.6g}, above its highest possible value {high:g}"
            return f"{name} is {value:,.6g}, below its lowest possible value {low:g}"
    return False


@rule(FPS, rows=5)
def throughput_falling(h: History, fps: float) -> Seen:
    is_early = h.n_rows < 3 * N_SPEEDS or len(h.early_speeds) < N_SPEEDS
    if is_early or (h.value("wall_s") or 0.0) < 30:
        return None
    now, first = median(h.speeds), median(h.early_speeds)
    is_slow = now * 3 <= first and not h.is_machine_busy
    return is_slow and f"{now:,.0f} env steps/s, {first:,.0f} at the beginning"


# -- returns and episodes -------------------------------------------------------------------------


@rule(SCORE, "train/plateau/env_steps", BEST, rows=5)
def reward_stalled(h: History, score: float, since: float, best: float) -> Seen:
    total, target = h.total_steps, h.target
    if not total:
        return None
    if h.seems_solved or since < 0.4 * total:
        return False  # without a target, a plateau may be the best there is
    good = "" if target is None else f"; good is {target:,g}"
    return (
        f"no better mean return than {h.best_score:,.4g} for {since:,.0f} env steps, "
        f"{since / total:.0%} of the budget{good}"
    )


@rule("train/roll/reward/ambiguous", "train/plateau/env_steps", rows=2)
def memory_needed(h: History, ambiguous: float, since: float) -> Seen:
    if not h.total_steps or h.config.get("recurrent") or h.config.get("frame_stack"):
        return None
    if h.seems_solved or since < 0.3 * h.total_steps:
        return False
    text = "the same action at equal observations gave different rewards in"
    return ambiguous > 0.2 and f"{text} {ambiguous:.0%} of the cases"


@rule(SCORE, BEST, rows=10, share=0.1)
def reward_falling(h: History, score: float, best: float) -> Seen:
    first = h.first_score
    if first is None:
        return None
    gained, lost = h.best_score - first, h.best_score - score
    is_lost = h.has_improved and lost >= 0.5 * gained and lost >= h.first_spread
    text = f"mean return {score:,.4g}, after {h.best_score:,.4g} (it began at {first:,.4g})"
    return is_lost and text


@rule(SCORE, EPISODES, rows=3, warm_up=0.1)
def constant_return(h: History, score: float, n_episodes: float) -> Seen:
    if n_episodes < LEAST_EPISODES:
        return None
    is_constant = h.highest_return <= h.lowest_return and not h.is_good
    return is_constant and f"all {n_episodes:,.0f} episodes so far returned {h.highest_return:,.4g}"


@rule(SCORE, EPISODES, rows=3, warm_up=0.05)
def batch_norm_sparse(h: History, score: float, n_episodes: float) -> Seen:
    has_batch_norm = h.config.get("norm") == "batch" or h.config.get("block") == "flash"
    if not has_batch_norm or n_episodes < FEW_EPISODES:
        return None
    is_constant = h.highest_return <= h.lowest_return and not h.is_good
    text = f"all {n_episodes:,.0f} episodes so far returned {h.highest_return:,.4g}"
    return is_constant and f"{text}, with batch norm"


@rule(LENGTH, CUT, EPISODES, rows=3, warm_up=0.2)
def all_truncated(h: History, length: float, cut: float, n_episodes: float) -> Seen:
    if n_episodes < LEAST_EPISODES:
        return None
    text = f"all {n_episodes:,.0f} episodes so far were truncated, after {length:,.0f} steps"
    low, high = h.value("train/roll/ep_rew/min"), h.value("train/roll/ep_rew/max")
    if low is None or high is None or high - low > 1e-6 * (1.0 + abs(low)):
        return False  # a task of fixed length, which pays on the way
    return not (h.ever_terminated or h.has_improved or h.is_good) and text


@rule(VAL, SCORE, BEST, rows=2, warm_up=0.1)  # without BEST there are too few episodes to compare
def eval_below_train(h: History, val: float, train: float, best: float) -> Seen:
    first = h.first_score
    if first is None:
        return None
    n_episodes = max(1.0, h.value("val/roll/episodes") or 1.0)
    spread = (h.value("val/roll/ep_rew/std") or 0.0) / n_episodes**0.5
    spread += 2.0 * (h.value("train/roll/ep_rew/std") or 0.0)
    is_below = train - val >= 0.5 * abs(train - first) + spread
    return is_below and f"evaluation {val:,.4g}, training {train:,.4g}"


@rule(LENGTH, rows=3, warm_up=0.2)
def short_horizon(h: History, length: float) -> Seen:
    gamma = h.number("gamma")
    if gamma is None:
        return None
    horizon = 1.0 / max(1e-9, 1.0 - gamma)
    is_short = horizon <= 3.0 and length >= 10 and not (h.has_improved or h.is_good)
    text = f"gamma {gamma:g} looks {horizon:.1f} steps ahead; episodes last {length:,.0f} steps"
    return is_short and text


# -- the policy -----------------------------------------------------------------------------------


@rule(ENTROPY, rows=5, share=0.05)
def entropy_collapse(h: History, entropy: float) -> Seen:
    if h.value(ALPHA) is not None:
        return None  # with a learnt temperature the entropy is held at its target
    n_numbers = h.n_action_numbers
    # The space gives the entropy at the beginning even if the first update ruined the policy.
    first = h.uniform_entropy if n_numbers is None else h.entropy_at_first
    if first is None:
        return None
    if n_numbers is None:
        is_low, compared = entropy < 0.25 * first, f"; a uniform policy has {first:.3g}"
    else:
        is_low, compared = first - entropy > NARROWER * n_numbers, f", {first:.3g} at the beginning"
    return is_low and not h.seems_solved and f"entropy {entropy:.3g} nats{compared}"


def _is_collapsed(h: History) -> bool:
    """A policy without entropy makes small updates; that is not what is wrong with it."""
    entropy, first = h.value(ENTROPY), h.uniform_entropy
    return entropy is not None and first is not None and entropy < 0.05 * first


@rule("train/roll/actions/mean", "train/roll/actions/std", "train/opt/loss/policy")
def initial_actions(h: History, mean: float, std: float, loss: float) -> Seen:
    # Only the first epoch of a policy gradient: its actions come from the untrained policy.
    if h.value("epoch") != 1 or h.value(Q) is not None:
        return None
    if h.config.get("init_from_run") or (h.value("train/roll/actions/legal") or 1.0) < 1.0:
        return None
    if h.n_action_numbers is not None:
        is_odd = abs(mean) > 0.5 or not 0.05 <= std <= 2.0
        text = f"first actions have mean {mean:.2g} and standard deviation {std:.2g} (-1 to 1)"
        return is_odd and text
    bins = [name for name in h.row if name.startswith("train/roll/actions/hist/")]
    fractions = [h.value(name) or 0.0 for name in bins]
    n_samples = h.value("train/roll/env_steps") or 0.0
    is_known = h.n_actions is not None and len(fractions) >= 2 and n_samples >= 1
    if not is_known or abs(sum(fractions) - 1.0) > 1e-6:
        return None
    fair = 1.0 / len(fractions)
    noise = 4.0 * math.sqrt(fair * (1.0 - fair) / n_samples)
    worst = max(fractions, key=lambda fraction: abs(fraction - fair))
    which = fractions.index(worst)
    text = f"action {which} was {worst:.0%} of the first actions, {fair:.0%} would be uniform"
    return abs(worst - fair) > 0.3 * fair + noise and text


@rule(KL, rows=3, at_once=lambda h: (h.value(KL) or 0.0) > FAR_TOO_FAR)
def kl_high(h: History, kl: float) -> Seen:
    if kl > FAR_TOO_FAR:
        return f"approx_kl {kl:.3g} nats in one update"
    recent = h.recent(KL) or 0.0
    return recent > 0.05 and f"approx_kl {recent:.3g} nats per update, median of 10"


@rule(KL, rows=10, share=0.05)
def kl_low(h: History, kl: float) -> Seen:
    is_low = kl < 1e-4 and h.learns_fast and not h.is_good and not _is_collapsed(h)
    return is_low and f"approx_kl {kl:.1e} nats per update"


@rule(CLIPPED, rows=3)
def clip_fraction_high(h: History, clipped: float) -> Seen:
    if (recent := h.recent(CLIPPED)) is None:
        return None
    is_high = recent > 0.6 and h.clips_wide
    return is_high and f"{recent:.0%} of the samples are clipped, median of 10 updates"


@rule(CLIPPED, rows=20, share=0.1)
def clip_fraction_low(h: History, clipped: float) -> Seen:
    is_low = clipped < 1e-3 and h.learns_fast and not _is_collapsed(h)
    is_low = is_low and not h.is_good and not h.has_improved
    return is_low and f"{clipped:.2%} of the samples are clipped"


@rule("train/opt/ppo/clip_fraction_vf", rows=5)
def value_clip_high(h: History, clipped: float) -> Seen:
    return clipped > 0.5 and f"{clipped:.0%} of the values moved beyond clip_range_vf"


@rule("train/opt/ppo/kl", KL, rows=5)
def kl_disagree(h: History, naive: float, kl: float) -> Seen:
    # -log r has the mean KL and, for a small step, the variance 2 KL.
    n_samples = (h.number("n_envs") or 1) * (h.number("n_steps") or 1)
    noise = 4.0 * math.sqrt(2.0 * max(kl, 0.0) / max(1, n_samples))
    is_apart = kl > 0.02 and abs(naive - kl) > max(0.5 * max(kl, naive), noise)
    return is_apart and f"KL estimated as {kl:.3g} by approx_kl and as {naive:.3g} by kl"


# -- values ---------------------------------------------------------------------------------------


@rule(EXPLAINED, rows=3, share=0.05, warm_up=0.05)
def explained_variance_negative(h: History, explained: float) -> Seen:
    if (recent := h.recent(EXPLAINED)) is None:
        return None
    text = f"explained variance {recent:.2f}, median of 10 updates"
    return recent < -0.05 and not h.is_good and text


@rule(EXPLAINED, any_row=True, rows=3)
def no_signal(h: History) -> Seen:
    if EXPLAINED not in h.row:
        return None
    if h.is_good:
        return False  # a perfect policy: all returns are the same
    if h.row[EXPLAINED] is None:  # the fraction of no variance
        return "the returns that the critic learns do not vary"
    size = 1.0 + abs(h.value("train/roll/return/mean") or 0.0)
    returns, advantages = h.value("train/roll/return/std"), h.value("train/roll/adv/std")
    if returns is None or advantages is None:
        return None  # a row without details
    for what, std in (("returns that the critic learns", returns), ("advantages", advantages)):
        if std <= 1e-5 * size:
            return f"the {what} do not vary (standard deviation {std:.1e})"
    return False


@rule(Q, rows=2)
def q_diverging(h: History, q: float) -> Seen:
    limit = _q_limit(h)
    if limit is None:
        return None
    text = f"mean Q-value {q:,.4g}; returns so far are between "
    return abs(q) > limit and text + f"{h.lowest_return:,.4g} and {h.highest_return:,.4g}"


def _q_limit(h: History) -> float | None:
    """What no discounted return can exceed by far."""
    gamma = h.number("gamma")
    if gamma is None or gamma >= 1.0:
        return None
    horizon = 1.0 / (1.0 - gamma)
    bonus = abs((h.value(ALPHA) or 0.0) * (h.value(ENTROPY) or 0.0))
    if h.config.get("normalize_reward"):
        clip = h.number("clip_reward")
        return None if clip is None else 2.0 * (clip + bonus) * horizon
    if not h.largest_reward:
        return None
    limit = 2.0 * (h.largest_reward + bonus) * horizon
    if h.highest_return >= h.lowest_return:
        returns = max(abs(h.highest_return), abs(h.lowest_return), h.largest_reward)
        limit = min(limit, 10.0 * returns + 2.0 * bonus * horizon)
    return limit


@rule(ALPHA, ENTROPY, rows=3, share=0.1, warm_up=0.1)
def alpha_high(h: History, alpha: float, entropy: float) -> Seen:
    size = h.reward_size
    if not size or h.config.get("normalize_reward") or h.is_good:
        return None
    bonus = alpha * max(1.0, abs(entropy))
    text = f"the entropy bonus is {bonus:,.3g} per step, rewards are about {size:,.3g}"
    return bonus > 5.0 * size and text


@rule(ALPHA, rows=3, share=0.1, warm_up=0.1)
def alpha_low(h: History, alpha: float) -> Seen:
    if not str(h.config.get("ent_coef", "")).startswith("auto") or not h.reward_size:
        return None
    is_low = alpha < 1e-5 * h.reward_size and not h.is_good
    return is_low and f"alpha {alpha:.1e}, rewards are about {h.reward_size:,.3g}"


# -- replay, networks, observations ---------------------------------------------------------------


@rule("train/opt/replay/priority_evenness", rows=3, warm_up=0.05)
def priorities_degenerate(h: History, evenness: float) -> Seen:
    if evenness < 0.01:
        return f"sampling is as uneven as if only {evenness:.2%} of the transitions were used"
    return evenness > 1.0 - 1e-9 and "all priorities are equal"


@rule(DEAD, WORST, rows=3)
def dead_units(h: History, dead: float, worst: float) -> Seen:
    text = f"{dead:.0%} of the hidden units are dead, {worst:.0%} in the worst layer"
    return (dead > 0.65 or worst >= 0.9) and not h.is_good and text


@rule("train/roll/obs/outside", rows=2)
def observations_outside(h: History, outside: float) -> Seen:
    text = f"{outside:.2%} of the observed numbers are outside the bounds of the space"
    return outside > 1e-3 and text


@rule(NORMS[0], rows=5)
def gradients_huge(h: History, norm: float) -> Seen:
    limit = h.number("max_grad_norm")
    if limit is None:
        return None
    return norm > 1e4 * limit and f"the gradient norm is {norm:,.3g}, clipped to {limit:g}"
