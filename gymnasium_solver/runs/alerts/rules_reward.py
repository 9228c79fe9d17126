"""Rules about returns and episodes."""

from gymnasium_solver.runs.alerts.history import SCORE, History
from gymnasium_solver.runs.alerts.rule import Rule, Seen

LENGTH, CUT = "train/roll/ep_len/mean", "train/roll/ep_truncated"
VAL = "val/roll/ep_rew/mean"
STALLED_SHARE = 0.4
LEAST_EPISODES = 100


def _target_text(h: History) -> str:
    return "" if h.facts.target is None else f"; good is {h.facts.target:,g}"


def _stalled(h: History) -> Seen:
    since, total = h.value("train/plateau/env_steps"), h.total_steps
    if since is None or not total or h.value("train/roll/ep_rew/best") is None:
        return None
    if h.seems_solved or since < STALLED_SHARE * total:
        return ""  # without a target, a plateau may be the best there is
    return (
        f"no better mean return than {h.best_score:,.4g} for {since:,.0f} env steps, "
        f"{since / total:.0%} of the budget{_target_text(h)}"
    )


def _falling(h: History) -> Seen:
    score, first = h.value(SCORE), h.first_score
    if score is None or first is None or h.value("train/roll/ep_rew/best") is None:
        return None
    gained, lost = h.best_score - first, h.best_score - score
    if not h.has_improved or lost < 0.5 * gained or lost < h.first_spread:
        return ""
    return f"mean return {score:,.4g}, after {h.best_score:,.4g} (it began at {first:,.4g})"


def _constant(h: History) -> Seen:
    n_episodes = h.value("train/cnt/total_episodes") or 0
    if h.value(SCORE) is None or n_episodes < LEAST_EPISODES:
        return None
    if h.highest_return > h.lowest_return or h.is_good:
        return ""
    return f"all {n_episodes:,.0f} episodes so far returned {h.highest_return:,.4g}"


def _all_truncated(h: History) -> Seen:
    n_episodes, length = h.value("train/cnt/total_episodes") or 0, h.value(LENGTH)
    if h.value(CUT) is None or length is None or n_episodes < LEAST_EPISODES:
        return None
    if h.ever_terminated or h.has_improved or h.is_good:
        return ""
    return f"all {n_episodes:,.0f} episodes so far were truncated, after {length:,.0f} steps"


def _eval_below(h: History) -> Seen:
    val, train, first = h.value(VAL), h.value(SCORE), h.first_score
    if val is None or train is None or first is None:
        return None
    if h.value("train/roll/ep_rew/best") is None:
        return None  # too few training episodes to compare with
    n_episodes = max(1.0, h.value("val/roll/episodes") or 1.0)
    spread = (h.value("val/roll/ep_rew/std") or 0.0) / n_episodes**0.5
    spread += 2.0 * (h.value("train/roll/ep_rew/std") or 0.0)
    if train - val < 0.5 * abs(train - first) + spread:
        return ""
    return f"evaluation {val:,.4g}, training {train:,.4g}"


def _short_horizon(h: History) -> Seen:
    gamma, length = h.facts.number("gamma"), h.value(LENGTH)
    if gamma is None or length is None:
        return None
    horizon = 1.0 / max(1e-9, 1.0 - gamma)
    if horizon > 3.0 or length < 10 or h.has_improved or h.is_good:
        return ""
    return f"gamma {gamma:g} looks {horizon:.1f} steps ahead; episodes last {length:,.0f} steps"


def _more_exploration(h: History) -> str:
    if h.peak_kl > 0.5:
        return "a much lower policy_lr"
    if h.value("train/opt/policy/entropy") is not None:
        return h.facts.command("--ent-coef", "0.01")
    return "explore longer (epsilon, exploration_noise, noise_correlation)"


RULES = (
    Rule(
        "reward_stalled",
        _stalled,
        SCORE,
        when="no new best mean return for 40 % of the budget, below the target (threshold or "
        "reference return); without a target, only if the mean never rose above the first one",
        meaning="The policy is stuck: too little exploration, a learning rate that is too low or "
        "too high, or a reward that is too sparse.",
        advice=lambda h: (
            f"{_more_exploration(h)}; or another policy_lr, or normalize_obs: rolling and "
            "normalize_reward: true"
        ),
        rows=5,
    ),
    Rule(
        "reward_falling",
        _falling,
        SCORE,
        when="the mean return has lost more than half of what it had gained, for 10 % of the "
        "budget",
        meaning="Updates are too large for a good policy, or the policy forgot what it no longer "
        "sees.",
        advice=lambda h: (
            "a schedule that lowers the learning rate, e.g. policy_lr: lin_0.0003, or target_kl: "
            "0.02 with ppo; the best checkpoint is kept: gsolve eval RUN/@best"
        ),
        rows=10,
        share=0.1,
    ),
    Rule(
        "constant_return",
        _constant,
        SCORE,
        when="all episodes so far, at least 100, had the same return",
        meaning="The environment gives no signal, or the agent never meets the reward.",
        advice=lambda h: (
            f"`gsolve doctor env {h.facts.config.get('env_id')}` checks the environment; shape the "
            "reward (env_wrappers), explore more, or allow longer episodes (max_episode_steps)"
        ),
        rows=3,
        warm_up=0.1,
    ),
    Rule(
        "all_truncated",
        _all_truncated,
        LENGTH,
        when="all episodes so far, at least 100, were truncated, and the return does not rise",
        meaning="The agent never reaches an end of the task within the time limit.",
        advice=lambda h: (
            "a longer time limit (max_episode_steps), more exploration, or a shaped reward "
            "(env_wrappers)"
        ),
        rows=3,
        warm_up=0.2,
    ),
    Rule(
        "eval_below_train",
        _eval_below,
        VAL,
        when="two evaluations in a row are below the training return by half of what training has "
        "gained and twice the spread of its returns",
        meaning="The most likely action is worse than a sampled one, or evaluation meets other "
        "conditions than training.",
        advice=lambda h: (
            "score sampled actions: eval_deterministic: false; or train longer with a smaller "
            "ent_coef, so that the policy makes up its mind"
        ),
        rows=2,
        warm_up=0.1,
    ),
    Rule(
        "short_horizon",
        _short_horizon,
        LENGTH,
        when="gamma looks at most 3 steps ahead, episodes last 10 steps or more, and the return "
        "does not rise",
        meaning="Rewards that come later than the next steps are ignored.",
        advice=lambda h: h.facts.command("--gamma", "0.99"),
        rows=3,
        warm_up=0.2,
    ),
)
