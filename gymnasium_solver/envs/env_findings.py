"""Examines an environment as a learner meets it: what it returns, how it ends, whether it repeats.

    for finding in all_findings("CartPole-v1", {}, 2000): print(finding.level, finding.text)

A finding is `ok`, `advice` (works, but a setting would help) or `problem` (would be learnt
wrongly). Everything is seen through the contract of vector.py, with random actions; only
`raw_findings` looks at what a single Gymnasium environment returns, since engines cast and copy.
`gsolve doctor env ID` prints all of them.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.envs.catalogue import find_environment, space_text
from gymnasium_solver.envs.journal import same_obs
from gymnasium_solver.envs.make import env_from_fields, make_vector_env
from gymnasium_solver.envs.random_steps import (
    N_ENVS,
    SEED,
    STACKED,
    STILL,
    RandomPolicy,
    Rollout,
    ambiguity,
    as_numbers,
    record,
    why_normalize_part,
    why_normalize_reward,
)
from gymnasium_solver.envs.sheet import render_frame, spec_mismatches
from gymnasium_solver.envs.spec import registry_entry
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import EnvError
from gymnasium_solver.fast.native.build import can_compile, prefer_compiled
from gymnasium_solver.spaces.observations import (
    is_image,
    obs_arrays,
    part_spaces,
    take_rows,
    unit_scale,
)
from gymnasium_solver.spaces.space_types import is_box

SHORT = 5
AMBIGUOUS = 0.2  # share of rewards that differ
RARE = 0.01  # share of rewards that are not 0
RAW_STEPS = 200
WARM_UP_S, MEASURED_S = 0.05, 0.1
CHOSEN = "chosen by normalize_{}: auto, the default"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    level: str  # ok, advice or problem
    text: str
    fix: str = ""  # what to write in the config, or to change in the environment


def examine(
    env_id: str, env_kwargs: Mapping[str, Any] | None = None, n_steps: int = 2000
) -> Iterator[Finding]:
    """All findings but speed and rendering, in the order they are made."""
    with closing(make_vector_env(env_id, N_ENVS, env_kwargs=env_kwargs)) as env:
        rollout = record(env, max(2, n_steps // N_ENVS))
        yield from observations(env.observation_space, rollout)
        yield rewards(rollout)
        yield from memory(rollout)
        yield episodes(rollout, env.spec.max_episode_steps)
        yield repeats(env, rollout)
        has_reset_rows = bool(rollout.is_reset.any())
        if has_reset_rows:
            yield autoreset(env, rollout)
    # With a short limit every environment comes to an end.
    short = make_vector_env(env_id, N_ENVS, env_kwargs=env_kwargs, max_episode_steps=SHORT)
    with closing(short):
        ended = record(short, 4 * SHORT)
        yield time_limit(ended)
        if not has_reset_rows:
            yield autoreset(short, ended)


def observations(space: Any, rollout: Rollout) -> Iterator[Finding]:
    """Findings about the observation, or about each of its parts."""
    first, then = dict(obs_arrays(rollout.first_obs)), dict(obs_arrays(rollout.obs))
    for name, part in part_spaces(space).items():
        for finding in _array_findings(part, first[name], then[name]):
            yield replace(finding, text=f"{name}: {finding.text}") if name else finding


def _array_findings(space: Any, first: np.ndarray, then: np.ndarray) -> Iterator[Finding]:
    seen = np.concatenate([first[None], then])
    if not np.isfinite(seen).all():
        bad = np.argwhere(~np.isfinite(seen))[0]
        value = seen[tuple(bad)]
        place = f"number {bad[2]} " if len(bad) > 2 else ""
        text = f"{place}is {value} after {bad[0]} steps"
        yield Finding("finite", "problem", text, "no NaN or infinity may leave the environment")
        return
    yield Finding("finite", "ok", f"no NaN or infinity in {seen.size:,} numbers")
    if not is_box(space) or is_image(space):
        kind = "an image" if is_box(space) else "discrete"
        yield Finding("scale", "ok", f"{space}: {kind}, the network takes it as it is")
        return
    yield _within_bounds(space, seen)
    yield _scale(space, seen, why_normalize_part(space, first, then))


def _within_bounds(space: Any, seen: np.ndarray) -> Finding:
    slack = 1e-5 * np.maximum(1.0, np.abs(np.nan_to_num(space.high)))
    flat = seen.reshape(-1, *space.shape)
    outside = ((flat < space.low - slack) | (flat > space.high + slack)).any(axis=0)
    if outside.any():
        which = _places(outside)
        i = np.unravel_index(np.flatnonzero(outside)[0], outside.shape)
        span = f"{flat[(slice(None), *i)].min():g} to {flat[(slice(None), *i)].max():g}"
        bounds = f"[{space.low[i]:g}, {space.high[i]:g}]"
        text = f"{which} leave the bounds of the space: {span} was seen, {bounds} is declared"
        fix = "widen observation_space; do not use normalize_obs: static"
        return Finding("bounds", "problem", text, fix)
    return Finding("bounds", "ok", "all observations are in the declared space")


def _scale(space: Any, seen: np.ndarray, why: str | None) -> Finding:
    numbers = as_numbers(space, seen)
    spread, largest = numbers.std(axis=0), float(np.abs(numbers).max())
    text = f"up to {largest:.3g} in size, deviations {_span(spread[spread > STILL])}"
    if unit_scale(space) is not None:
        text += ", scaled by the bounds of the space"
    unbounded = ~(np.isfinite(space.low) & np.isfinite(space.high)).reshape(-1)
    if unbounded.any():
        text += f", {int(unbounded.sum())} of {unbounded.size} numbers unbounded"
    still = int((spread <= STILL).sum())
    if still:
        text += f", {still} hardly change"
    if why is None:
        return Finding("scale", "ok", text)
    return Finding("scale", "advice", text, f"normalize_obs: rolling ({CHOSEN.format('obs')})")


def rewards(rollout: Rollout) -> Finding:
    paid = rollout.reward[~rollout.is_reset]
    if not np.isfinite(paid).all():
        return Finding("reward", "problem", "a reward is not finite", "no NaN or infinity")
    share = float(np.mean(paid != 0)) if paid.size else 0.0
    text = f"{paid.min():.3g} to {paid.max():.3g}, mean {paid.mean():.3g}, not 0 in {share:.0%}"
    if rollout.returns:
        text += f"; returns {min(rollout.returns):.4g} to {max(rollout.returns):.4g}"
    if share == 0:
        fix = "random actions never met one: expect to need exploration"
    elif why_normalize_reward(rollout) is not None:
        fix = f"normalize_reward: true ({CHOSEN.format('reward')}; scores stay raw)"
    elif share < RARE:
        fix = "rewards are rare: expect to need exploration"
    else:
        return Finding("reward", "ok", text)
    return Finding("reward", "advice", text, fix)


def memory(rollout: Rollout) -> Iterator[Finding]:
    """Whether the same action at equal observations pays alike."""
    share, history = ambiguity(rollout)
    if share is None:
        return
    text = f"the same action at equal observations gave another reward in {share:.0%} of the cases"
    if share <= AMBIGUOUS:
        yield Finding("memory", "ok", text)
        return
    fix = "what pays depends on chance or on a longer past: compare with --recurrent gru"
    if history is not None:
        fix = f"the {history} steps before explain it: --recurrent gru, or frame_stack: "
        fix += str(history + 1)
    yield Finding("memory", "advice", text, fix)


def episodes(rollout: Rollout, limit: int | None) -> Finding:
    n_steps = len(rollout.reward)
    lengths, ends = rollout.lengths, rollout.ends
    limit_text = f"time limit {limit:,}" if limit else "no time limit"
    if not lengths:
        text = f"none ended in {n_steps:,} steps, {limit_text}"
        if limit is None:
            fix = "give it one: max_episode_steps; without an end there is no score"
            return Finding("episodes", "problem", text, fix)
        return Finding("episodes", "ok", f"{text}: look longer with --steps")
    cut = sum(end != "terminated" for end in ends)
    text = (
        f"{len(lengths)} ended after {min(lengths):,} to {max(lengths):,} steps, {cut} of them by "
        f"truncation, {limit_text}"
    )
    alike = len(lengths) >= N_ENVS and len(set(lengths)) == 1 and set(ends) == {"terminated"}
    if limit is not None and max(lengths) > limit:
        return Finding("episodes", "problem", text, "the time limit does not hold")
    if alike and (limit is None or lengths[0] >= limit):
        fix = (
            "if that is a time limit, end with truncated=True: terminated says that nothing can "
            "follow, and values are learnt wrongly"
        )
        return Finding("episodes", "advice", f"{text}; all terminated at the same step", fix)
    if limit is None and not cut:
        fix = "set max_episode_steps; otherwise an episode may never end"
        return Finding("episodes", "advice", text, fix)
    by_itself = " (the environment cuts them itself)" if limit is None else ""
    return Finding("episodes", "ok", text + by_itself)


def time_limit(rollout: Rollout) -> Finding:
    """Episodes under max_episode_steps: SHORT must be cut there, and said to be cut."""
    pairs = zip(rollout.lengths, rollout.ends, strict=True)
    at_limit = [end for length, end in pairs if length == SHORT]
    if max(rollout.lengths, default=0) > SHORT or not rollout.lengths:
        return Finding("time limit", "problem", f"max_episode_steps: {SHORT} cuts nothing")
    if "terminated" in at_limit:
        text = f"cut by max_episode_steps: {SHORT}, episodes are reported as terminated"
        return Finding("time limit", "problem", text, "values are learnt wrongly at the limit")
    cut = f"{len(at_limit)} of {len(rollout.lengths)} episodes cut"
    return Finding("time limit", "ok", f"max_episode_steps: {SHORT} works, {cut}")


def repeats(env: VectorEnv, rollout: Rollout) -> Finding:
    """The same seed and actions must give the same steps; another seed should not."""
    n_steps = len(rollout.reward)
    again = record(env, n_steps)
    for name in ("first_obs", *STACKED):
        mine, theirs = getattr(rollout, name), getattr(again, name)
        if not same_obs(mine, theirs):
            when = 0 if name == "first_obs" else _first_difference(mine, theirs) + 1
            text = f"the same seed and actions gave another {name} at step {when}"
            fix = "draw from self.np_random, and set all state in reset(); resume cannot be exact"
            return Finding("seeding", "problem", text, fix)
    other = record(env, n_steps, seed=SEED + 1)
    names = ("first_obs", "obs", "reward")
    same = all(same_obs(getattr(other, n), getattr(rollout, n)) for n in names)
    text = f"{n_steps * env.n_envs:,} steps repeat under their seed"
    return Finding("seeding", "ok", f"{text}; seeds make no difference here" if same else text)


def autoreset(env: VectorEnv, rollout: Rollout) -> Finding:
    """The row after an end opens an episode, pays nothing, and ignores its action."""
    done, opened = rollout.is_over, rollout.is_reset
    problem = ""
    if not done[:-1].any():
        problem = "no episode ends, not even at a time limit"
    elif not np.array_equal(opened[1:], done[:-1]) or opened[0].any():
        problem = "reset rows are not those after an end"
    elif rollout.reward[opened].any() or done[opened].any():
        problem = "a reset row pays, or ends an episode"
    elif not _action_is_ignored(env, rollout, *(place := np.argwhere(opened)[0])):
        problem = f"the action at the reset row of step {place[0]} changed the new episode"
    if problem:
        return Finding("autoreset", "problem", problem)
    return Finding("autoreset", "ok", f"{opened.sum()} reset rows: no reward, action ignored")


def _action_is_ignored(env: VectorEnv, rollout: Rollout, t: int, row: int) -> bool:
    """Play up to a reset row again, with another action there: the observation must be the same."""
    policy, other = (RandomPolicy(env.action_space, env.n_envs, seed) for seed in (SEED, SEED + 7))
    env.reset(SEED)
    for i in range(t + 1):
        actions = np.array(policy.act(env.action_mask))
        if i == t:
            actions[row] = other.act(env.action_mask)[row]
        step = env.step(actions)
    return same_obs(take_rows(step.obs, row), take_rows(rollout.obs, (t, row)))


def _first_difference(mine: Any, theirs: Any) -> int:
    """The first row in which two stacks of observations differ."""
    if isinstance(mine, dict):
        pairs = ((mine[name], theirs[name]) for name in mine)
        return min(_first_difference(*pair) for pair in pairs if not same_obs(*pair))
    return int(np.argwhere(mine != theirs)[0][0])


def _places(flags: np.ndarray) -> str:
    """numbers 3, 4 of 8: which of them are meant."""
    indices = np.flatnonzero(flags)
    shown = ", ".join(map(str, indices[:6])) + (", ..." if len(indices) > 6 else "")
    return f"number{'s' if len(indices) > 1 else ''} {shown} of {flags.size}"


def _span(values: np.ndarray) -> str:
    return f"{values.min():.2g} to {values.max():.2g}" if len(values) else "0"


# -- what a single Gymnasium environment returns, before any engine casts or copies it ------------


def raw_findings(env_id: str, env_kwargs: Mapping[str, Any] | None = None) -> Iterator[Finding]:
    """Findings about what the registered class returns: engines would cast a wrong shape or dtype.
    None for environments that only EnvPool or this project has."""
    entry = registry_entry(env_id)
    if entry is None or entry.entry_point is None:
        return
    try:
        env = gymnasium.make(env_id, disable_env_checker=True, **(env_kwargs or {}))
    except Exception as error:  # whatever its constructor raises: another engine may have it
        text = f"Gymnasium cannot make it: {(str(error).splitlines() or [''])[0]}"
        yield Finding("class", "ok", text)
        return
    with closing(env):
        problems = dict.fromkeys(_play(env))
    fix = "make reset() and step() return what is declared"
    yield from (Finding("class", "problem", problem, fix) for problem in problems)
    if not problems:
        yield Finding("class", "ok", "reset() and step() return what the spaces declare")


def _play(env: Any) -> Iterator[str]:
    space = env.observation_space
    env.action_space.seed(SEED)
    answer = env.reset(seed=SEED)
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        yield f"reset() returns {type(answer).__name__}, expected (observation, info)"
        return
    yield from _observation(space, answer[0], "reset()")
    for _ in range(RAW_STEPS):
        answer = env.step(env.action_space.sample())
        if not (isinstance(answer, tuple) and len(answer) == 5):
            yield "step() must return (observation, reward, terminated, truncated, info)"
            return
        obs, reward, terminated, truncated, info = answer
        yield from _observation(space, obs, "step()")
        is_one = isinstance(reward, np.ndarray) and reward.size == 1  # engines take it as a number
        if not is_one and not isinstance(reward, int | float | np.number):
            yield f"step() returns the reward {reward!r}, expected a number"
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                yield f"step() returns {name}={flag!r}, expected a bool"
        if not isinstance(info, dict):
            yield f"step() returns info of type {type(info).__name__}, expected a dict"
        if terminated or truncated:
            env.reset()


def _observation(space: Any, obs: Any, where: str) -> Iterator[str]:
    if is_box(space):
        if not isinstance(obs, np.ndarray):
            yield f"{where} returns a {type(obs).__name__}, expected an array of {space.dtype}"
        elif obs.shape != space.shape:
            yield f"{where} returns the shape {obs.shape}, but {space.shape} is declared"
        elif obs.dtype != space.dtype:
            yield f"{where} returns {obs.dtype}, but {space.dtype} is declared"
    elif not space.contains(obs):
        yield f"{where} returns {str(obs)[:60]}, which is not in {space}"


# -- speed ----------------------------------------------------------------------------------------


def steps_per_s(env: VectorEnv) -> float:
    """Env steps per second with fixed random actions, after a warm-up.

    The first steps build and allocate, so they are not measured."""
    env.reset(0)
    actions = RandomPolicy(env.action_space, env.n_envs, seed=0).act(env.action_mask)
    speed = 0.0
    for span_s in (WARM_UP_S, MEASURED_S):
        begun_s, n_steps, took_s = time.perf_counter(), 0, 0.0
        while took_s < span_s:
            env.step(actions)
            n_steps += 1
            took_s = time.perf_counter() - begun_s
        speed = n_steps * env.n_envs / took_s
    return speed


ENGINES = ("auto", "envpool", "vector", "sync")
SPEED_ENVS = 8
FASTER = 1.3  # how much faster another engine must be before it is recommended


def all_findings(env_id: str, env_kwargs: dict[str, Any], n_steps: int) -> Iterator[Finding]:
    with closing(make_vector_env(env_id, 1, env_kwargs=env_kwargs)) as env:
        seen, acts = space_text(env.observation_space), space_text(env.action_space)
        yield Finding("made", "ok", f"observes {seen}, acts {acts}, {env.spec.engine}")
        if (entry := find_environment(env_id)) is not None:
            problems = spec_mismatches(entry.spec, env)
            for problem in problems:
                yield Finding("spec", "advice", problem, "fix the spec block of its config")
            if not problems:
                yield Finding("spec", "ok", "the labels in its config match the spaces")
    yield from raw_findings(env_id, env_kwargs)
    yield from examine(env_id, env_kwargs, n_steps)
    yield speed_finding(env_id, env_kwargs)
    frame, drawn = render_frame(env_id, env_kwargs)
    if frame is None:
        yield Finding("rendering", "advice", f"no frame: {drawn}", "rendering will not work")
    else:
        height, width = frame.shape[:2]
        yield Finding("rendering", "ok", f"{width} × {height} pixels by {drawn}")


def speed_finding(env_id: str, env_kwargs: dict[str, Any]) -> Finding:
    """Steps per second with 8 envs, on every engine that has the environment, as in a training:
    with a compiler Gymnasium's classics are stepped in C."""
    if can_compile():
        prefer_compiled()
    speeds: dict[str, float] = {}
    for mode in ENGINES:
        given = {"env_kwargs": env_kwargs, "vectorization_mode": mode}
        try:
            env = env_from_fields(env_id, SPEED_ENVS, given)
        except EnvError:
            continue  # this engine does not have it
        with closing(env):
            if env.spec.engine not in speeds:
                speeds[env.spec.engine] = steps_per_s(env)
    auto = next(iter(speeds))
    listed = ", ".join(f"{name} {speed:,.0f} steps/s" for name, speed in speeds.items())
    text = f"{SPEED_ENVS} envs: {listed}; auto uses {auto}"
    best = max(speeds, key=lambda name: speeds[name])
    if speeds[best] > FASTER * speeds[auto]:
        return Finding("speed", "advice", text, f"vectorization_mode: {best}")
    return Finding("speed", "ok", text)
