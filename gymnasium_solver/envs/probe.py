"""Measures an environment before anything is chosen for it: seconds of random actions.

    found = probe("Pendulum-v1", {})
    found.horizon, found.random_mean, found.reward_density, found.hidden, found.step_us

Nothing here looks at the name of the environment. Random steps come from a fixed seed, and their
number from a budget in steps, so that only the costs of a step differ from one call to the next.
Only a limit in seconds makes the number depend on the machine.
"""

import math
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any

import numpy as np

from gymnasium_solver.envs.catalogue import space_text
from gymnasium_solver.envs.env_findings import examine, steps_per_s
from gymnasium_solver.envs.make import env_from_fields
from gymnasium_solver.envs.random_steps import Rollout, ambiguity, random_episodes, record
from gymnasium_solver.envs.spec import eval_envs
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import EnvError
from gymnasium_solver.spaces.observations import (
    ACHIEVED,
    DESIRED,
    is_image,
    obs_arrays,
    part_spaces,
)
from gymnasium_solver.spaces.space_types import bounded, choices, is_box, is_discrete

N_ENVS = 4
MANY_ENVS = 64
NO_LIMIT = 1000  # steps of an episode that has no limit and has not ended
SHARE = 0.02  # of the budget, in steps or seconds
FEWEST_ROWS, MOST_ROWS = 250, 4_000  # of random steps
FEWEST_EPISODES = 20
FEWEST_PAIRS = 300  # of an observation with its successor, to look for hidden state
MOST_NUMBERS = 64  # of an observation, to look for hidden state
FEATURES, RIDGE = 200, 1e-4
LAGS = (1, 2, 3, 4, 6)  # steps back, to look for what a reward recalls
SPLITS = 3  # of steps into fitted and judged ones: what holds in all of them is no luck
RECALL_ROWS = 4_000  # steps that are enough for it
WIDEST_REWARD = 5.0  # standard deviations: a few crashes may not decide
ONLY_ACTIONS = 0.99  # of by_action: what is missing is the error of the regression


@dataclass(frozen=True)
class Probe:
    """What is known of an environment after a few seconds."""

    env_id: str
    observes: str  # the observation space in words, like `acts`
    acts: str
    sees: str  # image, vector, discrete: one choice, or mixed: several kinds or choices
    moves: str  # discrete, box, or product: several numbers or choices at once
    has_masks: bool
    has_goals: bool  # goals that hindsight replay can replace
    limit: int | None  # the time limit; None: episodes end by themselves
    horizon: int  # steps of an episode: the time limit, or the longest that was seen
    threshold: float | None  # mean return that counts as solved, as registered
    episodes: int  # random episodes that ended
    random_mean: float | None  # without an ended episode: the mean reward times the time limit
    random_sd: float | None
    reward_density: float  # share of steps whose reward is not the usual one
    usual_reward: float  # the most frequent one
    terminated: float | None  # share of the episodes that ended by themselves
    ambiguous: float | None
    """Share of repeated pairs of observation and action that gave another reward."""
    history: int | None
    """Earlier steps that explain these rewards; None: none do, so that it may be chance."""
    hidden: float | None
    """How much more of the next observation is known from two steps than from one, in [0, 1]: near
    0 where observations are states, large where velocities are missing."""
    step_us: float | None
    """Microseconds per env step with one environment; None where costs are not measured."""
    many_step_us: float | None  # the same with 64 of them
    engine: str
    steps: int
    seconds: float
    problems: tuple[str, ...] = field(default=())
    """What is wrong with the environment (gsolve doctor env)."""
    by_action: float | None = None
    """Share of the variance of the rewards that a real-valued action alone explains: near 1, no
    reward for a state was met, only costs of moving. None where it cannot be told."""
    rewarded: float | None = None
    """Share of the random episodes that met another reward than the usual one."""
    is_bounded: bool = True  # every real-valued action has two finite bounds
    recalled: float | None = None
    """How much more of the variance of the rewards is known with one earlier observation, or the
    sum of all, than from the last one. None where it cannot be told."""


def from_dict(found: Mapping[str, Any]) -> Probe:
    return Probe(**{**found, "problems": tuple(found["problems"])})


def probe_text(p: Probe) -> str:
    """What was measured, in one line."""
    limit = f"limit {p.limit:,}" if p.limit else f"no limit, up to {p.horizon:,} steps"
    random = "no random episode has ended"
    if p.random_mean is not None:
        spread = "" if p.random_sd is None else f" ± {p.random_sd:,.4g}"
        random = f"random actions return {p.random_mean:,.4g}{spread}"
    reward = f"reward {p.usual_reward:g} in all steps but {p.reward_density:.2%}"
    if p.reward_density > 0.5:
        reward = "rewards differ from step to step"
    elif p.reward_density == 0:
        reward = f"reward {p.usual_reward:g} at every step"
    if p.by_action is not None and p.by_action > ONLY_ACTIONS:
        reward = "rewards depend on the action alone"
    cost = "" if p.step_us is None else f"{p.step_us:.0f} us/step, "
    return f"{p.observes} -> {p.acts}, {limit}, {cost}{reward}, {random}"


