"""Rules about the policy and its updates."""

import math

from gymnasium_solver.runs.alerts.history import CLIPPED, ENTROPY, KL, LR, History
from gymnasium_solver.runs.alerts.rule import Rule, Seen

NAIVE_KL, VALUE_CLIPPED = "train/opt/ppo/kl", "train/opt/ppo/clip_fraction_vf"
ALPHA, HISTOGRAM = "train/opt/policy/alpha", "train/roll/actions/hist/"
LOW_ENTROPY = 0.25  # of the entropy at the beginning, for classes and bits
FAR_TOO_FAR = 2.0  # nats in one update
NARROWER = 2.5  # nats per component of a Box: a standard deviation 12 times smaller


def _entropy(h: History) -> Seen:
    entropy = h.value(ENTROPY)
    if entropy is None or h.value(ALPHA) is not None:
        return None  # with a learnt temperature the entropy is held at its target
    if h.facts.n_action_numbers is not None:
        return _narrow(h, entropy, h.facts.n_action_numbers)
    # The space gives the entropy at the beginning even if the first update ruined the policy.
    first = h.facts.uniform_entropy
    if first is None:
        return None
    if h.seems_solved or entropy >= LOW_ENTROPY * first:
        return ""
    return f"entropy {entropy:.3g} nats; a uniform policy has {first:.3g}"


def _narrow(h: History, entropy: float, n_numbers: int) -> Seen:
    first = h.entropy_at_first
    if first is None:
        return None
    if h.seems_solved or first - entropy <= NARROWER * n_numbers:
        return ""
    return f"entropy {entropy:.3g} nats, {first:.3g} at the beginning"


def _is_collapsed(h: History) -> bool:
    """A policy without entropy makes small updates; that is not what is wrong with it."""
    entropy, first = h.value(ENTROPY), h.facts.uniform_entropy
    return entropy is not None and first is not None and entropy < 0.05 * first


def _initial_actions(h: History) -> Seen:
    """Only the first epoch of a policy gradient: its actions come from the untrained policy."""
    is_first = h.value("epoch") == 1 and h.value("train/opt/loss/policy") is not None
    if not is_first or h.value("train/opt/q/mean") is not None:
        return None
    if h.facts.config.get("init_from_run") or (h.value("train/roll/actions/legal") or 1.0) < 1.0:
        return None
    mean, std = h.value("train/roll/actions/mean"), h.value("train/roll/actions/std")
    if h.facts.n_action_numbers is not None and mean is not None and std is not None:
        if abs(mean) <= 0.5 and 0.05 <= std <= 2.0:
            return ""
        return f"first actions have mean {mean:.2g} and standard deviation {std:.2g} (-1 to 1)"
    return _not_uniform(h)


def _not_uniform(h: History) -> Seen:
    if h.facts.n_actions is None:
        return None
    fractions = [h.value(name) or 0.0 for name in h.row if name.startswith(HISTOGRAM)]
    n_samples = h.value("train/roll/env_steps") or 0.0
    if len(fractions) < 2 or n_samples < 1 or abs(sum(fractions) - 1.0) > 1e-6:
        return None
    fair = 1.0 / len(fractions)
    noise = 4.0 * math.sqrt(fair * (1.0 - fair) / n_samples)
    worst = max(fractions, key=lambda fraction: abs(fraction - fair))
    if abs(worst - fair) <= 0.3 * fair + noise:
        return ""
    which = fractions.index(worst)
    return f"action {which} was {worst:.0%} of the first actions, {fair:.0%} would be uniform"


def _kl_high(h: History) -> Seen:
    kl, recent = h.value(KL), h.recent(KL)
    if kl is None:
        return None
    if kl > FAR_TOO_FAR:
        return f"approx_kl {kl:.3g} nats in one update"
    if recent is None or recent <= 0.05:
        return ""
    return f"approx_kl {recent:.3g} nats per update, median of 10"


def _kl_low(h: History) -> Seen:
    kl = h.value(KL)
    if kl is None:
        return None
    is_low = kl < 1e-4 and h.learns_fast and not h.is_good and not _is_collapsed(h)
    return f"approx_kl {kl:.1e} nats per update" if is_low else ""


def _clip_high(h: History) -> Seen:
    recent = h.recent(CLIPPED)
    if recent is None:
        return None
    is_high = recent > 0.6 and h.clips_wide
    return f"{recent:.0%} of the samples are clipped, median of 10 updates" if is_high else ""


def _clip_low(h: History) -> Seen:
    clipped = h.value(CLIPPED)
    if clipped is None:
        return None
    is_low = clipped < 1e-3 and h.learns_fast and not _is_collapsed(h)
    is_low = is_low and not h.is_good and not h.has_improved
    return f"{clipped:.2%} of the samples are clipped" if is_low else ""


