"""SARSA: temporal differences with the action really taken next (Rummery and Niranjan 1994).

It learns what its own exploring policy is worth, not the best one. One gradient step a minibatch,
one pass over each rollout, no replay and no target net; `td_lambda` above 0 makes it SARSA(lambda).
Where this departs from common code:
- Where no next action was taken (the final observation of a truncated episode, the rollout's last
  row) one is drawn from the exploring policy there. Shifting the actions by a row, as is often
  done, would take the next episode's first action, or action 0.
- Epsilon is drawn by each env for itself; forbidden actions are neither taken nor drawn.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from pydantic import Field
from torch import Tensor

from gymnasium_solver.algos import ops
from gymnasium_solver.algos.learner import Learner
from gymnasium_solver.config.schedule import PositiveSchedule, Schedule, scheduled
from gymnasium_solver.config.schema import BatchSize, Config, Count, Float
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.nets.q_policy import QPolicy
from gymnasium_solver.nets.recorded import LossGradient


class SarsaConfig(Config):
    n_steps: Count = 32
    """Rows each env contributes to a rollout. More: longer returns for td_lambda, rarer updates."""
    batch_size: BatchSize = 1.0  # type: ignore[assignment]
    """Samples in a gradient step, or a fraction in (0, 1] of the rollout. 1.0: one step a rollout.
    Smaller: more steps from the same data, each noisier."""
    policy_lr: PositiveSchedule = Schedule.constant(1e-3)
    """Learning rate. Higher: faster, until it becomes unstable."""
    td_lambda: Annotated[Float, Field(ge=0, le=1)] = 0.0
    """Trade-off of the targets: 0 is the one-step rule (biased), 1 is all return (noisy)."""
    exploration: Literal["epsilon_greedy", "boltzmann", "greedy"] = "epsilon_greedy"
    """How training acts, which is also what is valued."""
    epsilon: Annotated[Schedule, scheduled(ge=0, le=1)] = Schedule.parse(
        {"start": 1.0, "end": 0.05, "to": 0.5}
    )
    """Share of random actions of epsilon_greedy. Higher: explores more, values worse play."""
    temperature: PositiveSchedule = Schedule.constant(1.0)
    """Of boltzmann, in units of the values. Higher: more random."""
    max_grad_norm: Annotated[Float, Field(gt=0)] | None = 10.0
    """Longest gradient allowed; longer ones are shortened. null: no limit."""
    activation: Literal[
        "tanh", "relu", "leaky_relu", "elu", "selu", "gelu", "silu", "swish", "identity"
    ] = "relu"
    """Non-linearity between layers."""
    layer_norm: bool = False
    """Normalise what each hidden layer computes. On: steadier, a little slower."""


class Batch(NamedTuple):
    x: Tensor  # encoded observations [B, width]
    actions: Tensor  # [B]
    target: Tensor  # [B]

    def take(self, index: Tensor) -> "Batch":
        return Batch(*(column[index] for column in self))


def sarsa_loss(net: QNetwork, batch: Batch) -> tuple[Tensor, Tensor]:
    """Mean square error of Q(s, a), and the mean of Q(s, a)."""
    q = net(batch.x).gather(1, batch.actions.unsqueeze(1)).squeeze(1)
    return (q - batch.target).square().mean(), q.mean()


class Sarsa(Learner):
    Config = SarsaConfig
    net: QNetwork
    policy: QPolicy

    def __init__(
        self,
        config: SarsaConfig,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        seed: int,
        device: str = "cpu",
    ):
        if not isinstance(action_space, spaces.Discrete):
            raise ConfigError(
                f"algo_id: sarsa needs discrete actions, but {config.env_id} has {action_space}; "
                "use ppo or sac."
            )
        super().__init__(config, observation_space, action_space, seed, device)
        self.config: SarsaConfig = config
        self.net = QNetwork(
            observation_space,
            action_space,
            hidden_dims=config.hidden_dims,
            activation=config.activation,
            layer_norm=config.layer_norm,
            normalize_obs=config.normalize_obs,
            clip_obs=config.clip_obs,
            generator=self.generator,
        ).to(self.device)
        self.policy = QPolicy(
            self.net, observation_space, action_space, self.act_rng, config.exploration
        )
        self.policy.epsilon = config.epsilon.values[-1]  # a loaded agent's, until it trains on
        self.policy.temperature = config.temperature.values[-1]
        self.optimizer = self.add_optimizer("q", self.net.q)
        self.gradient = LossGradient(self._loss, self.optimizer.params, replay=self.may_replay)

    def _loss(
        self, columns: Sequence[Tensor], coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        loss, q_mean = sarsa_loss(self.net, Batch(*columns))
        return loss, [loss, q_mean]

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        self.policy.epsilon = self.config.epsilon.at(env_steps, total_steps)
        self.policy.temperature = self.config.temperature.at(env_steps, total_steps)

    def update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        """Learn from one rollout; the metrics of the update, by name."""
        with self.observing(rollout):
            return self._update(rollout, env_steps, total_steps)

    def _update(self, rollout: Rollout, env_steps: int, total_steps: int) -> dict[str, float]:
        hp = self.scheduled_values(env_steps, total_steps)
        batch = self._prepare(rollout)
        terms = []
        for index in ops.minibatches(len(batch.x), self.config.batch_size, self.rng):
            part = batch if index is None else batch.take(self.to_device(index))
            grad, loss, q_mean = self.gradient(part, [])
            norm = self.optimizer.step(grad, hp["policy_lr"])
            terms.append(torch.stack([loss, q_mean, norm]))
        loss, q_mean, norm = torch.stack(terms).mean(0).tolist()
        return {
            "opt/loss/td": loss,
            "opt/q/mean": q_mean,
            "opt/grads/norm/all": norm,
            **{f"hp/{name}": value for name, value in hp.items()},
        }

    def _prepare(self, rollout: Rollout) -> Batch:
        """The rollout's valid rows, with what their Q(s, a) should be."""
        cfg, valid = self.config, rollout.valid
        reward = self.normalized_reward(rollout)
        obs = rollout.obs.reshape(-1, *rollout.obs.shape[2:])
        with torch.no_grad():
            x = self.net.encoded(obs, self.device)
            q = self.net(x).cpu().numpy().reshape(*rollout.obs.shape[:2], -1)
        next_actions = self._next_actions(rollout)[..., None]
        target = ops.lambda_returns(
            reward, np.take_along_axis(q[1:], next_actions, axis=2)[..., 0],
            rollout.terminated, rollout.truncated, valid, cfg.gamma, cfg.td_lambda,
        )  # fmt: skip
        return Batch(
            x=x[self.to_device(np.flatnonzero(valid))],
            actions=self.to_device(rollout.actions[valid]),
            target=self.to_device(target[valid]),
        )

    def _next_actions(self, rollout: Rollout) -> np.ndarray:
        """The action after each row [T, N]: the one that was taken, or a draw where none was."""
        next_actions = np.zeros_like(rollout.actions)
        next_actions[:-1] = rollout.actions[1:]
        was_taken = ~rollout.done
        was_taken[:-1] &= rollout.valid[1:]
        was_taken[-1] = False
        draws = rollout.valid & ~was_taken & ~rollout.terminated
        if draws.any():
            mask = None if rollout.mask is None else rollout.mask[1:][draws]
            # Not from the stream that acts: learning would change what is played.
            acting_rng, self.policy.rng = self.policy.rng, self.rng
            try:
                next_actions[draws] = self.policy.sample(rollout.obs[1:][draws], mask)
            finally:
                self.policy.rng = acting_rng
        return next_actions
