"""Rules about the policy and its updates, values, networks and the replay buffer."""

import math

from gymnasium_solver.runs.alerts.history import (
    CLIPPED,
    ENTROPY,
    EXPLAINED,
    KL,
    LR,
    NORMS,
    History,
)
from gymnasium_solver.runs.alerts.rule import Lasting, Rule, Seen

NAIVE_KL, VALUE_CLIPPED = "train/opt/ppo/kl", "train/opt/ppo/clip_fraction_vf"
ALPHA, HISTOGRAM = "train/opt/policy/alpha", "train/roll/actions/hist/"
Q, EVENNESS = "train/opt/q/mean", "train/opt/replay/priority_evenness"
DEAD, WORST = "train/opt/activations/dead", "train/opt/activations/dead_max"
OUTSIDE = "train/roll/obs/outside"
LOW_ENTROPY = 0.25  # of the entropy at the beginning, for classes and bits
FAR_TOO_FAR = 2.0  # nats in one update
NARROWER = 2.5  # nats per component of a Box: a standard deviation 12 times smaller
MANY_DEAD, MANY_IN_A_LAYER = 0.65, 0.9
HUGE = 1e4  # times max_grad_norm


# -- what to try ----------------------------------------------------------------------------------


def _lower_lr(h: History) -> str:
    """The further the policy moved, the lower the learning rate to try."""
    factor = 3 if h.peak_kl < 0.5 else 10 if h.peak_kl < 5 else 100
    rate = h.value(LR) or h.peak_lr
    return h.settings.command("--policy-lr", f"{rate / factor:.1g}" if rate else "LOWER")


def _higher_lr(h: History) -> str:
    rate = h.peak_lr
    return h.settings.command("--policy-lr", f"{rate * 10:.1g}" if rate else "HIGHER")


def _explore(h: History) -> str:
    if h.peak_kl > 0.5:  # one update ruined the policy
        return f"{_lower_lr(h)}; or target_kl: 0.02"
    return f"{h.settings.command('--ent-coef', '0.01')}; or a lower policy_lr"


# -- the policy -----------------------------------------------------------------------------------


@Rule(
    ENTROPY,
    when="below the target (without one: while the return does not rise), the entropy is under 25 "
    "% of a uniform policy's (a Box: the standard deviation is 12 times smaller), for 5 % of the "
    "budget",
    meaning="The policy stopped exploring before it found a good solution.",
    advice=_explore,
    lasting=Lasting(rows=5, share=0.05),
)
def entropy_collapse(h: History, entropy: float) -> Seen:
    if h.value(ALPHA) is not None:
        return None  # with a learnt temperature the entropy is held at its target
    n_numbers = h.settings.n_action_numbers
    # The space gives the entropy at the beginning even if the first update ruined the policy.
    first = h.settings.uniform_entropy if n_numbers is None else h.entropy_at_first
    if first is None:
        return None
    if n_numbers is not None:
        is_high, compared = first - entropy <= NARROWER * n_numbers, f"{first:.3g} at the beginning"
        return "" if h.seems_solved or is_high else f"entropy {entropy:.3g} nats, {compared}"
    if h.seems_solved or entropy >= LOW_ENTROPY * first:
        return ""
    return f"entropy {entropy:.3g} nats; a uniform policy has {first:.3g}"


def _is_collapsed(h: History) -> bool:
    """A policy without entropy makes small updates; that is not what is wrong with it."""
    entropy, first = h.value(ENTROPY), h.settings.uniform_entropy
    return entropy is not None and first is not None and entropy < 0.05 * first