def _value_clip(h: History) -> Seen:
    clipped = h.value(VALUE_CLIPPED)
    if clipped is None:
        return None
    return f"{clipped:.0%} of the values moved beyond clip_range_vf" if clipped > 0.5 else ""


def _kl_disagree(h: History) -> Seen:
    kl, naive = h.value(KL), h.value(NAIVE_KL)
    if kl is None or naive is None:
        return None
    # -log r has the mean KL and, for a small step, the variance 2 KL.
    noise = 4.0 * math.sqrt(2.0 * max(kl, 0.0) / max(1, h.facts.rollout_size))
    is_apart = kl > 0.02 and abs(naive - kl) > max(0.5 * max(kl, naive), noise)
    return f"KL estimated as {kl:.3g} by approx_kl and as {naive:.3g} by kl" if is_apart else ""


def _lower_lr(h: History) -> str:
    """The further the policy moved, the lower the learning rate to try."""
    factor = 3 if h.peak_kl < 0.5 else 10 if h.peak_kl < 5 else 100
    rate = h.value(LR) or h.peak_lr
    return h.facts.command("--policy-lr", f"{rate / factor:.1g}" if rate else "LOWER")


def _explore(h: History) -> str:
    if h.peak_kl > 0.5:  # one update ruined the policy
        return f"{_lower_lr(h)}; or target_kl: 0.02"
    return f"{h.facts.command('--ent-coef', '0.01')}; or a lower policy_lr"


def _higher_lr(h: History) -> str:
    rate = h.peak_lr
    return h.facts.command("--policy-lr", f"{rate * 10:.1g}" if rate else "HIGHER")


RULES = (
    Rule(
        "entropy_collapse",
        _entropy,
        ENTROPY,
        when="below the target (without one: while the return does not rise), the entropy is under "
        "25 % of a uniform policy's (a Box: the standard deviation is 12 times smaller), for 5 % "
        "of the budget",
        meaning="The policy stopped exploring before it found a good solution.",
        advice=_explore,
        rows=5,
        share=0.05,
    ),
    Rule(
        "initial_actions",
        _initial_actions,
        "train/roll/actions/mean",
        when="in the first epoch some action is much more or less frequent than the others; a Box: "
        "the actions are far from 0 or have hardly any spread",
        meaning="The untrained policy already prefers some actions: the observations are large, or "
        "log_std_init or a plugin's head does not fit.",
        advice=lambda h: "normalize_obs: rolling; log_std_init: 0 for continuous actions",
    ),
    Rule(
        "kl_high",
        _kl_high,
        KL,
        when="the median approx_kl of 10 updates is above 0.05, or that of one update above 2",
        meaning="Each update changes the policy too much; learning becomes unstable.",
        advice=lambda h: f"{_lower_lr(h)}; or target_kl: 0.02, or fewer n_epochs",
        rows=3,
        at_once=lambda h: (h.value(KL) or 0.0) > FAR_TOO_FAR,
    ),
    Rule(
        "kl_low",
        _kl_low,
        KL,
        when="approx_kl is below 0.0001 for 5 % of the budget while the learning rate is not yet "
        "low and the target is not reached",
        meaning="Updates hardly change the policy.",
        advice=lambda h: f"{_higher_lr(h)}; or more n_epochs",
        rows=10,
        share=0.05,
    ),
    Rule(
        "clip_fraction_high",
        _clip_high,
        CLIPPED,
        when="the median clip fraction of 10 updates is above 0.6, while the clip range is not "
        "scheduled towards 0",
        meaning="Most samples have left the clip range and no longer teach anything.",
        advice=lambda h: f"{_lower_lr(h)}; or fewer n_epochs, or a larger batch_size or clip_range",
        rows=3,
    ),
    Rule(
        "clip_fraction_low",
        _clip_low,
        CLIPPED,
        when="fewer than 0.1 % of the samples are clipped for 10 % of the budget, and the return "
        "does not rise",
        meaning="Updates are so small that the clip range never matters.",
        advice=lambda h: f"{_higher_lr(h)}; or more n_epochs",
        rows=20,
        share=0.1,
    ),
    Rule(
        "value_clip_high",
        _value_clip,
        VALUE_CLIPPED,
        when="clip_range_vf limits more than half of the values in 5 updates in a row",
        meaning="clip_range_vf is small for returns of this size; the critic learns slowly.",
        advice=lambda h: "clip_range_vf: null, or a larger one, or normalize_reward: true",
        rows=5,
    ),
    Rule(
        "kl_disagree",
        _kl_disagree,
        NAIVE_KL,
        when="the two estimates of the KL differ by more than half of the larger one and more than "
        "their noise, in 5 updates in a row",
        meaning="A few samples changed their probability by a lot, or the rollout was collected by "
        "another policy than the one that learns.",
        advice=lambda h: f"{_lower_lr(h)}; check a plugin that changes actions after sampling",
        rows=5,
    ),
)
