"""Names of metrics in other systems, and ours for them.

    canonical("rollout/ep_rew_mean", logged)     "train/roll/ep_rew/mean"
    canonical("eval/ep_rew_mean", logged)        "val/roll/ep_rew/mean"

Upper and lower case are the same. A name may mean one of several of ours (SB3's `train/loss` is the
total loss of PPO and the TD loss of DQN): the first that was logged is taken.
"""

from collections.abc import Collection

Names = dict[str, tuple[str, ...]]

_RETURN, _LENGTH = ("train/roll/ep_rew/mean",), ("train/roll/ep_len/mean",)
_LAST_RETURN, _LAST_LENGTH = ("train/roll/ep_rew/last",), ("train/roll/ep_len/last",)
_LOSS = ("train/opt/loss/total", "train/opt/loss/td", "train/opt/loss/critic")
_CRITIC = ("train/opt/loss/critic", "train/opt/loss/td", "train/opt/loss/value")
_STEPS, _LR = ("train/cnt/total_env_steps",), ("train/hp/policy_lr",)
_FPS, _SECONDS = ("train/sys/timing/fps",), ("train/sys/timing/time_elapsed",)
_ALPHA, _ENTROPY = ("train/opt/policy/alpha", "train/hp/ent_coef"), ("train/opt/policy/entropy",)
_NORM = ("train/opt/grads/norm/all", "train/opt/grads/norm/critic")
_Q, _TD = ("train/opt/q/mean",), ("train/opt/loss/td", "train/opt/loss/critic")

SYSTEMS: dict[str, Names] = {
    "Stable-Baselines3": {
        "rollout/ep_rew_mean": _RETURN,
        "rollout/ep_len_mean": _LENGTH,
        "rollout/exploration_rate": ("train/hp/epsilon",),
        "time/fps": _FPS,
        "time/time_elapsed": _SECONDS,
        "time/total_timesteps": _STEPS,
        "time/iterations": ("train/cnt/total_rollouts",),
        "time/episodes": ("train/cnt/total_episodes",),
        "train/loss": _LOSS,
        "train/policy_gradient_loss": ("train/opt/loss/policy",),
        "train/policy_loss": ("train/opt/loss/policy",),
        "train/value_loss": ("train/opt/loss/value",),
        "train/entropy_loss": ("train/opt/loss/entropy",),
        "train/approx_kl": ("train/opt/ppo/approx_kl",),
        "train/clip_fraction": ("train/opt/ppo/clip_fraction",),
        "train/clip_range": ("train/hp/clip_range",),
        "train/explained_variance": ("train/opt/value/explained_var",),
        "train/learning_rate": _LR,
        "train/n_updates": ("train/cnt/total_updates",),
        "train/actor_loss": ("train/opt/loss/policy",),
        "train/critic_loss": _CRITIC,
        "train/ent_coef": _ALPHA,
        "train/ent_coef_loss": ("train/opt/loss/alpha",),
        "eval/mean_reward": ("val/roll/ep_rew/mean",),
        "eval/mean_ep_length": ("val/roll/ep_len/mean",),
        "eval/success_rate": ("val/roll/success",),
        "rollout/success_rate": ("train/roll/success",),
    },
    "CleanRL": {
        "global_step": _STEPS,
        "charts/episodic_return": _LAST_RETURN,
        "charts/episodic_length": _LAST_LENGTH,
        "charts/SPS": _FPS,
        "charts/learning_rate": _LR,
        "charts/epsilon": ("train/hp/epsilon",),
        "losses/policy_loss": ("train/opt/loss/policy",),
        "losses/value_loss": ("train/opt/loss/value",),
        "losses/entropy": _ENTROPY,
        "losses/approx_kl": ("train/opt/ppo/approx_kl",),
        "losses/old_approx_kl": ("train/opt/ppo/kl",),
        "losses/clipfrac": ("train/opt/ppo/clip_fraction",),
        "losses/explained_variance": ("train/opt/value/explained_var",),
        "losses/td_loss": _TD,
        "losses/q_values": _Q,
        "losses/qf1_values": _Q,
        "losses/qf2_values": _Q,
        "losses/qf_loss": _CRITIC,
        "losses/qf1_loss": _CRITIC,
        "losses/qf2_loss": _CRITIC,
        "losses/actor_loss": ("train/opt/loss/policy",),
        "losses/alpha": _ALPHA,
        "losses/alpha_loss": ("train/opt/loss/alpha",),
    },
    "SLM-Lab": {
        "frame": _STEPS,
        "t": ("train/cnt/total_vec_steps",),
        "epi": ("train/cnt/total_episodes",),
        "opt_step": ("train/cnt/total_updates",),
        "wall_t": _SECONDS,
        "fps": _FPS,
        "total_reward": _LAST_RETURN,
        "total_reward_ma": _RETURN,
        "loss": _LOSS,
        "lr": _LR,
        "explore_var": ("train/hp/epsilon", "train/hp/temperature"),
        "entropy_coef": _ALPHA[::-1],
        "entropy": _ENTROPY,
        "grad_norm": _NORM,
    },
    "RL Gym Benchmarking": {
        "Avg. Episodic Reward": _RETURN,
        "Eval Reward": ("val/roll/ep_rew/mean",),
        "Value Estimates": _Q,
        "Avg. Epsilon": ("train/hp/epsilon",),
        "Avg. Learning Rate": _LR,
        "Residual": _TD,
    },
    "RLlib": {
        "episode_reward_mean": _RETURN,
        "episode_return_mean": _RETURN,
        "episode_len_mean": _LENGTH,
        "num_env_steps_sampled": _STEPS,
    },
}

