"""DQN (Mnih et al. 2015) and its extensions up to Rainbow (Hessel et al. 2018), as flags.

    double           the online net selects the next action, the target net evaluates it
    dueling          separate value and advantage streams
    prioritized      sample by the last TD error, with importance weights
    n_step           n-step returns
    noisy            learnt noise in the last layers, used for exploration
    critic_head      what outputs mean: a value, a distribution (C51, two-hot, HL-Gauss), quantiles
    recurrent        a recurrent core, trained on replayed sequences (R2D2, Kapturowski et al. 2019)

The flags are independent of each other. Differences from common implementations: truncated episodes
bootstrap from their true final observation; epsilon-greedy draws independently for each env;
illegal actions are neither taken nor used in the bootstrap; with `noisy`, on the CPU, each env acts
with its own noise; every step of the replay can be the first of a sequence, instead of every 40th,
and new sequences have the highest priority.
"""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from gymnasium_solver.algos.batch_rows import after_burn_in, priorities
from gymnasium_solver.algos.configs.dqn import DQNConfig
from gymnasium_solver.algos.q_learning import build_q_network
from gymnasium_solver.algos.replay_learner import ReplayLearner, SequenceLengths
from gymnasium_solver.data.replay import ReplayBatch
from gymnasium_solver.data.sequences import SequenceBatch
from gymnasium_solver.fast.program import Single
from gymnasium_solver.nets.heads import critic_head, huber
from gymnasium_solver.nets.q_network import QHead, QNetwork
from gymnasium_solver.policies.q_policy import QPolicy
from gymnasium_solver.spaces.actions import mask_tensor

RESCALE_EPS = 1e-3


def best_actions(q: Tensor, mask: Tensor | None) -> Tensor:
    """Best legal action of each row [B]."""
    return (q if mask is None else q.masked_fill(~mask, -torch.inf)).argmax(dim=1)


def of_action(values: Tensor, actions: Tensor) -> Tensor:
    """Select the taken actions [B] from values [B, A] or [B, A, K]; returns [B] or [B, K]."""
    index = actions.view(-1, *[1] * (values.ndim - 1))
    return values.gather(1, index.expand(-1, 1, *values.shape[2:])).squeeze(1)


