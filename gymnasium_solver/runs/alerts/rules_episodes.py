"""Rules about the run itself (numbers that cannot be, the clock, the speed), returns and
episodes."""

from statistics import median

from gymnasium_solver.runs.alerts.history import BEST, FPS, N_SPEEDS, SCORE, History
from gymnasium_solver.runs.alerts.rule import Lasting, Rule, Seen
from gymnasium_solver.runs.files import finite
from gymnasium_solver.runs.metrics import describe

LENGTH, CUT = "train/roll/ep_len/mean", "train/roll/ep_truncated"
VAL, PLATEAU = "val/roll/ep_rew/mean", "train/plateau/env_steps"
EPISODES = "train/cnt/total_episodes"
STALLED_SHARE = 0.4
LEAST_EPISODES = 100
SLOWER = 3.0
LEAST_SECONDS = 30.0


@Rule(
    "train/opt/loss/total",
    is_of_any_row=True,
    when="a logged value is NaN or infinite, or the run ended because of one",
    meaning="The update overflowed, or the environment returned NaN or infinity.",
    advice=lambda h: (
        "lower policy_lr or max_grad_norm, or normalize_obs: rolling and normalize_reward: true; "
        f"`gsolve doctor env {h.settings.config.get('env_id')}` checks the environment"
    ),
)
def not_finite(h: History) -> Seen:
    wrong = [name for name in h.odd if finite(h.row[name]) is None]
    wrong = [name for name in wrong if not describe(name).may_be_null]
    if not wrong:
        return ""
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    return f"not finite: {', '.join(wrong[:3])}{more}"


@Rule(
    "train/cnt/total_env_steps",
    is_of_any_row=True,
    when="env_steps does not grow from one row to the next",
    meaning="An epoch collected nothing, or two processes write to one run folder.",
    advice="stop the other process, or continue with `gsolve train --resume RUN`",
)
def clock_stalled(h: History) -> Seen:
    now, before = h.value("env_steps"), h.steps_before
    if before is None or now is None:
        return None
    return f"env_steps went from {before:,.0f} to {now:,.0f}" if now <= before else ""


@Rule(
    "train/opt/value/explained_var",
    is_of_any_row=True,
    when="a metric is outside the bounds that it is declared with (gsolve metrics --json), such as "
    "an explained variance above 1",
    meaning="The number is impossible: a bug in an algorithm, a wrapper or a plugin.",
    advice="check the code that computes it; report it if it is not your own",
)
def bound_violated(h: History) -> Seen:
    for name in h.odd:
        value, (low, high) = h.value(name), describe(name).bounds
        if value is None:
            continue
        if high is not None and value > high:
            return f"{name} is {value:,.6g}, above its highest possible value {high:g}"
        return f"{name} is {value:,.6g}, below its lowest possible value {low:g}"
    return ""


@Rule(
    FPS,
    when="the median speed of the last 20 epochs is below a third of that of the first 20, after "
    "30 s, while the machine is not busy with other processes",
    meaning="The environment became slower, memory is short, or the device is throttled.",
    advice="`gsolve train --resume RUN --profile` shows where the time goes; look at the free "
    "memory",
    lasting=Lasting(rows=5),
)
def throughput_falling(h: History, fps: float) -> Seen:
    if h.n_rows < 3 * N_SPEEDS or len(h.early_speeds) < N_SPEEDS:
        return None
    if (h.value("wall_s") or 0.0) < LEAST_SECONDS:
        return None
    now, first = median(h.speeds), h.speed_at_first
    if now * SLOWER > first or h.is_machine_busy:
        return ""
    return f"{now:,.0f} env steps/s, {first:,.0f} at the beginning"


def _more_exploration(h: History) -> str:
    if h.peak_kl > 0.5:
        return "a much lower policy_lr"
    if h.value("train/opt/policy/entropy") is not None:
        return h.settings.command("--ent-coef", "0.01")
    return "explore longer (epsilon, exploration_noise, noise_correlation)"


@Rule(
    SCORE,
    (PLATEAU, BEST),
    when="no new best mean return for 40 % of the budget, below the target (threshold or reference "
    "return); without a target, only if the mean never rose above the first one",
    meaning="The policy is stuck: too little exploration, a learning rate that is too low or too "
    "high, or a reward that is too sparse.",
    advice=lambda h: (
        f"{_more_exploration(h)}; or another policy_lr, or normalize_obs: rolling and "
        "normalize_reward: true"
    ),
    lasting=Lasting(rows=5),
)
def reward_stalled(h: History, score: float, since: float, best: float) -> Seen:
    total, target = h.total_steps, h.settings.target
    if not total:
        return None
    if h.seems_solved or since < STALLED_SHARE * total:
        return ""  # without a target, a plateau may be the best there is
    good = "" if target is None else f"; good is {target:,g}"
    return (
        f"no better mean return than {h.best_score:,.4g} for {since:,.0f} env steps, "
        f"{since / total:.0%} of the budget{good}"
    )