# Older names of gymnasium-solver: `<stage>/<name>`, with `eval` for `val`; without a stage, train.
STAGES = {"train": "train", "rollout": "train", "val": "val", "eval": "val", "test": "test"}
OLDER: dict[str, str] = {
    "ep_rew_mean": "roll/ep_rew/mean",
    "ep_rew_best": "roll/ep_rew/best",
    "ep_rew_last": "roll/ep_rew/last",
    "ep_rew_std": "roll/ep_rew/std",
    "ep_rew_min": "roll/ep_rew/min",
    "ep_rew_max": "roll/ep_rew/max",
    "ep_len_mean": "roll/ep_len/mean",
    "ep_len_last": "roll/ep_len/last",
    "total_timesteps": "cnt/total_env_steps",
    "total_env_steps": "cnt/total_env_steps",
    "total_vec_steps": "cnt/total_vec_steps",
    "total_episodes": "cnt/total_episodes",
    "total_rollouts": "cnt/total_rollouts",
    "rollout_timesteps": "roll/env_steps",
    "rollout_episodes": "roll/episodes",
    "rollout_fps": "sys/timing/collect_fps",
    "roll/fps": "sys/timing/collect_fps",
    "fps": "sys/timing/fps",
    "fps_instant": "sys/timing/fps_instant",
    "time_elapsed": "sys/timing/time_elapsed",
    "eta_s": "sys/timing/eta_s",
    "loss": "opt/loss/total",
    "total_loss": "opt/loss/total",
    "loss/total": "opt/loss/total",
    "policy_loss": "opt/loss/policy",
    "loss/policy": "opt/loss/policy",
    "value_loss": "opt/loss/value",
    "loss/value": "opt/loss/value",
    "value_loss_scaled": "opt/loss/value_scaled",
    "entropy_loss": "opt/loss/entropy",
    "loss/entropy": "opt/loss/entropy",
    "entropy_loss_scaled": "opt/loss/entropy_scaled",
    "entropy": "opt/policy/entropy",
    "approx_kl": "opt/ppo/approx_kl",
    "kl_div": "opt/ppo/kl",
    "clip_fraction": "opt/ppo/clip_fraction",
    "clip_fraction_vf": "opt/ppo/clip_fraction_vf",
    "explained_variance": "opt/value/explained_var",
    "grad_norm": "opt/grads/norm/all",
    "grad_norm/all": "opt/grads/norm/all",
    "grad_norm/backbone": "opt/grads/norm/actor_torso",
    "grad_norm/policy_head": "opt/grads/norm/actor_head",
    "grad_norm/value_head": "opt/grads/norm/critic_head",
    "opt/grads/norm/backbone": "opt/grads/norm/actor_torso",
    "opt/grads/norm/trunk": "opt/grads/norm/actor_torso",
    "opt/grads/norm/policy_head": "opt/grads/norm/actor_head",
    "opt/grads/norm/value_head": "opt/grads/norm/critic_head",
    "policy_lr": "hp/policy_lr",
    "opt/policy_lr": "hp/policy_lr",
    "clip_range": "hp/clip_range",
    "ent_coef": "hp/ent_coef",
    "obs_mean": "roll/obs/mean",
    "obs_std": "roll/obs/std",
    "reward_mean": "roll/reward/mean",
    "reward_std": "roll/reward/std",
    "action_mean": "roll/actions/mean",
    "action_std": "roll/actions/std",
    "advantage_mean": "roll/adv/mean",
    "advantage_std": "roll/adv/std",
    "baseline_mean": "roll/baseline/mean",
    "baseline_std": "roll/baseline/std",
}
_FOREIGN = {other.lower(): ours for names in SYSTEMS.values() for other, ours in names.items()}


def canonical(name: str, logged: Collection[str]) -> str | None:
    """The logged metric that `name` means in another system; None if there is none."""
    return next((ours for ours in _candidates(name.strip().lower()) if ours in logged), None)


def aliases_of(metric: str) -> list[str]:
    """The names of a metric in other systems, older names included."""
    stage, _, rest = metric.partition("/")
    older = [f"{stage}/{other}" for other, ours in OLDER.items() if ours == rest]
    foreign = [other for names in SYSTEMS.values() for other in names if metric in names[other]]
    return [*foreign, *(name for name in older if name not in foreign)]


def _candidates(name: str) -> list[str]:
    stage, _, rest = name.partition("/")
    if stage not in STAGES:
        stage, rest = "train", name
    found = list(_FOREIGN.get(name, ()))
    if rest in OLDER:
        found.append(f"{STAGES[stage]}/{OLDER[rest]}")
    if rest == name:  # our own name without its stage
        found.append(f"train/{name}")
    return found
