"""Scores an agent on whole episodes: `gsolve eval` and `gs.evaluate`.

    scores = score(find_target("@last/@best", root), 100, "test", {"greedy": True})
    scores.results["greedy"].mean

The same checkpoint, seed and number of episodes give the same scores. `seed` is a number, or the
stage whose episodes are played: "test" (held-out), "val" (those that selected the checkpoint) or
"train".
"""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.as_gymnasium import BatchEnv, SingleEnv
from gymnasium_solver.envs.goals import successes
from gymnasium_solver.envs.make import eval_env
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.runs.checkpoint import load_checkpoint
from gymnasium_solver.runs.files import finite
from gymnasium_solver.runs.query import get_events
from gymnasium_solver.runs.run import Run
from gymnasium_solver.runs.summary import Fields
from gymnasium_solver.spaces.observations import layout
from gymnasium_solver.training.activity import Activity
from gymnasium_solver.training.agents import agent_from_checkpoint, load_agent, load_progress
from gymnasium_solver.training.evaluate import (
    eval_seed,
    evaluate,
    n_eval_envs,
    n_eval_episodes,
    own_stream,
)
from gymnasium_solver.training.observer import EvalResult
from gymnasium_solver.training.seeds import stage_seed
from gymnasium_solver.training.targets import Found
from gymnasium_solver.training.threads import limited_threads, pick_threads

STAGES = ("test", "val", "train")
EPISODES = 100  # episodes, where neither the caller nor a run says how many


@dataclass(frozen=True)
class Scores:
    """Evaluations of one agent on the same episodes, by name."""

    results: dict[str, EvalResult]
    seed: int
    env_steps: int
    threshold: float | None
    stored: float | None  # validation score when the checkpoint was saved


def score(
    found: Found,
    episodes: int | None,
    seed: int | str | None,
    modes: Mapping[str, bool],
    activity: Activity | None = None,
) -> Scores:
    """Play the episodes in each of `modes` (name -> greedy), in the run's environment.

    `episodes` None: as many as the run's test. `activity` receives its progress."""
    config, activity = found.config, activity or Activity()
    env_steps = 0 if found.checkpoint is None else int(found.checkpoint.resolve().name)
    n_episodes = episodes or _own_episodes(found, seed)
    env_seed = pick_seed(config, found.run, env_steps, seed)
    env = eval_env(config, n_eval_envs(config, n_episodes))
    # As in training, so that scores are reproducible.
    with closing(env), limited_threads(pick_threads(config, env.observation_space)):
        agent, clock, stored = _trained(found)
        check_spaces(env, agent, found.changed)
        how: dict[str, Any] = {"seed": env_seed, "activity": activity, **clock}
        results = {}
        for name, greedy in modes.items():
            activity.begin_evaluation("evaluating", n_episodes)
            results[name] = evaluate(agent.policy, env, n_episodes, greedy=greedy, **how)
    own = config.reward_threshold
    threshold = env.spec.reward_threshold if own is None else own
    return Scores(results, env_seed, clock["env_steps"], threshold, stored)


def score_in(
    found: Found,
    env: gymnasium.Env | gymnasium.vector.VectorEnv,
    episodes: int,
    seed: int | str | None,
    greedy: bool,
    as_trained: bool = False,
) -> EvalResult:
    """Play the episodes in an environment that the caller made, and does not close it.

    Its observations are those that `act` takes (`as_trained` as there); the score is the sum of
    its rewards, or for `gs.make_env` the raw return before reward wrappers."""
    agent, clock, _ = _trained(found, reads=True)
    with limited_threads(pick_threads(found.config, agent.observation_space)):
        env_seed = pick_seed(found.config, found.run, clock["env_steps"], seed)
        how: dict[str, Any] = {"greedy": greedy, "seed": env_seed, **clock}
        if isinstance(env, BatchEnv):
            check_spaces(env.vector, agent, {})
            return evaluate(agent.policy, env.vector, episodes, **how)
        if isinstance(env, gymnasium.vector.VectorEnv):
            raise EnvError(
                f"evaluate() got the vector env {env}. Pass a single env, a factory of one, or "
                "what gs.make_env(run, n_envs=...) returns."
            )
        acting = {"greedy": greedy, "as_trained": as_trained}
        returns, lengths, success = _play(agent, env, episodes, env_seed, acting)
    return EvalResult.of_episodes(returns, lengths, success=success, **how)