def probe(
    env_id: str,
    given: Mapping[str, Any] | None = None,
    *,
    most_steps: float = math.inf,
    most_s: float = math.inf,
    costs: bool = True,
    examines: bool = True,
) -> Probe:
    """Measure an environment with the fields about it in `given` (env_kwargs, env_wrappers, ...).
    `costs`: also the time of a step. `examines`: also look for errors in it, which takes longer.
    EnvError if it cannot be made."""
    begun_s, given = time.monotonic(), given or {}
    with closing(_env(env_id, given, N_ENVS)) as env:
        rollout, masks = _random_steps(env, most_steps, most_s), env.action_mask is not None
        step_us = _step_us(env_id, given, 1) if costs else None
        if not np.isfinite(rollout.reward).all():
            bad = rollout.reward[~np.isfinite(rollout.reward)][0]
            raise EnvError(
                f"{env_id}: random actions get a reward of {bad}. Mend the environment; gsolve "
                f"doctor env {env_id} checks it."
            )
        sees, moves = _kinds(env)
        unclear = ambiguity(rollout)
        return Probe(
            env_id=env_id,
            observes=space_text(env.observation_space),
            acts=space_text(env.action_space),
            sees=sees,
            moves=moves,
            has_masks=masks,
            has_goals=_has_goals(env),
            limit=env.spec.max_episode_steps,
            horizon=env.spec.max_episode_steps or max(rollout.lengths, default=NO_LIMIT),
            threshold=env.spec.reward_threshold,
            **_returns(rollout, env.spec.max_episode_steps or NO_LIMIT),
            **_rewards(rollout),
            rewarded=_rewarded(rollout),
            is_bounded=not is_box(env.action_space) or bool(bounded(env.action_space).all()),
            ambiguous=unclear.share,
            history=unclear.history,
            hidden=hidden_share(env.action_space, rollout),
            by_action=action_share(env.action_space, rollout),
            recalled=recalled_share(env.action_space, rollout),
            step_us=step_us,
            many_step_us=(_step_us(env_id, given, MANY_ENVS) or step_us) if costs else None,
            engine=env.spec.engine,
            steps=int(np.count_nonzero(~rollout.is_reset)),
            problems=tuple(_problems(env_id, given)) if examines else (),
            seconds=time.monotonic() - begun_s,
        )


def measured_again(p: Probe, given: Mapping[str, Any], episodes: int) -> Probe:
    """The probe with the mean return of so many complete random episodes (two at least), in place
    of those that happened to end within its few steps, which are shorter than usual."""
    found: list[float] = []
    with closing(_env(p.env_id, given, min(episodes, MANY_ENVS))) as env:
        while len(found) < episodes:
            found += random_episodes(env, seed=len(found))[0]
    if not np.isfinite(found).all():
        raise EnvError(f"{p.env_id}: a random episode has a return that is not a number.")
    return replace(p, episodes=len(found), random_mean=fmean(found), random_sd=stdev(found))


