"""Names of metrics in other systems, and ours for them.

    canonical("rollout/ep_rew_mean", logged)     "train/roll/ep_rew/mean"
    canonical("eval/ep_rew_mean", logged)        "val/roll/ep_rew/mean"

Upper and lower case are the same. A name may mean one of several of ours (SB3's `train/loss` is the
total loss of PPO and the TD loss of DQN): the first that was logged is taken.
"""

import re
from collections.abc import Collection

Names = dict[str, tuple[str, ...]]

# Names there = names here.
_ELSEWHERE = """
[Stable-Baselines3]
rollout/ep_rew_mean = train/roll/ep_rew/mean
rollout/ep_len_mean = train/roll/ep_len/mean
rollout/exploration_rate = train/hp/epsilon
time/fps = train/sys/timing/fps
time/time_elapsed = train/sys/timing/time_elapsed
time/total_timesteps = train/cnt/total_env_steps
time/iterations = train/cnt/total_rollouts
time/episodes = train/cnt/total_episodes
train/loss = train/opt/loss/total, train/opt/loss/td, train/opt/loss/critic
train/policy_gradient_loss, train/policy_loss, train/actor_loss = train/opt/loss/policy
train/value_loss = train/opt/loss/value
train/entropy_loss = train/opt/loss/entropy
train/approx_kl = train/opt/ppo/approx_kl
train/clip_fraction = train/opt/ppo/clip_fraction
train/clip_range = train/hp/clip_range
train/explained_variance = train/opt/value/explained_var
train/learning_rate = train/hp/policy_lr
train/n_updates = train/cnt/total_updates
train/critic_loss = train/opt/loss/critic, train/opt/loss/td, train/opt/loss/value
train/ent_coef = train/opt/policy/alpha, train/hp/ent_coef
train/ent_coef_loss = train/opt/loss/alpha
eval/mean_reward = val/roll/ep_rew/mean
eval/mean_ep_length = val/roll/ep_len/mean
eval/success_rate = val/roll/success
rollout/success_rate = train/roll/success
[CleanRL]
global_step = train/cnt/total_env_steps
charts/episodic_return = train/roll/ep_rew/last
charts/episodic_length = train/roll/ep_len/last
charts/SPS = train/sys/timing/fps
charts/learning_rate = train/hp/policy_lr
charts/epsilon = train/hp/epsilon
losses/policy_loss, losses/actor_loss = train/opt/loss/policy
losses/value_loss = train/opt/loss/value
losses/entropy = train/opt/policy/entropy
losses/approx_kl = train/opt/ppo/approx_kl
losses/old_approx_kl = train/opt/ppo/kl
losses/clipfrac = train/opt/ppo/clip_fraction
losses/explained_variance = train/opt/value/explained_var
losses/td_loss = train/opt/loss/td, train/opt/loss/critic
losses/q_values, losses/qf1_values, losses/qf2_values = train/opt/q/mean
losses/qf_loss, losses/qf1_loss, losses/qf2_loss
  = train/opt/loss/critic, train/opt/loss/td, train/opt/loss/value
losses/alpha = train/opt/policy/alpha, train/hp/ent_coef
losses/alpha_loss = train/opt/loss/alpha
[SLM-Lab]
frame = train/cnt/total_env_steps
t = train/cnt/total_vec_steps
epi = train/cnt/total_episodes
opt_step = train/cnt/total_updates
wall_t = train/sys/timing/time_elapsed
fps = train/sys/timing/fps
total_reward = train/roll/ep_rew/last
total_reward_ma = train/roll/ep_rew/mean
loss = train/opt/loss/total, train/opt/loss/td, train/opt/loss/critic
lr = train/hp/policy_lr
explore_var = train/hp/epsilon, train/hp/temperature
entropy_coef = train/hp/ent_coef, train/opt/policy/alpha
entropy = train/opt/policy/entropy
grad_norm = train/opt/grads/norm/all, train/opt/grads/norm/critic
[RL Gym Benchmarking]
Avg. Episodic Reward = train/roll/ep_rew/mean
Eval Reward = val/roll/ep_rew/mean
Value Estimates = train/opt/q/mean
Avg. Epsilon = train/hp/epsilon
Avg. Learning Rate = train/hp/policy_lr
Residual = train/opt/loss/td, train/opt/loss/critic
[RLlib]
episode_reward_mean, episode_return_mean = train/roll/ep_rew/mean
episode_len_mean = train/roll/ep_len/mean
num_env_steps_sampled = train/cnt/total_env_steps
"""
# Older names of gymnasium-solver: `<stage>/<name>`, with `eval` for `val`; without a stage, train.
_OLDER = """
ep_rew_mean = roll/ep_rew/mean
ep_rew_best = roll/ep_rew/best
ep_rew_last = roll/ep_rew/last
ep_rew_std = roll/ep_rew/std
ep_rew_min = roll/ep_rew/min
ep_rew_max = roll/ep_rew/max
ep_len_mean = roll/ep_len/mean
ep_len_last = roll/ep_len/last
total_timesteps, total_env_steps = cnt/total_env_steps
total_vec_steps = cnt/total_vec_steps
total_episodes = cnt/total_episodes
total_rollouts = cnt/total_rollouts
rollout_timesteps = roll/env_steps
rollout_episodes = roll/episodes
rollout_fps, roll/fps = sys/timing/collect_fps
fps = sys/timing/fps
fps_instant = sys/timing/fps_instant
time_elapsed = sys/timing/time_elapsed
eta_s = sys/timing/eta_s
loss, total_loss, loss/total = opt/loss/total
policy_loss, loss/policy = opt/loss/policy
value_loss, loss/value = opt/loss/value
value_loss_scaled = opt/loss/value_scaled
entropy_loss, loss/entropy = opt/loss/entropy
entropy_loss_scaled = opt/loss/entropy_scaled
entropy = opt/policy/entropy
approx_kl = opt/ppo/approx_kl
kl_div = opt/ppo/kl
clip_fraction = opt/ppo/clip_fraction
clip_fraction_vf = opt/ppo/clip_fraction_vf
explained_variance = opt/value/explained_var
grad_norm, grad_norm/all = opt/grads/norm/all
grad_norm/backbone, opt/grads/norm/backbone, opt/grads/norm/trunk = opt/grads/norm/actor_torso
grad_norm/policy_head, opt/grads/norm/policy_head = opt/grads/norm/actor_head
grad_norm/value_head, opt/grads/norm/value_head = opt/grads/norm/critic_head
policy_lr, opt/policy_lr = hp/policy_lr
clip_range = hp/clip_range
ent_coef = hp/ent_coef
obs_mean = roll/obs/mean
obs_std = roll/obs/std
reward_mean = roll/reward/mean
reward_std = roll/reward/std
action_mean = roll/actions/mean
action_std = roll/actions/std
advantage_mean = roll/adv/mean
advantage_std = roll/adv/std
baseline_mean = roll/baseline/mean
baseline_std = roll/baseline/std
"""


def _read(table: str) -> Names:
    found: Names = {}
    for line in re.sub(r"\n +", " ", table.strip()).splitlines():
        there, here = (part.strip().split(", ") for part in line.split(" = "))
        found |= dict.fromkeys(there, tuple(here))
    return found


SYSTEMS: dict[str, Names] = {
    section.split("]")[0]: _read(section.split("]")[1]) for section in _ELSEWHERE.split("[")[1:]
}
OLDER = {there: here for there, (here,) in _read(_OLDER).items()}
STAGES = {"train": "train", "rollout": "train", "val": "val", "eval": "val", "test": "test"}
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
