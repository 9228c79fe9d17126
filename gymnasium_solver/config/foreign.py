"""What other libraries (SB3, CleanRL, SLM-Lab, RLlib, Tianshou, PufferLib) call our fields.

An unknown field with such a name gets our name as the suggestion, and a note on how to convert the
value where the meaning differs.
"""

from collections.abc import Collection

FOREIGN: dict[str, str | tuple[str, ...]] = {
    "learning_rate": "policy_lr",
    "gradient_steps": "updates_per_step",
    "target_update_interval": "target_update_freq",
    "target_network_frequency": "target_update_freq",
    "train_frequency": "train_freq",
    "exploration_fraction": "epsilon",
    "exploration_initial_eps": "epsilon",
    "exploration_final_eps": "epsilon",
    "target_policy_noise": "target_noise",
    "policy_noise": "target_noise",
    "noise_clip": "target_noise_clip",
    "policy_frequency": "policy_delay",
    "action_noise": "exploration_noise",
    "autotune": "ent_coef",
    "lr": "policy_lr",
    "lr_start": "policy_lr",
    "env": "env_id",
    "env_name": "env_id",
    "algo": "algo_id",
    "num_envs": "n_envs",
    "num_env": "n_envs",
    "num_steps": "n_steps",
    "time_horizon": "n_steps",
    "rollout_length": "n_steps",
    "total_timesteps": "max_env_steps",
    "n_timesteps": "max_env_steps",
    "total_env_steps": "max_env_steps",
    "max_frame": "max_env_steps",
    "max_t": "max_episode_steps",
    "random_seed": "seed",
    "discount": "gamma",
    "lam": "gae_lambda",
    "lambda": "gae_lambda",
    "clip_coef": "clip_range",
    "clip_eps": "clip_range",
    "clip_param": "clip_range",
    "clip_vloss": "clip_range_vf",
    "clip_val_loss": "clip_range_vf",
    "entropy_coef": "ent_coef",
    "entropy_coeff": "ent_coef",
    "value_coef": "vf_coef",
    "val_loss_coef": "vf_coef",
    "vf_loss_coeff": "vf_coef",
    "minibatch_size": "batch_size",
    "update_epochs": "n_epochs",
    "training_epoch": "n_epochs",
    "norm_adv": "normalize_advantages",
    "normalize_advantage": "normalize_advantages",
    "normalize": ("normalize_obs", "normalize_reward"),
    "hid_layers": "hidden_dims",
    "net_arch": "hidden_dims",
    "activation_fn": "activation",
    "optim": "optimizer",
    "clip_grad_val": "max_grad_norm",
    "max_grad": "max_grad_norm",
    "eval_frequency": "eval_freq_steps",
    "eval_freq": "eval_freq_steps",
    "n_eval_episodes": "eval_episodes",
    "save_freq": "checkpoint_freq_epochs",
    "anneal_lr": "policy_lr",
    "actor_lr": "policy_lr",
    "lr_actor": "policy_lr",
    "lr_critic": "critic_lr",
    "q_lr": "critic_lr",
    "num_minibatches": "batch_size",
    "n_minibatches": "batch_size",
    "policy_kwargs": ("hidden_dims", "activation"),
    "network_kwargs": ("hidden_dims", "activation"),
}

_MINIBATCHES = "A fraction is a share of the rollout: batch_size: 0.25 makes 4 minibatches."
_LAYERS = "The layers are fields of their own: hidden_dims: [64, 64], activation: relu."

NOTES = {
    "anneal_lr": "For a linear decay to 0 write policy_lr: lin_0.00025.",
    "num_minibatches": _MINIBATCHES,
    "n_minibatches": _MINIBATCHES,
    "policy_kwargs": _LAYERS,
    "network_kwargs": _LAYERS,
}


def our_names(name: str, known: Collection[str]) -> list[str]:
    """Return the fields in `known` that another library calls `name`."""
    ours = FOREIGN.get(name, ())
    return [field for field in ([ours] if isinstance(ours, str) else ours) if field in known]


def foreign_names(known: Collection[str]) -> list[str]:
    """Return the names in other libraries of the fields in `known`."""
    return [name for name in FOREIGN if our_names(name, known)]
