"""What other libraries (SB3, CleanRL, RLlib, Tianshou, SLM-Lab, PufferLib) call our fields.

An unknown field with such a name gets our name as the suggestion, and a note on how to convert the
value where the meaning differs. A name without a counterpart here has a note only.
"""

from collections.abc import Collection

# Our field: its names elsewhere.
NAMES: dict[str, str] = {
    "env_id": "env env_name",
    "algo_id": "algo algorithm",
    "project_id": "exp_name wandb_project_name",
    "n_envs": "num_envs num_env training_num num_workers num_env_runners "
    "num_envs_per_worker num_envs_per_env_runner",
    "n_steps": "num_steps time_horizon rollout_length rollout_fragment_length step_per_collect "
    "steps_per_epoch bptt_horizon train_batch_size train_batch_size_per_learner",
    "max_env_steps": "total_timesteps n_timesteps total_env_steps max_frame",
    "max_epochs": "training_iteration training_iterations epochs",
    "max_episode_steps": "max_t horizon max_ep_len max_episode_length time_limit",
    "seed": "random_seed",
    "env_wrappers": "env_wrapper vec_env_wrapper",
    "vectorization_mode": "vec_env vec_env_class async_vectorization",
    "device": "cuda num_gpus num_gpus_per_learner",
    "quiet": "verbose",
    "eval_freq_steps": "eval_frequency eval_freq",
    "eval_freq_epochs": "evaluation_interval",
    "eval_episodes": "n_eval_episodes evaluation_duration episode_per_test",
    "n_eval_envs": "test_num",
    "eval_deterministic": "deterministic_eval",
    "checkpoint_freq_epochs": "save_freq checkpoint_freq",
    "policy_lr": "learning_rate lr lr_start anneal_lr actor_lr lr_actor pi_lr lr_schedule",
    "critic_lr": "lr_critic q_lr vf_lr",
    "alpha_lr": "lr_alpha",
    "optimizer": "optim optimizer_class",
    "adam_eps": "optimizer_eps",
    "max_grad_norm": "clip_grad_val max_grad grad_clip",
    "gamma": "discount discount_factor",
    "hidden_dims": "hid_layers net_arch hidden_sizes fcnet_hiddens policy_kwargs network_kwargs "
    "ac_kwargs",
    "activation": "activation_fn fcnet_activation policy_kwargs network_kwargs",
    "sde": "use_sde",
    "share_trunk": "vf_share_layers share_features_extractor",
    "normalize_obs": "normalize obs_norm norm_obs observation_filter",
    "normalize_reward": "normalize rew_norm norm_reward reward_normalization",
    "batch_size": "minibatch_size num_minibatches n_minibatches sgd_minibatch_size nminibatches",
    "n_epochs": "update_epochs training_epoch num_sgd_iter num_epochs repeat_per_collect "
    "train_pi_iters noptepochs",
    "gae_lambda": "lam lambda lambda_",
    "clip_range": "clip_coef clip_eps clip_param eps_clip clip_ratio",
    "clip_range_vf": "clip_vloss clip_val_loss vf_clip_param vf_clip_coef value_clip",
    "vf_coef": "value_coef val_loss_coef vf_loss_coeff",
    "ent_coef": "entropy_coef entropy_coeff autotune alpha initial_alpha init_temperature",
    "normalize_advantages": "norm_adv normalize_advantage advantage_normalization",
    "buffer_size": "replay_size memory_size replay_buffer_size replay_buffer_capacity",
    "learning_starts": "start_steps start_timesteps warmup_steps "
    "num_steps_sampled_before_learning_starts",
    "train_freq": "train_frequency update_every",
    "updates_per_step": "gradient_steps update_per_step utd_ratio train_ratio",
    "sequence_length": "batch_length",
    "imagination_steps": "imag_length",
    "tau": "polyak target_network_tau",
    "target_update_freq": "target_update_interval target_network_frequency "
    "target_network_update_freq",
    "prioritized": "replay_buffer_class prioritized_replay",
    "her": "replay_buffer_class replay_buffer_kwargs n_sampled_goal goal_selection_strategy "
    "future_k",
    "epsilon": "exploration_fraction exploration_initial_eps exploration_final_eps start_e end_e "
    "eps_train epsilon_start epsilon_end exploration_config",
    "temperature": "softmax_temp",
    "target_noise": "target_policy_noise policy_noise",
    "target_noise_clip": "noise_clip",
    "policy_delay": "policy_frequency",
    "exploration_noise": "action_noise act_noise",
    "n_critics": "twin_q num_critics",
}

