"""PPO and SAC as plain PyTorch loops, in the shape of single-file implementations.

What a competent user would write by hand, for comparing speed on a GPU: eager torch, networks and
rollouts on the device, one transfer each way a step, torch.optim.Adam. Nothing of this project is
used. Each function trains and gives env steps a second after the warm-up.
"""

import time
from itertools import pairwise

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


def _mlp(sizes: list[int], activation: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), activation()]
    return nn.Sequential(*layers[:-1])


def ppo(
    env_steps: int,
    warm_steps: int,
    device: str,
    *,
    n_envs: int,
    n_steps: int,
    batch_size: int,
    n_epochs: int = 20,
) -> float:
    envs = gymnasium.make_vec("CartPole-v1", n_envs, vectorization_mode="vector_entry_point")
    actor, critic = (_mlp([4, 64, 64, n], nn.Tanh).to(device) for n in (2, 1))
    params = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(params, lr=1e-3, eps=1e-5)
    shape = (n_steps, n_envs)
    obs = torch.zeros((*shape, 4), device=device)
    actions, log_probs, rewards, dones, values = (
        torch.zeros(shape, device=device) for _ in "abcde"
    )
    next_obs = torch.as_tensor(envs.reset(seed=1)[0], device=device)
    next_done = torch.zeros(n_envs, device=device)
    n_done, started, counted_from = 0, None, 0
    while n_done < env_steps:
        for t in range(n_steps):
            obs[t], dones[t] = next_obs, next_done
            with torch.no_grad():
                dist = Categorical(logits=actor(next_obs))
                action = dist.sample()
                actions[t], log_probs[t] = action, dist.log_prob(action)
                values[t] = critic(next_obs).squeeze(1)
            new, reward, terminated, truncated, _ = envs.step(action.cpu().numpy())
            rewards[t] = torch.as_tensor(reward, device=device)
            next_obs = torch.as_tensor(new, device=device)
            next_done = torch.as_tensor((terminated | truncated).astype(np.float32), device=device)
        n_done += n_steps * n_envs
        with torch.no_grad():
            next_value = critic(next_obs).squeeze(1)
            advantages = torch.zeros_like(rewards)
            last = torch.zeros(n_envs, device=device)
            for t in reversed(range(n_steps)):
                alive = 1.0 - (next_done if t == n_steps - 1 else dones[t + 1])
                following = next_value if t == n_steps - 1 else values[t + 1]
                delta = rewards[t] + 0.98 * following * alive - values[t]
                advantages[t] = last = delta + 0.98 * 0.8 * alive * last
            returns = advantages + values
        flat = [x.flatten() for x in (actions, log_probs, advantages, returns)]
        flat_obs, n = obs.reshape(-1, 4), n_steps * n_envs
        for _ in range(n_epochs):
            order = torch.randperm(n, device=device)
            for first in range(0, n, batch_size):
                index = order[first : first + batch_size]
                action, old, advantage, target = (x[index] for x in flat)
                dist = Categorical(logits=actor(flat_obs[index]))
                ratio = (dist.log_prob(action) - old).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = ratio.clamp(0.8, 1.2) * advantage
                loss = -torch.min(ratio * advantage, clipped).mean()
                loss = loss + 0.5 * (critic(flat_obs[index]).squeeze(1) - target).square().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(params, 0.5)
                optimizer.step()
        if started is None and n_done >= warm_steps:
            _wait(device)
            started, counted_from = time.perf_counter(), n_done
    _wait(device)
    assert started is not None
    return (n_done - counted_from) / (time.perf_counter() - started)


def sac(env_steps: int, warm_steps: int, device: str) -> float:
    env = gymnasium.make("HalfCheetah-v5")
    n_obs, n_act, batch = 17, 6, 256
    actor = _mlp([n_obs, 256, 256, 2 * n_act], nn.ReLU).to(device)
    critics = [_mlp([n_obs + n_act, 256, 256, 1], nn.ReLU).to(device) for _ in range(2)]
    targets = [_mlp([n_obs + n_act, 256, 256, 1], nn.ReLU).to(device) for _ in range(2)]
    for target, critic in zip(targets, critics, strict=True):
        target.load_state_dict(critic.state_dict())
    critic_params = [p for critic in critics for p in critic.parameters()]
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)
    critic_optimizer = torch.optim.Adam(critic_params, lr=3e-4)
    log_alpha = torch.zeros(1, requires_grad=True, device=device)
    alpha_optimizer = torch.optim.Adam([log_alpha], lr=3e-4)

    def draw(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = actor(x).chunk(2, dim=1)
        dist = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
        u = dist.rsample()
        action = u.tanh()
        log_prob = dist.log_prob(u) - torch.log(1 - action.square() + 1e-6)
        return action, log_prob.sum(1)

    store = [np.zeros((100_000, n), np.float32) for n in (n_obs, n_act, 1, 1, n_obs)]
    rng = np.random.default_rng(1)
    obs, _ = env.reset(seed=1)
    started = 0.0
    for step in range(env_steps):
        if step == warm_steps:
            _wait(device)
            started = time.perf_counter()
        if step < 100:
            action = rng.uniform(-1, 1, n_act).astype(np.float32)
        else:
            with torch.no_grad():
                x = torch.as_tensor(obs, dtype=torch.float32, device=device)[None]
                action = draw(x)[0][0].cpu().numpy()
        new, reward, terminated, truncated, _ = env.step(action)
        for column, value in zip(store, (obs, action, reward, terminated, new), strict=True):
            column[step] = value
        obs = env.reset()[0] if terminated or truncated else new
        if step < 100:
            continue
        index = rng.integers(0, step + 1, batch)
        o, a, r, d, o2 = (torch.as_tensor(column[index], device=device) for column in store)
        alpha = log_alpha.detach().exp()
        with torch.no_grad():
            a2, log_prob = draw(o2)
            both = torch.min(*(t(torch.cat([o2, a2], 1)).squeeze(1) for t in targets))
            wanted = r.squeeze(1) + 0.99 * (1 - d.squeeze(1)) * (both - alpha * log_prob)
        x = torch.cat([o, a], 1)
        loss = sum((critic(x).squeeze(1) - wanted).square().mean() for critic in critics)
        critic_optimizer.zero_grad()
        loss.backward()
        critic_optimizer.step()
        a1, log_prob = draw(o)
        q = torch.min(*(critic(torch.cat([o, a1], 1)).squeeze(1) for critic in critics))
        actor_optimizer.zero_grad()
        (alpha * log_prob - q).mean().backward()
        actor_optimizer.step()
        alpha_optimizer.zero_grad()
        (-log_alpha * (log_prob.detach() - n_act)).mean().backward()
        alpha_optimizer.step()
        with torch.no_grad():
            for target, critic in zip(targets, critics, strict=True):
                for slow, fast in zip(target.parameters(), critic.parameters(), strict=True):
                    slow.lerp_(fast, 0.005)
    _wait(device)
    return (env_steps - warm_steps) / (time.perf_counter() - started)


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