@Rule(
    SCORE,
    (BEST,),
    when="the mean return has lost more than half of what it had gained, for 10 % of the budget",
    meaning="Updates are too large for a good policy, or the policy forgot what it no longer sees.",
    advice="a schedule that lowers the learning rate, e.g. policy_lr: lin_0.0003, or target_kl: "
    "0.02 with ppo; the best checkpoint is kept: gsolve eval RUN/@best",
    lasting=Lasting(rows=10, share=0.1),
)
def reward_falling(h: History, score: float, best: float) -> Seen:
    first = h.first_score
    if first is None:
        return None
    gained, lost = h.best_score - first, h.best_score - score
    if not h.has_improved or lost < 0.5 * gained or lost < h.first_spread:
        return ""
    return f"mean return {score:,.4g}, after {h.best_score:,.4g} (it began at {first:,.4g})"


@Rule(
    SCORE,
    (EPISODES,),
    when="all episodes so far, at least 100, had the same return",
    meaning="The environment gives no signal, or the agent never meets the reward.",
    advice=lambda h: (
        f"`gsolve doctor env {h.settings.config.get('env_id')}` checks the environment; shape the "
        "reward (env_wrappers), explore more, or allow longer episodes (max_episode_steps)"
    ),
    lasting=Lasting(rows=3, warm_up=0.1),
)
def constant_return(h: History, score: float, n_episodes: float) -> Seen:
    if n_episodes < LEAST_EPISODES:
        return None
    if h.highest_return > h.lowest_return or h.is_good:
        return ""
    return f"all {n_episodes:,.0f} episodes so far returned {h.highest_return:,.4g}"


@Rule(
    LENGTH,
    (CUT, EPISODES),
    when="all episodes so far, at least 100, were truncated, and the return does not rise",
    meaning="The agent never reaches an end of the task within the time limit.",
    advice="a longer time limit (max_episode_steps), more exploration, or a shaped reward "
    "(env_wrappers)",
    lasting=Lasting(rows=3, warm_up=0.2),
)
def all_truncated(h: History, length: float, cut: float, n_episodes: float) -> Seen:
    if n_episodes < LEAST_EPISODES:
        return None
    if h.ever_terminated or h.has_improved or h.is_good:
        return ""
    return f"all {n_episodes:,.0f} episodes so far were truncated, after {length:,.0f} steps"


@Rule(
    VAL,
    (SCORE, BEST),  # without BEST there are too few training episodes to compare with
    when="two evaluations in a row are below the training return by half of what training has "
    "gained and twice the spread of its returns",
    meaning="The most likely action is worse than a sampled one, or evaluation meets other "
    "conditions than training.",
    advice="score sampled actions: eval_deterministic: false; or train longer with a smaller "
    "ent_coef, so that the policy makes up its mind",
    lasting=Lasting(rows=2, warm_up=0.1),
)
def eval_below_train(h: History, val: float, train: float, best: float) -> Seen:
    first = h.first_score
    if first is None:
        return None
    n_episodes = max(1.0, h.value("val/roll/episodes") or 1.0)
    spread = (h.value("val/roll/ep_rew/std") or 0.0) / n_episodes**0.5
    spread += 2.0 * (h.value("train/roll/ep_rew/std") or 0.0)
    if train - val < 0.5 * abs(train - first) + spread:
        return ""
    return f"evaluation {val:,.4g}, training {train:,.4g}"


@Rule(
    LENGTH,
    when="gamma looks at most 3 steps ahead, episodes last 10 steps or more, and the return does "
    "not rise",
    meaning="Rewards that come later than the next steps are ignored.",
    advice=lambda h: h.settings.command("--gamma", "0.99"),
    lasting=Lasting(rows=3, warm_up=0.2),
)
def short_horizon(h: History, length: float) -> Seen:
    gamma = h.settings.number("gamma")
    if gamma is None:
        return None
    horizon = 1.0 / max(1e-9, 1.0 - gamma)
    if horizon > 3.0 or length < 10 or h.has_improved or h.is_good:
        return ""
    return f"gamma {gamma:g} looks {horizon:.1f} steps ahead; episodes last {length:,.0f} steps"