FOREIGN: dict[str, tuple[str, ...]] = {}
for _ours, _theirs in NAMES.items():
    for _name in _theirs.split():
        FOREIGN[_name] = (*FOREIGN.get(_name, ()), _ours)

_MINIBATCHES = "A fraction is a share of the rollout: batch_size: 0.25 makes 4 minibatches."
_LAYERS = "The layers are fields of their own: hidden_dims: [64, 64], activation: relu."
_EPSILON = "One schedule has all three: epsilon: {start: 1, end: 0.05, to: 0.1}."
_ROLLOUT = "A rollout has n_envs x n_steps samples."
_EPOCHS = "It counts epochs; an epoch is n_envs x n_steps env steps."
_UPDATES = "It is a ratio: gradient steps per env step, for any n_envs."
_HER = "Hindsight replay is one field: her: {strategy: future, k: 4}."
_TRACKERS = "Runs are written to their own folder; gsolve plot draws them."

NOTES = {
    "anneal_lr": "For a linear decay to 0 write policy_lr: lin_0.00025.",
    "lr_schedule": "A field takes its schedule itself: policy_lr: {start: 0.001, end: 0}.",
    **dict.fromkeys(("num_minibatches", "n_minibatches", "nminibatches"), _MINIBATCHES),
    **dict.fromkeys(("policy_kwargs", "network_kwargs", "ac_kwargs"), _LAYERS),
    **dict.fromkeys(
        ("exploration_fraction", "exploration_initial_eps", "exploration_final_eps"), _EPSILON
    ),
    **dict.fromkeys(("start_e", "end_e", "exploration_config"), _EPSILON),
    **dict.fromkeys(("train_batch_size", "train_batch_size_per_learner"), _ROLLOUT),
    **dict.fromkeys(("evaluation_interval", "save_freq"), _EPOCHS),
    "gradient_steps": _UPDATES,
    "train_ratio": "updates_per_step is train_ratio / (batch_size * sequence_length).",
    "autotune": "ent_coef: auto learns it; a number keeps it fixed.",
    "alpha": "ent_coef: auto_0.2 learns it from 0.2; a number keeps it fixed.",
    "clip_vloss": "clip_range_vf is the range itself, in units of the return; null: no clipping.",
    "norm_adv": "rollout, batch (as in SB3 and CleanRL) or off.",
    "normalize_advantage": "rollout, batch (as in SB3 and CleanRL) or off.",
    "replay_buffer_class": "Both are switches: prioritized: true, her: true.",
    **dict.fromkeys(
        ("replay_buffer_kwargs", "n_sampled_goal", "goal_selection_strategy", "future_k"), _HER
    ),
    "verbose": "quiet: true prints only the result.",
    "tensorboard_log": _TRACKERS,
    "track": _TRACKERS,
    "kl_coeff": "PPO here clips; target_kl ends an update early.",
    "overlap": "It was removed, since it gained little: remove the line; n_envs: 128 or more keeps "
    "the cores busy.",
    "torch_deterministic": "Runs on the CPU are always deterministic; seed repeats them.",
}

# Configs of tsilva/gymnasium-solver whose names are others here: what `gsolve train` takes instead.
OLD_CONFIGS = {
    "ALE-Pong-v5:objects_ppo": "ALE/Pong-v5:ppo_objects",
    "ALE-Pong-v5:objects_deterministic_ppo": "ALE/Pong-v5:ppo_objects_v4",
    "ALE-Pong-v5:rgb_ppo": "ALE/Pong-v5:ppo",
    "ALE-Pong-v5:rgb_deterministic_ppo": "ALE/Pong-v5:ppo_v4",
    "ALE-Breakout-v5:rgb_ppo": "ALE/Breakout-v5:ppo",
    "ALE-Breakout-v5:rgb_deterministic_ppo": "ALE/Breakout-v5:ppo "
    "--env-kwargs repeat_action_probability=0",
    "ALE-Breakout-v5:objects_ppo": "ALE/Breakout-v5:ppo_objects",
    "ALE-Breakout-v5:objects_deterministic_ppo": "ALE/Breakout-v5:ppo_objects "
    "--env-kwargs repeat_action_probability=0",
    "CartPole-v1:ppo_transfer_test": "CartPole-v1:ppo --init-from-run RUN/@best",
    "MountainCar-v0:ppo_curiosity": "MountainCar-v0:ppo_count",
}


def our_names(name: str, known: Collection[str]) -> list[str]:
    """Return the fields in `known` that another library calls `name`."""
    return [field for field in FOREIGN.get(name, ()) if field in known]


def foreign_names(known: Collection[str]) -> list[str]:
    """Return the names in other libraries of the fields in `known`."""
    return [name for name in FOREIGN if our_names(name, known)]