@Rule(
    "train/roll/actions/mean",
    ("train/roll/actions/std", "train/opt/loss/policy"),
    when="in the first epoch some action is much more or less frequent than the others; a Box: the "
    "actions are far from 0 or have hardly any spread",
    meaning="The untrained policy already prefers some actions: the observations are large, or "
    "log_std_init or a plugin's head does not fit.",
    advice="normalize_obs: rolling; log_std_init: 0 for continuous actions",
)
def initial_actions(h: History, mean: float, std: float, loss: float) -> Seen:
    """Only the first epoch of a policy gradient: its actions come from the untrained policy."""
    if h.value("epoch") != 1 or h.value(Q) is not None:
        return None
    if h.settings.config.get("init_from_run") or (h.value("train/roll/actions/legal") or 1.0) < 1.0:
        return None
    if h.settings.n_action_numbers is not None:
        if abs(mean) <= 0.5 and 0.05 <= std <= 2.0:
            return ""
        return f"first actions have mean {mean:.2g} and standard deviation {std:.2g} (-1 to 1)"
    fractions = [h.value(name) or 0.0 for name in h.row if name.startswith(HISTOGRAM)]
    n_samples = h.value("train/roll/env_steps") or 0.0
    is_known = h.settings.n_actions is not None and len(fractions) >= 2 and n_samples >= 1
    if not is_known or abs(sum(fractions) - 1.0) > 1e-6:
        return None
    fair = 1.0 / len(fractions)
    noise = 4.0 * math.sqrt(fair * (1.0 - fair) / n_samples)
    worst = max(fractions, key=lambda fraction: abs(fraction - fair))
    if abs(worst - fair) <= 0.3 * fair + noise:
        return ""
    which = fractions.index(worst)
    return f"action {which} was {worst:.0%} of the first actions, {fair:.0%} would be uniform"


@Rule(
    KL,
    when="the median approx_kl of 10 updates is above 0.05, or that of one update above 2",
    meaning="Each update changes the policy too much; learning becomes unstable.",
    advice=lambda h: f"{_lower_lr(h)}; or target_kl: 0.02, or fewer n_epochs",
    lasting=Lasting(rows=3),
    at_once=lambda h: (h.value(KL) or 0.0) > FAR_TOO_FAR,
)
def kl_high(h: History, kl: float) -> Seen:
    recent = h.recent(KL)
    if kl > FAR_TOO_FAR:
        return f"approx_kl {kl:.3g} nats in one update"
    if recent is None or recent <= 0.05:
        return ""
    return f"approx_kl {recent:.3g} nats per update, median of 10"


@Rule(
    KL,
    when="approx_kl is below 0.0001 for 5 % of the budget while the learning rate is not yet low "
    "and the target is not reached",
    meaning="Updates hardly change the policy.",
    advice=lambda h: f"{_higher_lr(h)}; or more n_epochs",
    lasting=Lasting(rows=10, share=0.05),
)
def kl_low(h: History, kl: float) -> Seen:
    is_low = kl < 1e-4 and h.learns_fast and not h.is_good and not _is_collapsed(h)
    return f"approx_kl {kl:.1e} nats per update" if is_low else ""


@Rule(
    CLIPPED,
    when="the median clip fraction of 10 updates is above 0.6, while the clip range is not "
    "scheduled towards 0",
    meaning="Most samples have left the clip range and no longer teach anything.",
    advice=lambda h: f"{_lower_lr(h)}; or fewer n_epochs, or a larger batch_size or clip_range",
    lasting=Lasting(rows=3),
)
def clip_fraction_high(h: History, clipped: float) -> Seen:
    recent = h.recent(CLIPPED)
    if recent is None:
        return None
    is_high = recent > 0.6 and h.clips_wide
    return f"{recent:.0%} of the samples are clipped, median of 10 updates" if is_high else ""


@Rule(
    CLIPPED,
    when="fewer than 0.1 % of the samples are clipped for 10 % of the budget, and the return does "
    "not rise",
    meaning="Updates are so small that the clip range never matters.",
    advice=lambda h: f"{_higher_lr(h)}; or more n_epochs",
    lasting=Lasting(rows=20, share=0.1),
)
def clip_fraction_low(h: History, clipped: float) -> Seen:
    is_low = clipped < 1e-3 and h.learns_fast and not _is_collapsed(h)
    is_low = is_low and not h.is_good and not h.has_improved
    return f"{clipped:.2%} of the samples are clipped" if is_low else ""


@Rule(
    VALUE_CLIPPED,
    when="clip_range_vf limits more than half of the values in 5 updates in a row",
    meaning="clip_range_vf is small for returns of this size; the critic learns slowly.",
    advice="clip_range_vf: null, or a larger one, or normalize_reward: true",
    lasting=Lasting(rows=5),
)
def value_clip_high(h: History, clipped: float) -> Seen:
    return f"{clipped:.0%} of the values moved beyond clip_range_vf" if clipped > 0.5 else ""


