"""DQN (Mnih et al. 2015) and its extensions up to Rainbow (Hessel et al. 2018), as flags.

    double           the online net selects the next action, the target net evaluates it
    dueling          separate value and advantage streams
    prioritized      sample by the last TD error, with importance weights
    n_step           n-step returns
    noisy            learnt noise in the last layers, used for exploration
    distributional   categorical distribution of returns (C51) instead of the mean
    recurrent        a recurrent core, trained on replayed sequences (R2D2, see r2d2.py)

The flags are independent of each other. Differences from common implementations: truncated episodes
bootstrap from their true final observation; epsilon-greedy draws independently for each env;
illegal actions are neither taken nor used in the bootstrap; with `noisy`, on the CPU, each env acts
with its own noise.
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.configs.dqn import DQNConfig
from gymnasium_solver.algos.joined_steps import JoinedSteps
from gymnasium_solver.algos.off_policy import OffPolicyLearner, ReplayBatch
from gymnasium_solver.algos.q_targets import build_q_network
from gymnasium_solver.algos.r2d2 import (
    SequenceBatch,
    sample_batch,
    sequence_errors,
    sequence_loss,
)
from gymnasium_solver.fast.optimizer import FlatOptimizer
from gymnasium_solver.nets.q_network import QHead, QNetwork
from gymnasium_solver.policies.q_policy import QPolicy
from gymnasium_solver.spaces.observations import Space


def best_actions(q: Tensor, mask: Tensor | None) -> Tensor:
    """Best legal action of each row [B]."""
    return (q if mask is None else q.masked_fill(~mask, -torch.inf)).argmax(dim=1)


def of_action(values: Tensor, actions: Tensor) -> Tensor:
    """Select the taken actions [B] from values [B, A] or [B, A, K]; returns [B] or [B, K]."""
    index = actions.view(-1, *[1] * (values.ndim - 1))
    return values.gather(1, index.expand(-1, 1, *values.shape[2:])).squeeze(1)


def td_errors(
    net: QNetwork, target: QHead, batch: ReplayBatch, double: bool
) -> tuple[Tensor, Tensor]:
    """Return Q(s, a) and the TD error Q(s, a) - target, both [B]."""
    with torch.no_grad():
        next_x = net.encoder(batch.next_obs)
        next_q = target(next_x)
        best = best_actions(net.q(next_x) if double else next_q, batch.next_mask)
        wanted = batch.reward + batch.discount * of_action(next_q, best)
    q = of_action(net(batch.obs), batch.actions)
    return q, q - wanted


def c51_errors(
    net: QNetwork, target: QHead, batch: ReplayBatch, double: bool
) -> tuple[Tensor, Tensor]:
    """Return the expected Q(s, a) and the cross-entropy to the target distribution, both [B]."""
    with torch.no_grad():
        next_x = net.encoder(batch.next_obs)
        next_probs = torch.softmax(target(next_x), dim=2)
        choosing = torch.softmax(net.q(next_x), dim=2) if double else next_probs
        best = best_actions((choosing * net.support).sum(2), batch.next_mask)
        wanted = ops.c51_project(
            of_action(next_probs, best), batch.reward, batch.discount,
            net.support, net.v_min, net.v_max,
        )  # fmt: skip
    log_probs = torch.log_softmax(of_action(net(batch.obs), batch.actions), dim=1)
    expected = (log_probs.detach().exp() * net.support).sum(1)
    return expected, -(wanted * log_probs).sum(1)


class DQN(OffPolicyLearner):
    is_one_graph = True
    Config = DQNConfig
    net: QNetwork
    policy: QPolicy
    target: QHead

    def __init__(
        self,
        config: DQNConfig,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str = "cpu",
    ):
        super().__init__(config, observation_space, action_space, seed, device)
        self.config: DQNConfig = config
        self.net, self.policy, self.optimizer = build_q_network(
            self,
            config.resolved_exploration,
            dueling=config.dueling,
            noisy_sigma=config.noisy_sigma if config.noisy else None,
            n_atoms=config.n_atoms if config.distributional else 1,
            v_min=config.v_min,
            v_max=config.v_max,
        )
        if config.recurrent is not None:
            self.rows_needed = config.burn_in + (config.sequence_length or 1)
        self.target = cast(QHead, self.set_target(self.optimizer))
        self.target_copy_freq = config.target_update_freq if config.tau == 1 else None
        self.gradient = self.add_gradient(
            "q",
            self._loss if config.recurrent is None else self._sequence_loss,
            self.optimizer,
            constants=[
                *self.target.parameters(),
                *_noise(self.net.q),
                *_noise(self.target),
                self.net.support,
            ],
            record=config.has_short_sequences,
        )
        self.joined = None
        if isinstance(self.optimizer, FlatOptimizer):
            names = ("opt/loss/td", "opt/q/mean")
            self.joined = JoinedSteps(self, self.gradient, self.optimizer, names)

    def _loss(
        self, batch: ReplayBatch, coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        cfg = self.config
        if cfg.distributional:
            q, error = c51_errors(self.net, self.target, batch, cfg.double)
            loss = error
        else:
            q, error = td_errors(self.net, self.target, batch, cfg.double)
            loss = ops.huber(error) if cfg.loss == "huber" else error.square()
        total = (batch.weight * loss).mean()
        return total, [total, q.mean(), error.abs()]

    # -- with memory: sequences (r2d2.py) ---------------------------------------------------

    def _sequence_loss(
        self, batch: SequenceBatch, coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        cfg = self.config
        q, errors = sequence_errors(
            self.net, self.target, batch, cfg.burn_in, cfg.double, cfg.value_rescaling
        )
        total, priority = sequence_loss(errors, batch, cfg.loss == "huber")
        return total, [total, q.sum() / batch.valid.sum().clamp(min=1.0), priority]

    def samples(self, n_updates: int, hp: dict[str, float]) -> Iterable[Any]:
        cfg = self.config
        if cfg.recurrent is None:
            yield from super().samples(n_updates, hp)
            return
        assert self.memory is not None or n_updates == 0
        length = cfg.sequence_length or 1
        scale, clip = 1.0, None
        if cfg.scales_reward:
            scale, clip = self.reward_normalizer.scale, cfg.clip_reward
        for _ in range(n_updates):
            assert self.memory is not None
            n = max(1, cfg.batch_size // length)
            beta = hp.get("per_beta", 1.0)
            yield sample_batch(self.memory, n, cfg.burn_in, length, beta, scale, clip)

    def columns(self, sample: Any) -> Any:
        if self.config.recurrent is None:
            return super().columns(sample)
        return SequenceBatch(**sample.columns)

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        super().before_rollout(env_steps, total_steps)
        self.policy.epsilon = self.config.epsilon.at(env_steps, total_steps)
        self.policy.temperature = self.config.temperature.at(env_steps, total_steps)

    def forward_all(self, batch: Any) -> None:
        if self.config.recurrent is None:
            self.net(batch.obs)
        else:
            self.net.sequence(batch.obs, batch.carry, batch.is_first)

    def prepare_step(self) -> None:
        if self.config.noisy:
            self.net.q.resample(self.rng)
            self.target.resample(self.rng)

    def can_join_steps(self) -> bool:
        """Steps with priorities, new noise or sequences need Python in between."""
        cfg = self.config
        needs_python = cfg.prioritized or cfg.noisy or cfg.recurrent is not None
        return self.joined is not None and self.gradient.mode == "compiled" and not needs_python

    def learn_joined(self, n_updates: int, hp: dict[str, float]) -> dict[str, Any]:
        assert self.joined is not None
        target = None
        if self.target_copy_freq is None:
            target = (self.targets["q"].flat, float(self.config.tau))
        return self.joined(n_updates, hp, target)

    def learn(self, batch: Any, sample: Any, hp: dict[str, float]) -> dict[str, Any]:
        with self.timer.detail("gradient"):
            grad, loss, q, error = self.gradient(batch, [])
        with self.timer.detail("optimiser"):
            norm = self.optimizer.step(grad, hp["policy_lr"])
        self.set_priorities(sample, error)
        if self.target_copy_freq is None:
            self.update_target(self.config.tau)
        return {"opt/loss/td": loss, "opt/q/mean": q, "opt/grads/norm/all": norm}


def _noise(head: QHead) -> list[Tensor]:
    return [noise for layer in head.noisy_layers for noise in (layer.noise_in, layer.noise_out)]
