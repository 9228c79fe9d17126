"""What the peers run: rl-baselines3-zoo's published hyper-parameters, and rejax's own.

Facts, no code of theirs: names and values as rl-baselines3-zoo (hyperparams/*.yml at 22e3ff2) and
rejax (configs/gymnax/*.yaml at d751095) publish them. `lin_x` falls linearly from x to 0. Plain
data, so that the tests can hold it against our configs without any of the libraries.
"""

from typing import Any

# Env steps before the clock of `steps_per_s` starts: past random actions and first updates, in
# which JAX compiles.
WARM_STEPS = {"ppo": 512, "a2c": 512, "dqn": 2_048, "sac": 600}

# env:algorithm -> SB3's constructor arguments; `n_envs`, `total_steps` and `normalize` (running
# statistics of observations and rewards) are the zoo's own settings.
TASKS: dict[str, dict[str, Any]] = {
    "CartPole-v1:ppo": {
        "n_envs": 8,
        "total_steps": 100_000,
        "n_steps": 32,
        "batch_size": 256,
        "n_epochs": 20,
        "gae_lambda": 0.8,
        "gamma": 0.98,
        "ent_coef": 0.0,
        "learning_rate": "lin_0.001",
        "clip_range": "lin_0.2",
    },
    "CartPole-v1:dqn": {
        "total_steps": 50_000,
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "buffer_size": 100_000,
        "learning_starts": 1_000,
        "gamma": 0.99,
        "target_update_interval": 10,
        "train_freq": 256,
        "gradient_steps": 128,
        "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04,
        "policy_kwargs": {"net_arch": [256, 256]},
    },
    "HalfCheetah-v5:sac": {"total_steps": 1_000_000},  # the defaults of SB3 and sbx
    "LunarLander-v3:ppo": {
        "n_envs": 16,
        "total_steps": 1_000_000,
        "n_steps": 1024,
        "batch_size": 64,
        "gae_lambda": 0.98,
        "gamma": 0.999,
        "n_epochs": 4,
        "ent_coef": 0.01,
    },
    "LunarLander-v3:a2c": {  # published for v2
        "n_envs": 8,
        "total_steps": 200_000,
        "n_steps": 5,
        "gamma": 0.995,
        "ent_coef": 1e-5,
        "learning_rate": "lin_0.00083",
    },
    "Acrobot-v1:ppo": {
        "normalize": True,
        "n_envs": 16,
        "total_steps": 1_000_000,
        "n_steps": 256,
        "gae_lambda": 0.94,
        "gamma": 0.99,
        "n_epochs": 4,
        "ent_coef": 0.0,
    },
    "MountainCar-v0:dqn": {
        "total_steps": 120_000,
        "learning_rate": 4e-3,
        "batch_size": 128,
        "buffer_size": 10_000,
        "learning_starts": 1_000,
        "gamma": 0.98,
        "target_update_interval": 600,
        "train_freq": 16,
        "gradient_steps": 8,
        "exploration_fraction": 0.2,
        "exploration_final_eps": 0.07,
        "policy_kwargs": {"net_arch": [256, 256]},
    },
    "MountainCarContinuous-v0:sac": {
        "total_steps": 50_000,
        "learning_rate": 3e-4,
        "buffer_size": 50_000,
        "batch_size": 512,
        "ent_coef": 0.1,
        "train_freq": 32,
        "gradient_steps": 32,
        "gamma": 0.9999,
        "tau": 0.01,
        "learning_starts": 0,
        "use_sde": True,
        "policy_kwargs": {"log_std_init": -3.67, "net_arch": [64, 64]},
    },
    "Pendulum-v1:ppo": {
        "n_envs": 4,
        "total_steps": 100_000,
        "n_steps": 1024,
        "gae_lambda": 0.95,
        "gamma": 0.9,
        "n_epochs": 10,
        "ent_coef": 0.0,
        "learning_rate": 1e-3,
        "clip_range": 0.2,
        "use_sde": True,
        "sde_sample_freq": 4,
    },
}

# rejax's PPO: its published configs, and for the same work the zoo's values in its names.
REJAX_TASKS: dict[str, dict[str, Any]] = {
    "zoo": {
        "env": "CartPole-v1",
        "agent_kwargs": {"activation": "tanh"},
        "num_envs": 8,
        "num_steps": 32,
        "num_epochs": 20,
        "num_minibatches": 1,
        "learning_rate": 0.001,
        "max_grad_norm": 0.5,
        "total_timesteps": 100_000,
        "gamma": 0.98,
        "gae_lambda": 0.8,
        "clip_eps": 0.2,
        "ent_coef": 0.0,
        "vf_coef": 0.5,
    },
    "CartPole-v1": {
        "env": "CartPole-v1",
        "agent_kwargs": {"activation": "tanh"},
        "num_envs": 5,
        "num_steps": 100,
        "num_epochs": 5,
        "num_minibatches": 5,
        "learning_rate": 0.00075,
        "max_grad_norm": 0.5,
        "total_timesteps": 100_000,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "clip_eps": 0.2,
        "ent_coef": 0.01,
        "vf_coef": 0.5,
    },
    "Pendulum-v1": {
        "env": "Pendulum-v1",
        "agent_kwargs": {"activation": "swish"},
        "num_envs": 100,
        "num_steps": 100,
        "num_epochs": 10,
        "num_minibatches": 10,
        "learning_rate": 0.001,
        "max_grad_norm": 10,
        "total_timesteps": 150_000,
        "gamma": 0.995,
        "gae_lambda": 0.95,
        "clip_eps": 0.2,
        "ent_coef": 0.0,
        "vf_coef": 0.5,
        "normalize_observations": True,
    },
    "MountainCarContinuous-v0": {
        "env": "MountainCarContinuous-v0",
        "agent_kwargs": {"activation": "relu"},
        "num_envs": 5,
        "num_steps": 100,
        "num_epochs": 10,
        "num_minibatches": 10,
        "learning_rate": 0.0003,
        "max_grad_norm": 10,
        "total_timesteps": 200_000,
        "gamma": 0.9,
        "gae_lambda": 0.95,
        "clip_eps": 0.2,
        "ent_coef": 0.0,
        "vf_coef": 0.5,
    },
}
REJAX_TASKS["Acrobot-v1"] = REJAX_TASKS["CartPole-v1"] | {
    "env": "Acrobot-v1",
    "normalize_observations": True,
}

# CleanRL's ppo.py: the same work, in the names of its flags. Its own defaults are for CartPole-v1.
CLEANRL_ZOO: dict[str, Any] = {
    "num-envs": 8,
    "num-steps": 32,
    "num-minibatches": 1,
    "update-epochs": 20,
    "gae-lambda": 0.8,
    "gamma": 0.98,
    "ent-coef": 0.0,
    "vf-coef": 0.5,
    "max-grad-norm": 0.5,
    "learning-rate": 0.001,
    "clip-coef": 0.2,
    "no-clip-vloss": None,
}
CLEANRL_STEPS = 500_000