@Rule(
    NAIVE_KL,
    (KL,),
    when="the two estimates of the KL differ by more than half of the larger one and more than "
    "their noise, in 5 updates in a row",
    meaning="A few samples changed their probability by a lot, or the rollout was collected by "
    "another policy than the one that learns.",
    advice=lambda h: f"{_lower_lr(h)}; check a plugin that changes actions after sampling",
    lasting=Lasting(rows=5),
)
def kl_disagree(h: History, naive: float, kl: float) -> Seen:
    # -log r has the mean KL and, for a small step, the variance 2 KL.
    noise = 4.0 * math.sqrt(2.0 * max(kl, 0.0) / max(1, h.settings.rollout_size))
    is_apart = kl > 0.02 and abs(naive - kl) > max(0.5 * max(kl, naive), noise)
    return f"KL estimated as {kl:.3g} by approx_kl and as {naive:.3g} by kl" if is_apart else ""


# -- values ---------------------------------------------------------------------------------------


@Rule(
    EXPLAINED,
    when="the median explained variance of 10 updates is below -0.05 for 5 % of the budget",
    meaning="The critic predicts worse than a constant: its learning rate is too high, or the "
    "returns are too large for it.",
    advice=lambda h: (
        f"{h.settings.command('--normalize-reward')}; or a lower policy_lr, or share_trunk: false"
    ),
    lasting=Lasting(rows=3, share=0.05, warm_up=0.05),
)
def explained_variance_negative(h: History, explained: float) -> Seen:
    recent = h.recent(EXPLAINED)
    if recent is None:
        return None
    return f"explained variance {recent:.2f}, median of 10 updates" if recent < -0.05 else ""


@Rule(
    EXPLAINED,
    is_of_any_row=True,
    when="the advantages, or the returns that the critic learns, do not vary",
    meaning="All actions look equally good: a constant reward, gamma 0, or a dead environment.",
    advice=lambda h: (
        "check the reward (gsolve doctor env ID) and gamma; "
        f"{h.settings.command('--gamma', '0.99')}"
    ),
    lasting=Lasting(rows=3),
)
def no_signal(h: History) -> Seen:
    """Advantages without variance, or returns without: then the explained variance is null or
    meaningless."""
    if EXPLAINED not in h.row:
        return None
    if h.row[EXPLAINED] is None:
        return "the returns that the critic learns do not vary"
    size = 1.0 + abs(h.value("train/roll/return/mean") or 0.0)
    spreads = {"returns that the critic learns": h.value("train/roll/return/std")}
    spreads |= {"advantages": h.value("train/roll/adv/std")}
    if None in spreads.values():
        return None  # a row without details
    for what, spread in spreads.items():
        if spread is not None and spread <= 1e-5 * size:
            return f"the {what} do not vary (standard deviation {spread:.1e})"
    return ""


def _q_limit(h: History) -> float | None:
    """What no discounted return can exceed by far."""
    gamma = h.settings.number("gamma")
    if gamma is None or gamma >= 1.0:
        return None
    horizon = 1.0 / (1.0 - gamma)
    bonus = abs((h.value(ALPHA) or 0.0) * (h.value(ENTROPY) or 0.0))
    if h.settings.config.get("normalize_reward"):
        clip = h.settings.number("clip_reward")
        return None if clip is None else 2.0 * (clip + bonus) * horizon
    if not h.largest_reward:
        return None
    limit = 2.0 * (h.largest_reward + bonus) * horizon
    if h.highest_return >= h.lowest_return:
        returns = max(abs(h.highest_return), abs(h.lowest_return), h.largest_reward)
        limit = min(limit, 10.0 * returns + 2.0 * bonus * horizon)
    return limit


@Rule(
    Q,
    when="the mean Q-value is far beyond what rewards and gamma allow: 2 times the largest reward "
    "/ (1 - gamma), or 10 times the largest return",
    meaning="Bootstrapped values feed on themselves.",
    advice="a lower policy_lr; slower targets (target_update_freq, tau); double: true with dqn; "
    "normalize_reward: true; a smaller max_grad_norm",
    lasting=Lasting(rows=2),
)
def q_diverging(h: History, q: float) -> Seen:
    limit = _q_limit(h)
    if limit is None:
        return None
    if abs(q) <= limit:
        return ""
    return (
        f"mean Q-value {q:,.4g}; returns so far are between {h.lowest_return:,.4g} and "
        f"{h.highest_return:,.4g}"
    )