def _play(
    agent: Agent, env: gymnasium.Env[Any, Any], episodes: int, seed: int, how: dict[str, bool]
) -> tuple[list[float], list[int], float | None]:
    """Returns and lengths of the episodes, and the share of successes if the env reports them."""
    is_made = isinstance(env.unwrapped, SingleEnv)
    returns: list[float] = []
    lengths: list[int] = []
    reached: list[bool] = []
    with own_stream(agent.policy, seed), ExitStack() as after:
        after.callback(agent.reset)
        for episode in range(episodes):
            obs, info = env.reset(seed=seed if episode == 0 else None)
            agent.reset()
            total, length, is_over, success = 0.0, 0, False, None
            while not is_over:
                action = agent.act(obs, mask=info.get("action_mask"), **how)
                obs, reward, terminated, truncated, info = env.step(action)
                total, length = total + float(reward), length + 1
                is_over = bool(terminated or truncated)
                reported = successes({name: [value] for name, value in info.items()}, 1)
                if reported is not None:
                    success = bool(success or reported[0])
            returns.append(float(info["episode_return"]) if is_made else total)
            lengths.append(length)
            reached += [] if success is None else [success]
    return returns, lengths, float(np.mean(reached)) if reached else None


def _trained(found: Found, reads: bool = False) -> tuple[Agent, dict[str, int], float | None]:
    """The agent of the target, the place in training that it comes from, and its score there.
    `reads`: with the reader of observations that `act` needs."""
    if found.checkpoint is None or found.run is None:
        if found.agent is None:
            raise ConfigError(
                f"{found.config.env_id}: a config has no trained agent to evaluate. Give a run or "
                "an agent, such as gs.evaluate('@last')."
            )
        return found.agent, {"env_steps": 0, "epoch": 0}, None
    checkpoint = load_checkpoint(found.checkpoint)
    if found.agent is not None:
        agent = found.agent
    elif reads:
        agent = load_agent(f"{found.run.path}/{checkpoint.env_steps}", trust=True)  # as `found` is
    else:
        agent = agent_from_checkpoint(found.config, checkpoint)
    progress = load_progress(checkpoint.state, checkpoint.env_steps, checkpoint.path)
    clock = {"env_steps": checkpoint.env_steps, "epoch": progress.epoch}
    return agent, clock, finite(checkpoint.metrics.get("score"))


def _own_episodes(found: Found, seed: int | str | None) -> int:
    """The number of episodes in the run: of its test, or of a validation."""
    if found.run is None:
        return EPISODES
    meta = Fields(found.run.meta(), found.run.meta_path)
    tested = None if seed == "val" else meta.count("test_episodes")
    return int(tested or n_eval_episodes(found.config))


def pick_seed(config: Config, run: Run | None, env_steps: int, seed: int | str | None) -> int:
    """The given number, or the seed that a stage has for the checkpoint at `env_steps`."""
    seed = "test" if seed is None else seed
    if isinstance(seed, str) and seed not in STAGES:
        raise ConfigError(f"seed {seed!r}: expected test, val, train or a number")
    if not isinstance(seed, str):
        if isinstance(seed, bool) or not 0 <= int(seed) < 2**31:
            raise ConfigError(f"seed {seed!r}: expected test, val, train or a number below 2^31")
        return int(seed)
    if config.seed is None:
        config = config.replace(seed=0)
    if seed == "test":
        tests = [] if run is None else get_events(run, "eval")
        tests = [event for event in tests if event.get("stage") == "test"]
        own = [event.get("seed") for event in tests if event["env_steps"] == env_steps]
        return int(own[-1]) if own and own[-1] is not None else eval_seed(config, "test", env_steps)
    return eval_seed(config, "val", env_steps) if seed == "val" else stage_seed(config, seed)


def check_spaces(env: VectorEnv, agent: Agent, changed: Mapping[str, Any]) -> None:
    """EnvError if the agent cannot play in this env."""
    for kind, given, own in (
        ("observations", env.observation_space, agent.observation_space),
        ("actions", env.action_space, agent.action_space),
    ):
        if layout(given) != layout(own):
            why = f" with {', '.join(changed)} changed" if changed else ""
            raise EnvError(
                f"{env.spec.env_id}{why} has the {kind} {given}; the agent was trained on {own}."
            )