def recalled_again(p: Probe, given: Mapping[str, Any]) -> Probe:
    """The probe with what rewards recall, measured in as many random steps as this takes."""
    with closing(_env(p.env_id, given, N_ENVS)) as env:
        rollout = record(env, RECALL_ROWS // env.n_envs)
        found = recalled_share(env.action_space, rollout)
    return replace(p, recalled=found, steps=p.steps + int(np.count_nonzero(~rollout.is_reset)))


def _env(env_id: str, given: Mapping[str, Any], n_envs: int) -> VectorEnv:
    is_one = eval_envs(env_id, given.get("vectorization_mode", "auto")) == "one"
    return env_from_fields(env_id, 1 if is_one else n_envs, given)


def _random_steps(env: VectorEnv, most_steps: float, most_s: float) -> Rollout:
    """Random steps from the same start, twice as many each time, until enough episodes have ended
    or the next call could be too long."""
    begun_s, rows = time.monotonic(), FEWEST_ROWS
    while True:
        rollout = record(env, rows)
        took_s = time.monotonic() - begun_s
        is_enough = len(rollout.lengths) >= FEWEST_EPISODES and rows >= 4 * FEWEST_ROWS
        is_last = 2 * rows > MOST_ROWS or 2 * rows * env.n_envs > most_steps
        if is_enough or is_last or 3 * took_s > most_s:
            return rollout
        rows *= 2


def _kinds(env: VectorEnv) -> tuple[str, str]:
    parts = list(part_spaces(env.observation_space).values())
    kinds = {"image" if is_image(p) else "vector" if is_box(p) else "choices" for p in parts}
    sees = kinds.pop() if len(kinds) == 1 else "mixed"
    if sees == "choices":
        sees = "discrete" if len(parts) == 1 and is_discrete(parts[0]) else "mixed"
    action = env.action_space
    moves = "discrete" if is_discrete(action) else "box" if is_box(action) else "product"
    return sees, moves


def _has_goals(env: VectorEnv) -> bool:
    if not {ACHIEVED, DESIRED} <= set(part_spaces(env.observation_space)):
        return False
    try:
        env.goal_functions()
    except EnvError:
        return False
    return True


def _returns(rollout: Rollout, limit: int) -> dict[str, Any]:
    """If no episode has ended, its return would be about that of as many rewards as the limit."""
    found, n = [float(value) for value in rollout.returns], len(rollout.returns)
    by_itself = sum(end == "terminated" for end in rollout.ends)
    rewards = rollout.reward[~rollout.is_reset]
    spread = math.sqrt(limit) * float(rewards.std())
    return {
        "episodes": n,
        "random_mean": fmean(found) if n else limit * float(rewards.mean()),
        "random_sd": stdev(found) if n > 1 else None if n else spread,
        "terminated": by_itself / n if n else None,
    }


def _rewards(rollout: Rollout) -> dict[str, Any]:
    values, counts = np.unique(rollout.reward[~rollout.is_reset], return_counts=True)
    most = int(np.argmax(counts))
    return {
        "reward_density": 1.0 - float(counts[most] / counts.sum()),
        "usual_reward": float(values[most]),
    }


def _rewarded(rollout: Rollout) -> float | None:
    usual = _rewards(rollout)["usual_reward"]
    is_unusual = (rollout.reward != usual) & ~rollout.is_reset
    found: list[bool] = []
    for met, over in zip(is_unusual.T, rollout.is_over.T, strict=True):  # of one environment
        ends = np.flatnonzero(over)
        found += [bool(part.any()) for part in np.split(met, ends + 1)[: len(ends)]]
    return fmean(found) if found else None


def _step_us(env_id: str, given: Mapping[str, Any], n_envs: int) -> float:
    """Microseconds per env step; 0 if so many cannot be made."""
    try:
        env = env_from_fields(env_id, n_envs, given)
    except EnvError:
        return 0.0
    with closing(env):
        return 1e6 / steps_per_s(env)


def _problems(env_id: str, given: Mapping[str, Any]) -> list[str]:
    findings = examine(env_id, dict(given.get("env_kwargs") or {}), n_steps=400)
    return [f"{f.name}: {f.text}" for f in findings if f.level == "problem"]


# -- hidden state --------------------------------------------------------------------------------


def hidden_share(action_space: Any, rollout: Rollout) -> float | None:
    """How much more of the change of an observation can be predicted from the last two steps than
    from the last one: the median over the numbers of an observation. None where it cannot be told:
    too few steps, images, observations without numbers.

    A state and an action determine the next state up to noise, so the step before adds nothing. If
    velocities are missing, it adds what positions and actions say about them. Predictions are those
    of a ridge regression on random features, judged on steps that it has not seen."""
    if any(np.asarray(part).dtype.kind != "f" for _, part in obs_arrays(rollout.obs)):
        return None
    if (obs := _numbers(rollout.obs)) is None:
        return None
    before, now, then = obs[:-2], obs[1:-1], obs[2:]
    acts = _action_numbers(action_space, rollout.actions)
    cut = rollout.is_reset | rollout.is_over
    is_whole = ~(cut[:-2] | cut[1:-1] | rollout.is_reset[2:])
    before, now, then = (part[is_whole].astype(np.float64) for part in (before, now, then))
    last_act, act = acts[1:-1][is_whole], acts[2:][is_whole]
    if len(now) < FEWEST_PAIRS:
        return None
    change = then - now
    change = change[:, change.std(axis=0) > 1e-9]
    if not change.shape[1]:
        return None
    one = _unexplained(np.concatenate([now, act], 1), change)
    two = _unexplained(np.concatenate([now, act, now - before, last_act], 1), change)
    return float(np.clip(np.median(one - two), 0.0, 1.0))


def recalled_share(action_space: Any, rollout: Rollout) -> float | None:
    """`Probe.recalled`: by ridge regressions of the rewards, as in `hidden_share`, the least of
    several splits, and the most of several kinds of memory."""
    obs, first = _numbers(rollout.obs), _numbers(rollout.first_obs, 1)
    rows = np.flatnonzero(~rollout.is_reset.reshape(-1))[:RECALL_ROWS]
    reward = rollout.reward.reshape(-1)[rows].astype(np.float64)
    if obs is None or first is None or len(rows) < FEWEST_PAIRS or np.ptp(reward) == 0:
        return None
    wanted = np.clip((reward - reward.mean()) / reward.std(), -WIDEST_REWARD, WIDEST_REWARD)
    now = np.concatenate([first[None], obs[:-1]])  # acted on
    known = np.concatenate([now, _action_numbers(action_space, rollout.actions)], 2)

    def unexplained(*given: np.ndarray) -> np.ndarray:
        inputs = np.concatenate([g.reshape(-1, g.shape[2])[rows] for g in given], 1)
        every = [_unexplained(inputs, wanted[:, None], seed)[0] for seed in range(SPLITS)]
        return np.array(every)

    usual = unexplained(known)
    most = max(float((usual - unexplained(known, m)).min()) for m in _memories(rollout, now, known))
    return float(np.clip(most, 0.0, 1.0))


def _memories(rollout: Rollout, now: np.ndarray, known: np.ndarray) -> list[np.ndarray]:
    """What an agent could recall at each row: the first observation of the episode, the sum of the
    earlier ones, or observation and action of some steps ago; 0 before the episode began."""
    age = np.zeros(now.shape[:2], np.int64)
    begun, total = now.copy(), np.zeros_like(now)
    for row in range(1, len(now)):
        goes_on = ~rollout.is_reset[row - 1]
        age[row] = np.where(goes_on, age[row - 1] + 1, 0)
        begun[row] = np.where(goes_on[:, None], begun[row - 1], now[row])
        total[row] = np.where(goes_on[:, None], total[row - 1] + now[row - 1], 0.0)
    lagged = [np.where((age >= lag)[..., None], np.roll(known, lag, axis=0), 0.0) for lag in LAGS]
    return [begun, total, *lagged]


def _numbers(obs: Any, n_axes: int = 2) -> np.ndarray | None:
    """Observations as rows of numbers; None for large ones, for choices alone, which tell nothing
    as numbers, and where one is not finite."""
    parts = [np.asarray(part) for _, part in obs_arrays(obs)]
    width = sum(math.prod(part.shape[n_axes:]) for part in parts)
    if width > MOST_NUMBERS or all(part.dtype.kind != "f" for part in parts):
        return None
    flat = [part.reshape(*part.shape[:n_axes], -1).astype(np.float64) for part in parts]
    found = np.concatenate(flat, axis=n_axes)
    return found if np.isfinite(found).all() else None


def action_share(space: Any, rollout: Rollout) -> float | None:
    """How much of the rewards is known from the action alone; None for choices, with too few steps
    and if all rewards are equal."""
    is_step = ~rollout.is_reset
    reward = rollout.reward[is_step].astype(np.float64)
    if not is_box(space) or len(reward) < FEWEST_PAIRS or np.ptp(reward) == 0:
        return None
    acts = rollout.actions[is_step].reshape(len(reward), -1).astype(np.float64)
    reward /= reward.std()
    unexplained = _unexplained(np.concatenate([acts, acts**2], 1), reward[:, None])
    return float(np.clip(1.0 - unexplained[0], 0.0, 1.0))


def _action_numbers(space: Any, actions: np.ndarray) -> np.ndarray:
    flat = actions.reshape(*actions.shape[:2], -1).astype(np.float64)
    n_choices = choices(space)
    if n_choices is None:
        return flat
    start = np.asarray(getattr(space, "start", 0)).reshape(-1)
    columns = np.moveaxis(flat - start, 2, 0).astype(np.int64)
    return np.concatenate(
        [np.eye(n)[column] for n, column in zip(n_choices, columns, strict=True)], 2
    )


def _unexplained(given: np.ndarray, wanted: np.ndarray, seed: int = 0) -> np.ndarray:
    """The share of the variance of each column of `wanted` that `given` does not predict."""
    rng = np.random.default_rng(seed)
    scale = given.std(axis=0)
    inputs = np.clip((given - given.mean(axis=0)) / np.where(scale > 1e-9, scale, 1.0), -5, 5)
    n, width = inputs.shape
    weights = rng.standard_normal((width, FEATURES)) / math.sqrt(width)
    hidden = np.maximum(inputs @ weights + rng.uniform(-1, 1, FEATURES), 0)
    features = np.concatenate([inputs, hidden, np.ones((n, 1))], 1)
    order = rng.permutation(n)
    fitted, judged = order[: int(0.7 * n)], order[int(0.7 * n) :]
    gram = features[fitted].T @ features[fitted]
    gram += RIDGE * len(fitted) * np.eye(len(gram))
    solution = np.linalg.solve(gram, features[fitted].T @ wanted[fitted])
    errors = wanted[judged] - features[judged] @ solution
    found: np.ndarray = np.mean(errors**2, axis=0) / (np.var(wanted[judged], axis=0) + 1e-12)
    return np.minimum(found, 1.0)
