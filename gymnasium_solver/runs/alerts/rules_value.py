"""Rules about values, networks and the replay buffer."""

from gymnasium_solver.runs.alerts.history import ENTROPY, EXPLAINED, History
from gymnasium_solver.runs.alerts.rule import Rule, Seen

Q, ALPHA = "train/opt/q/mean", "train/opt/policy/alpha"
NORM, CRITIC_NORM = "train/opt/grads/norm/all", "train/opt/grads/norm/critic"
DEAD, WORST = "train/opt/activations/dead", "train/opt/activations/dead_max"
EVENNESS, OUTSIDE = "train/opt/replay/priority_evenness", "train/roll/obs/outside"
MANY_DEAD, MANY_IN_A_LAYER = 0.65, 0.9
HUGE = 1e4  # times max_grad_norm


def _explained(h: History) -> Seen:
    recent = h.recent(EXPLAINED)
    if recent is None:
        return None
    return f"explained variance {recent:.2f}, median of 10 updates" if recent < -0.05 else ""


def _no_signal(h: History) -> Seen:
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
    gamma = h.facts.number("gamma")
    if gamma is None or gamma >= 1.0:
        return None
    horizon = 1.0 / (1.0 - gamma)
    bonus = abs((h.value(ALPHA) or 0.0) * (h.value(ENTROPY) or 0.0))
    if h.facts.config.get("normalize_reward"):
        clip = h.facts.number("clip_reward")
        return None if clip is None else 2.0 * (clip + bonus) * horizon
    if not h.largest_reward:
        return None
    limit = 2.0 * (h.largest_reward + bonus) * horizon
    if h.highest_return >= h.lowest_return:
        returns = max(abs(h.highest_return), abs(h.lowest_return), h.largest_reward)
        limit = min(limit, 10.0 * returns + 2.0 * bonus * horizon)
    return limit


def _q_diverging(h: History) -> Seen:
    q = h.value(Q)
    limit = None if q is None else _q_limit(h)
    if q is None or limit is None:
        return None
    if abs(q) <= limit:
        return ""
    return (
        f"mean Q-value {q:,.4g}; returns so far are between {h.lowest_return:,.4g} and "
        f"{h.highest_return:,.4g}"
    )


def _alpha_high(h: History) -> Seen:
    alpha, entropy = h.value(ALPHA), h.value(ENTROPY)
    if alpha is None or entropy is None or not h.reward_size:
        return None
    if h.facts.config.get("normalize_reward") or h.is_good:
        return None
    bonus = alpha * max(1.0, abs(entropy))
    if bonus <= 5.0 * h.reward_size:
        return ""
    return f"the entropy bonus is {bonus:,.3g} per step, rewards are about {h.reward_size:,.3g}"


def _alpha_low(h: History) -> Seen:
    alpha = h.value(ALPHA)
    is_learnt = str(h.facts.config.get("ent_coef", "")).startswith("auto")
    if alpha is None or not is_learnt or not h.reward_size:
        return None
    if alpha >= 1e-5 * h.reward_size or h.is_good:
        return ""
    return f"alpha {alpha:.1e}, rewards are about {h.reward_size:,.3g}"


def _priorities(h: History) -> Seen:
    evenness = h.value(EVENNESS)
    if evenness is None:
        return None
    if evenness < 0.01:
        return f"sampling is as uneven as if only {evenness:.2%} of the transitions were used"
    if evenness > 1.0 - 1e-9:
        return "all priorities are equal"
    return ""


def _dead(h: History) -> Seen:
    dead, worst = h.value(DEAD), h.value(WORST)
    if dead is None or worst is None:
        return None
    if dead <= MANY_DEAD and worst < MANY_IN_A_LAYER:
        return ""
    return f"{dead:.0%} of the hidden units are dead, {worst:.0%} in the worst layer"


def _outside(h: History) -> Seen:
    outside = h.value(OUTSIDE)
    if outside is None:
        return None
    if outside <= 1e-3:
        return ""
    return f"{outside:.2%} of the observed numbers are outside the bounds of the space"


def _gradients(h: History) -> Seen:
    limit = h.facts.number("max_grad_norm")
    norm = h.value(NORM) or h.value(CRITIC_NORM)
    if limit is None or norm is None:
        return None
    if norm <= HUGE * limit:
        return ""
    return f"the gradient norm is {norm:,.3g}, clipped to {limit:g}"


