"""Small runs of every kind of policy, for the tests of export and sharing."""

from pathlib import Path
from typing import Any

import gymnasium_solver as gs

PPO: dict[str, Any] = {"algo": "ppo", "n_envs": 4, "n_steps": 16, "hidden_dims": [16, 8]}
Q: dict[str, Any] = {"n_envs": 4, "hidden_dims": [16, 8], "learning_starts": 16, "buffer_size": 500}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo-discrete": ("Probe/ObsActionReward-v0", PPO | {"normalize_obs": "rolling"}),
    "ppo-box": ("Probe/ObsActionRewardContinuous-v0", PPO | {"activation": "elu"}),
    "ppo-multi-discrete": ("Probe/MultiDiscrete-v0", PPO),
    "ppo-multi-binary": ("Probe/MultiBinary-v0", PPO | {"activation": "silu"}),
    "ppo-dict-obs": ("Probe/DictObs-v0", PPO | {"normalize_obs": "static"}),
    "ppo-dict-action": ("Probe/DictAction-v0", PPO),
    "ppo-masked": ("Probe/Masked-v0", PPO | {"activation": "relu"}),
    "ppo-gru": ("Probe/Memory-v0", PPO | {"recurrent": "gru", "recurrent_dim": 8}),
    "ppo-lstm": ("Probe/Memory-v0", PPO | {"recurrent": "lstm", "recurrent_dim": 8}),
    "ppo-image": ("Probe/Image-v0", PPO | {"hidden_dims": None}),
    "reinforce": ("Probe/ObsActionReward-v0", PPO | {"algo": "reinforce"}),
    "dqn": ("Probe/ObsActionReward-v0", Q | {"algo": "dqn"}),
    "dqn-rainbow": (
        "Probe/ObsActionReward-v0",
        Q
        | {"algo": "dqn", "dueling": True, "noisy": True}
        | {"distributional": True, "v_min": -2.0, "v_max": 2.0, "n_atoms": 11},
    ),
    "dqn-gru": (
        "Probe/Memory-v0",
        Q
        | {"algo": "dqn", "recurrent": "gru", "recurrent_dim": 8, "sequence_length": 4}
        | {"learning_starts": 200},
    ),
    "pqn": ("Probe/ObsActionReward-v0", {"algo": "pqn", "n_envs": 4, "hidden_dims": [16, 8]}),
    "sac": ("Probe/ObsActionRewardContinuous-v0", Q | {"algo": "sac", "activation": "gelu"}),
    "sac-discrete": ("Probe/ObsActionReward-v0", Q | {"algo": "sac"}),
    "td3": ("Probe/ObsActionRewardContinuous-v0", Q | {"algo": "td3"}),
    "sac-lstm": (
        "Probe/Memory-v0",
        Q
        | {"algo": "sac", "recurrent": "lstm", "recurrent_dim": 8, "sequence_length": 4}
        | {"learning_starts": 200},
    ),
    "sac-critic-keys": ("Probe/DictObs-v0", Q | {"algo": "sac", "critic_keys": ["noise", "kind"]}),
    "ppo-critic-keys": ("Probe/DictObs-v0", PPO | {"critic_keys": ["noise"]}),
    "crossq": (
        "Probe/ObsActionRewardContinuous-v0",
        Q | {"algo": "crossq", "critic_hidden_dims": [16, 16]},
    ),
    "tdmpc2": (
        "Probe/ObsActionRewardContinuous-v0",
        Q
        | {"algo": "tdmpc2", "hidden_dims": None, "mlp_dim": 16, "enc_dim": 16, "latent_dim": 16}
        | {"n_critics": 2, "n_samples": 16, "n_policy_samples": 2, "n_elites": 4, "batch_size": 16}
        | {"plan_iterations": 2, "pretrain_updates": 4, "updates_per_step": 0.2, "compile": False},
    ),
    "wrapped": (
        "CartPole-v1",
        PPO
        | {
            "env_wrappers": [
                {"id": "ObservationClip", "low": -3.0, "high": 3.0},
                {"id": "ObservationScale", "scale": [0.5, 1.0, 2.0, 1.0], "shift": 0.1},
                {"id": "ObservationComponents", "keep": [2, 0, 3]},
            ],
            "spec": {"action_space": {"valid": [0, 1]}},
        },
    ),
    "encoded": (
        "FrozenLake-v1",
        PPO | {"env_wrappers": [{"id": "DiscreteEncoder", "encoding": "binary"}]},
    ),
}


def train_kind(name: str, root: Path, **changes: Any) -> gs.Run:
    """A few updates: weights that are no longer initial, statistics that are not zero."""
    env_id, fields = KINDS[name]
    fields = {key: value for key, value in fields.items() if value is not None}
    few: dict[str, Any] = {"max_env_steps": 256, "eval_episodes": 2, "test_episodes": 2, "seed": 1}
    return gs.train(env_id, runs_dir=root, **(few | fields | changes))
