"""Fields for an environment that has no config, chosen by its spaces where the algorithm's defaults
do not fit.

    gsolve train Custom-v0 --algo-id ppo
    gsolve train my_module:Custom-v0 --algo-id sac --max-env-steps 1e6

Only the spaces and the time limit of such an environment are known. So PPO, A2C, REINFORCE and PQN
learn the scale of observations (rolling statistics), PPO also that of rewards; the others do so
where the scales call for it (`normalize_obs: auto`). The budget is one that a laptop can finish.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from gymnasium_solver.envs.make import env_from_fields
from gymnasium_solver.envs.spec import UNLIMITED_STEPS
from gymnasium_solver.envs.vector import Engine, VectorEnv
from gymnasium_solver.spaces.observations import is_image, part_spaces
from gymnasium_solver.spaces.space_types import is_box

ON_POLICY = ("ppo", "a2c", "reinforce", "pqn")


def default_fields(env_id: str, algo_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields for this env and algorithm; `given` are those already set. EnvError if the
    env does not exist."""
    with closing(env_from_fields(env_id, 1, given)) as env:
        return {"description": f"{env_id}, fields chosen by its spaces.", **_fields(env, algo_id)}


def _fields(env: VectorEnv, algo_id: str) -> dict[str, Any]:
    parts, action = part_spaces(env.observation_space).values(), env.action_space
    has_images = any(is_image(part) for part in parts)
    is_vector = any(is_box(part) and not is_image(part) for part in parts)
    fields: dict[str, Any] = {"max_env_steps": 1_000_000 if has_images else 300_000}
    if algo_id in ("random", "bc"):
        fields = {}  # their own budgets: no steps of the environment are learnt from
    if algo_id == "ppo":
        fields |= _ppo(is_box(action), has_images)
    if is_vector and algo_id in ON_POLICY:
        fields["normalize_obs"] = "rolling"
    if isinstance(env, Engine) and env.described:
        fields["spec"] = env.described
    if env.spec.max_episode_steps is None:
        fields["max_episode_steps"] = UNLIMITED_STEPS
    return fields


def _ppo(is_continuous: bool, has_images: bool) -> dict[str, Any]:
    """Rollouts of 2,048 rows in 8 envs; an entropy bonus for discrete actions."""
    shared: dict[str, Any] = {"n_envs": 8, "n_steps": 256, "normalize_reward": True}
    shared |= {"eval_freq_epochs": 10}
    if has_images:
        shared |= {"n_steps": 128, "n_epochs": 4, "policy_lr": "lin_2.5e-4", "batch_size": 256}
        return {**shared, "clip_range": 0.1, "ent_coef": 0.0 if is_continuous else 0.01}
    if is_continuous:
        return {**shared, "n_epochs": 10, "batch_size": 64, "policy_lr": 3e-4}
    return {**shared, "n_epochs": 4, "batch_size": 256, "policy_lr": "lin_1e-3", "ent_coef": 0.01}
