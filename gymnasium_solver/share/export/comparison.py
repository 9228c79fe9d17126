"""Compares an exported policy with the run's own, on observations of the run's environment.

    observed = observe(config, agent, treatment, n=1000)
    for step in observed.steps: step.obs, step.mask, step.is_first, step.action
    compare_actions(policy, step, inputs, actions)      # RunError if they differ

Half of the environments follow the policy, the others act at random, so that the observations are
not only those of a good agent. Where the environment cannot be built here, observations are drawn
from its space.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gymnasium_solver.algos.agent import Agent
from gymnasium_solver.config.schema import Config
from gymnasium_solver.envs.as_gymnasium import Applied, Treatment, tap_observations
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.errors import EnvError, RunError
from gymnasium_solver.share.export.deployed import Deployed, score_gap
from gymnasium_solver.spaces.observations import Obs, allocate_obs, map_obs, part_spaces
from gymnasium_solver.spaces.space_types import from_native_batch

N_ENVS = 8
SEED = 20_240_117
"""The seed of the episodes. Any number does: two forms of one policy are compared."""
TOLERANCE = 1e-4
"""Largest difference of a real-valued action, as a share of its range in the observed steps."""
TIE = 1e-5
"""Two choices whose scores differ less are a tie: rounding decides, and either is right."""
Written = tuple[bytes, float, dict[str, str], dict[str, str]]
"""A file, its largest difference from the policy, and a description of its inputs and outputs."""


@dataclass(frozen=True)
class Seen:
    """One step of N environments."""

    obs: Obs
    """Observations of the environment, before the wrappers that an agent applies itself."""
    mask: np.ndarray | None
    is_first: np.ndarray
    action: Any
    """The policy's greedy action, as the environment takes it."""


@dataclass(frozen=True)
class Observed:
    steps: list[Seen]
    source: str
    """Where the observations come from, in words."""

    @property
    def n(self) -> int:
        return sum(len(step.is_first) for step in self.steps)


def observe(config: Config, agent: Agent, treatment: Treatment, n: int = 1000) -> Observed:
    """At least n observations of the environment, or of its space if it cannot be built."""
    try:
        return _played(config, agent, n)
    except EnvError as error:
        steps = _drawn(agent, treatment, n)
        return Observed(steps, f"{n} random points of the observation space ({error})")


def _played(config: Config, agent: Agent, n: int) -> Observed:
    policy, rng = agent.policy, np.random.default_rng(SEED)
    env, tap = tap_observations(env_from_config(config, min(N_ENVS, n)))
    steps: list[Seen] = []
    try:
        obs, is_first = env.reset(SEED), np.ones(env.n_envs, bool)
        carry = policy.initial_carry(env.n_envs)
        while len(steps) * env.n_envs < n:
            acted = policy.greedy(obs, carry, is_first, env.action_mask)
            carry, best = acted.carry, policy.to_env(acted.actions)
            mask = None if tap.action_mask is None else tap.action_mask.copy()
            native = policy.actions.to_native_batch(best)
            steps.append(Seen(map_obs(np.copy, tap.obs), mask, is_first.copy(), native))
            chance = policy.to_env(policy.actions.uniform(env.n_envs, rng, env.action_mask))
            taken = best.copy()
            taken[1::2] = chance[1::2]
            step = env.step(taken)
            obs, is_first = step.obs, step.is_reset
    finally:
        env.close()
    return Observed(steps, f"{len(steps) * env.n_envs} observations of {config.env_id}")


def _drawn(agent: Agent, treatment: Treatment, n: int) -> list[Seen]:
    policy, apply = agent.policy, Applied(treatment, agent.action_space)
    treatment.space.seed(SEED)
    steps, carry = [], policy.initial_carry(N_ENVS)
    is_first = np.ones(N_ENVS, bool)
    for _ in range(-(-n // N_ENVS)):
        raw = allocate_obs(treatment.space, (N_ENVS,))
        for row in range(N_ENVS):
            sample = treatment.space.sample()
            for name in part_spaces(treatment.space):
                if isinstance(raw, dict):
                    raw[name][row] = sample[name]
                else:
                    raw[row] = sample
        obs, legal = apply(raw)
        mask = None if legal is None else np.broadcast_to(legal, (N_ENVS, legal.shape[1]))
        acted = policy.greedy(obs, carry, is_first, mask)
        carry = acted.carry
        native = policy.actions.to_native_batch(policy.to_env(acted.actions))
        steps.append(Seen(raw, None, is_first, native))
        is_first = np.zeros(N_ENVS, bool)
    return steps


def compare_actions(
    policy: Deployed,
    step: Seen,
    inputs: Mapping[str, np.ndarray],
    actions: list[np.ndarray],
    rows: int | None = None,
) -> float:
    """The largest difference between these actions and the policy's own in this step.

    RunError if an action differs by more than rounding."""
    own = from_native_batch(policy.kind.space, step.action)[:rows]
    own = own.reshape(len(own), -1).astype(np.float64)
    got = np.concatenate([a.reshape(len(a), -1).astype(np.float64) for a in actions], axis=1)
    gap = np.abs(own - got).max(axis=1, initial=0.0)
    scale = max(1.0, float(np.abs(own).max(initial=0.0)))
    different = ~(gap <= TOLERANCE * scale)
    if different.any() and not _are_ties(policy, inputs, different):
        row = int(np.flatnonzero(different)[0])
        raise RunError(
            f"the exported file acts differently: {got[row].tolist()} where the run's policy "
            f"takes {own[row].tolist()}. Nothing was written; please report this run's config."
        )
    return float(gap[~different].max(initial=0.0))


@torch.no_grad()
def _are_ties(policy: Deployed, inputs: Mapping[str, np.ndarray], rows: np.ndarray) -> bool:
    n = len(rows)
    tensors = [torch.from_numpy(inputs[name][:n].copy()) for name in policy.input_names]
    scores, _ = policy.scores(*tensors)
    return bool((score_gap(policy.kind, scores).numpy()[rows] < TIE).all())