RULES = (
    Rule(
        "explained_variance_negative",
        _explained,
        EXPLAINED,
        when="the median explained variance of 10 updates is below -0.05 for 5 % of the budget",
        meaning="The critic predicts worse than a constant: its learning rate is too high, or the "
        "returns are too large for it.",
        advice=lambda h: (
            f"{h.facts.command('--normalize-reward')}; or a lower policy_lr, or share_trunk: false"
        ),
        rows=3,
        share=0.05,
        warm_up=0.05,
    ),
    Rule(
        "no_signal",
        _no_signal,
        EXPLAINED,
        when="the advantages, or the returns that the critic learns, do not vary",
        meaning="All actions look equally good: a constant reward, gamma 0, or a dead environment.",
        advice=lambda h: (
            "check the reward (gsolve doctor env ID) and gamma; "
            f"{h.facts.command('--gamma', '0.99')}"
        ),
        rows=3,
    ),
    Rule(
        "q_diverging",
        _q_diverging,
        Q,
        when="the mean Q-value is far beyond what rewards and gamma allow: 2 times the largest "
        "reward / (1 - gamma), or 10 times the largest return",
        meaning="Bootstrapped values feed on themselves.",
        advice=lambda h: (
            "a lower policy_lr; slower targets (target_update_freq, tau); double: true with dqn; "
            "normalize_reward: true; a smaller max_grad_norm"
        ),
        rows=2,
    ),
    Rule(
        "alpha_high",
        _alpha_high,
        ALPHA,
        when="the entropy bonus is more than 5 times as large as the rewards, for 10 % of the "
        "budget",
        meaning="The policy is paid for being random and hardly for the reward.",
        advice=lambda h: (
            f"{h.facts.command('--ent-coef', 'auto_0.1')}; or a lower target_entropy, or "
            "log_alpha_max: 0"
        ),
        rows=3,
        share=0.1,
        warm_up=0.1,
    ),
    Rule(
        "alpha_low",
        _alpha_low,
        ALPHA,
        when="a learnt alpha is below 0.00001 of the rewards for 10 % of the budget, below the "
        "target return",
        meaning="The temperature collapsed: entropy no longer counts, exploration ends.",
        advice=lambda h: (
            "log_alpha_min: -5; a lower alpha_lr; a higher target_entropy "
            "(target_entropy_ratio for discrete actions)"
        ),
        rows=3,
        share=0.1,
        warm_up=0.1,
    ),
    Rule(
        "priorities_degenerate",
        _priorities,
        EVENNESS,
        when="prioritised replay uses less than 1 % of its transitions, or all priorities are "
        "equal, in 3 measurements in a row",
        meaning="A few huge TD errors crowd out everything else, or no TD error was ever set.",
        advice=lambda h: "a lower per_alpha; normalize_reward: true; loss: huber",
        rows=3,
        warm_up=0.05,
    ),
    Rule(
        "dead_units",
        _dead,
        DEAD,
        when="more than 65 % of the hidden units, or 90 % of a layer, hardly vary over a batch, in "
        "3 measurements in a row",
        meaning="A learning rate that is too high killed the units (ReLU) or saturated them "
        "(tanh); or observations are far too large.",
        advice=lambda h: (
            "a lower policy_lr; normalize_obs: rolling; activation: tanh or silu instead of relu; "
            "layer_norm: true where the algorithm has it"
        ),
        rows=3,
    ),
    Rule(
        "observations_outside",
        _outside,
        OUTSIDE,
        when="more than 0.1 % of the observed numbers are outside the bounds of the observation "
        "space, in 2 measurements in a row",
        meaning="The observation space of the environment or of a wrapper is declared wrongly; "
        "static normalisation would be wrong as well.",
        advice=lambda h: (
            "correct the space, or normalize_obs: rolling, which does not use it; "
            f"`gsolve doctor env {h.facts.config.get('env_id')}` shows where"
        ),
        rows=2,
    ),
    Rule(
        "gradients_huge",
        _gradients,
        NORM,
        when="the gradient norm is above 10,000 times max_grad_norm in 5 updates in a row",
        meaning="Returns or observations are far too large; clipping keeps only the direction of "
        "the largest term, usually the critic's.",
        advice=lambda h: (
            f"{h.facts.command('--normalize-reward')}; or a smaller vf_coef, or normalize_obs: "
            "rolling"
        ),
        rows=5,
    ),
)