@Rule(
    ALPHA,
    (ENTROPY,),
    when="the entropy bonus is more than 5 times as large as the rewards, for 10 % of the budget",
    meaning="The policy is paid for being random and hardly for the reward.",
    advice=lambda h: (
        f"{h.settings.command('--ent-coef', 'auto_0.1')}; or a lower target_entropy, or "
        "log_alpha_max: 0"
    ),
    lasting=Lasting(rows=3, share=0.1, warm_up=0.1),
)
def alpha_high(h: History, alpha: float, entropy: float) -> Seen:
    if not h.reward_size or h.settings.config.get("normalize_reward") or h.is_good:
        return None
    bonus = alpha * max(1.0, abs(entropy))
    if bonus <= 5.0 * h.reward_size:
        return ""
    return f"the entropy bonus is {bonus:,.3g} per step, rewards are about {h.reward_size:,.3g}"


@Rule(
    ALPHA,
    when="a learnt alpha is below 0.00001 of the rewards for 10 % of the budget, below the target "
    "return",
    meaning="The temperature collapsed: entropy no longer counts, exploration ends.",
    advice="log_alpha_min: -5; a lower alpha_lr; a higher target_entropy (target_entropy_ratio for "
    "discrete actions)",
    lasting=Lasting(rows=3, share=0.1, warm_up=0.1),
)
def alpha_low(h: History, alpha: float) -> Seen:
    is_learnt = str(h.settings.config.get("ent_coef", "")).startswith("auto")
    if not is_learnt or not h.reward_size:
        return None
    if alpha >= 1e-5 * h.reward_size or h.is_good:
        return ""
    return f"alpha {alpha:.1e}, rewards are about {h.reward_size:,.3g}"


# -- replay, networks, observations ---------------------------------------------------------------


@Rule(
    EVENNESS,
    when="prioritised replay uses less than 1 % of its transitions, or all priorities are equal, "
    "in 3 measurements in a row",
    meaning="A few huge TD errors crowd out everything else, or no TD error was ever set.",
    advice="a lower per_alpha; normalize_reward: true; loss: huber",
    lasting=Lasting(rows=3, warm_up=0.05),
)
def priorities_degenerate(h: History, evenness: float) -> Seen:
    if evenness < 0.01:
        return f"sampling is as uneven as if only {evenness:.2%} of the transitions were used"
    return "all priorities are equal" if evenness > 1.0 - 1e-9 else ""


@Rule(
    DEAD,
    (WORST,),
    when="more than 65 % of the hidden units, or 90 % of a layer, hardly vary over a batch, in 3 "
    "measurements in a row",
    meaning="A learning rate that is too high killed the units (ReLU) or saturated them (tanh); or "
    "observations are far too large.",
    advice="a lower policy_lr; normalize_obs: rolling; activation: tanh or silu instead of relu; "
    "layer_norm: true where the algorithm has it",
    lasting=Lasting(rows=3),
)
def dead_units(h: History, dead: float, worst: float) -> Seen:
    if dead <= MANY_DEAD and worst < MANY_IN_A_LAYER:
        return ""
    return f"{dead:.0%} of the hidden units are dead, {worst:.0%} in the worst layer"


@Rule(
    OUTSIDE,
    when="more than 0.1 % of the observed numbers are outside the bounds of the observation space, "
    "in 2 measurements in a row",
    meaning="The observation space of the environment or of a wrapper is declared wrongly; static "
    "normalisation would be wrong as well.",
    advice=lambda h: (
        "correct the space, or normalize_obs: rolling, which does not use it; "
        f"`gsolve doctor env {h.settings.config.get('env_id')}` shows where"
    ),
    lasting=Lasting(rows=2),
)
def observations_outside(h: History, outside: float) -> Seen:
    if outside <= 1e-3:
        return ""
    return f"{outside:.2%} of the observed numbers are outside the bounds of the space"


@Rule(
    NORMS[0],
    when="the gradient norm is above 10,000 times max_grad_norm in 5 updates in a row",
    meaning="Returns or observations are far too large; clipping keeps only the direction of the "
    "largest term, usually the critic's.",
    advice=lambda h: (
        f"{h.settings.command('--normalize-reward')}; or a smaller vf_coef, or normalize_obs: "
        "rolling"
    ),
    lasting=Lasting(rows=5),
)
def gradients_huge(h: History, norm: float) -> Seen:
    limit = h.settings.number("max_grad_norm")
    if limit is None:
        return None
    return "" if norm <= HUGE * limit else f"the gradient norm is {norm:,.3g}, clipped to {limit:g}"