def q_losses(
    net: QNetwork, target: QHead, batch: ReplayBatch, double: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Q(s, a), its loss and its error for priorities, each [B]."""
    head = net.head
    with torch.no_grad():
        next_x = net.encoder(batch.next_obs)
        following = target(next_x)
        choosing = net.q(next_x) if double else following
        best = best_actions(head.value(choosing), batch.next_mask)
        wanted = head.target(of_action(following, best), batch.reward, batch.discount)
    outputs = of_action(net(batch.obs), batch.actions)
    loss, error = head.loss(outputs, wanted)
    return head.value(outputs.detach()), loss, error


# -- on sequences, with n-step targets inside a sequence -------------------------------------------


def rescaled(x: Tensor) -> Tensor:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x: large values are compressed."""
    return x.sign() * ((x.abs() + 1.0).sqrt() - 1.0) + RESCALE_EPS * x


def unscaled(y: Tensor) -> Tensor:
    """The inverse of `rescaled`."""
    eps = RESCALE_EPS
    root = (1.0 + 4.0 * eps * (y.abs() + 1.0 + eps)).sqrt()
    return y.sign() * (((root - 1.0) / (2.0 * eps)).square() - 1.0)


def sequence_values(net: QNetwork, head: QHead, batch: SequenceBatch, burn_in: int) -> Tensor:
    """Values of the rows after burn-in [B, L + 1, A] by a head, online or target."""
    q = after_burn_in(net.encoder, head, "core", batch, slice(burn_in, None))
    return q.view(len(batch.weight), -1, q.shape[1])


def sequence_errors(
    net: QNetwork, target: QHead, batch: SequenceBatch, burn_in: int, double: bool, rescale: bool
) -> tuple[Tensor, Tensor]:
    """Q(s, a) and the TD errors, both [B, L]; 0 at rows that are not learnt from."""
    q = sequence_values(net, net.q, batch, burn_in)
    with torch.no_grad():
        later = sequence_values(net, target, batch, burn_in)
        choosing = q.detach() if double else later
        if batch.mask is not None:
            choosing = choosing.masked_fill(~batch.mask, -torch.inf)
        values = later.gather(2, choosing.argmax(2, keepdim=True)).squeeze(2)
        value = values.gather(1, batch.place)
        value = unscaled(value) if rescale else value
        wanted = batch.reward + batch.discount * value
        wanted = rescaled(wanted) if rescale else wanted
    taken = q[:, :-1].gather(2, batch.actions.unsqueeze(2)).squeeze(2)
    return taken * batch.valid, (taken - wanted) * batch.valid


def sequence_loss(errors: Tensor, batch: SequenceBatch, is_huber: bool) -> tuple[Tensor, Tensor]:
    """The weighted mean over sequences, and their priorities [B]."""
    loss = huber(errors) if is_huber else errors.square()
    n = batch.valid.sum(1).clamp(min=1.0)
    return (batch.weight * loss.sum(1) / n).mean(), priorities(errors.detach().abs(), n)


class DQN(ReplayLearner):
    Config = DQNConfig
    config: DQNConfig
    net: QNetwork
    policy: QPolicy

    def build(self) -> None:
        cfg = self.config
        self.net, self.policy = build_q_network(
            self,
            cfg.resolved_exploration,
            dueling=cfg.dueling,
            noisy_sigma=cfg.noisy_sigma if cfg.noisy else None,
            head=critic_head(cfg.resolved_head, **cfg.head_settings, loss=cfg.loss),
        )
        loss: Any = self.loss
        if cfg.recurrent is not None:
            loss = self.sequence_loss
            self.sequences = SequenceLengths(cfg.burn_in, cfg.sequence_length or 1)
        is_copied = cfg.tau == 1
        self.target_copy_freq = cfg.target_update_freq if is_copied else None
        self.descent = self.add_descent(
            "q", loss, self.net.q, norm="all", record=cfg.has_short_sequences,
            target=True, tau=None if is_copied else cfg.tau,
        )  # fmt: skip
        self.target = cast(QHead, self.descent.target)
        renews = self._renew_noise if cfg.noisy else None
        self.program = self.add_program(Single(self.descent, "policy_lr"), before=renews)

    def loss(self, batch: ReplayBatch, c: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        q, loss, error = q_losses(self.net, self.target, batch, self.config.double)
        total = (batch.weight * loss).mean()
        return total, {"opt/loss/td": total, "opt/q/mean": q.mean(), "errors": error}

    def sequence_loss(
        self, batch: SequenceBatch, c: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        cfg = self.config
        q, errors = sequence_errors(
            self.net, self.target, batch, cfg.burn_in, cfg.double, cfg.value_rescaling
        )
        total, priority = sequence_loss(errors, batch, cfg.loss == "huber")
        mean = q.sum() / batch.valid.sum().clamp(min=1.0)
        return total, {"opt/loss/td": total, "opt/q/mean": mean, "errors": priority}

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        super().before_rollout(env_steps, total_steps)
        self.policy.epsilon = self.config.epsilon.at(env_steps, total_steps)
        self.policy.temperature = self.config.temperature.at(env_steps, total_steps)

    def forward_all(self, batch: Any) -> Tensor | None:
        if self.config.recurrent is None:
            return self.net.head.value(of_action(self.net(batch.obs), batch.actions))
        self.net.sequence(batch.obs, batch.carry["core"], batch.is_first)
        return None

    def next_values(self, batch: ReplayBatch) -> Tensor:
        values = self.net.head.value(self.net(batch.next_obs))
        return mask_tensor(values, batch.next_mask).amax(1)

    def _renew_noise(self) -> None:
        self.net.q.resample(self.rng)
        self.target.resample(self.rng)
