"""PPO's update from a rollout that is on the learner's device: on a GPU the host waits for nothing.

    update = DeviceUpdate(ppo)
    metrics = update(rollout, hp)           # tensors; hp: the scheduled values

The same network, loss and descent as from a rollout of arrays, and the same values, advantages and
minibatches. Values, GAE, all passes and the metrics are one CUDA graph (fast/cuda_graph.py), which
reads the numbers that change, such as the learning rate. Permutations are drawn on the GPU. On a
CPU the same lines run one after the other, with the descent in its fastest form.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gymnasium_solver import processes
from gymnasium_solver.algos import ops
from gymnasium_solver.algos.learner import hp_metrics
from gymnasium_solver.algos.policy_loss import MEASURED, Batch, evaluate_actions
from gymnasium_solver.algos.units import watch_units
from gymnasium_solver.data.device_rollout import DeviceRollout
from gymnasium_solver.fast.cuda_graph import Recurring
from gymnasium_solver.nets.normalizer import DeviceRewardNormalizer
from gymnasium_solver.tree import map_tree

if TYPE_CHECKING:
    from gymnasium_solver.algos.ppo import PPO

MEASURED_ROWS = 16_384  # of a rollout, for the metrics of an update
STREAM = 3  # of the learner's seed; the first three are those of algos/learner.py


class DeviceUpdate:
    def __init__(self, learner: "PPO"):
        self.learner = learner
        device, seed = learner.device, np.random.SeedSequence(learner.seed, spawn_key=(STREAM,))
        self.generator: torch.Generator | None = None  # on a CPU the learner's own stream
        if device.type == "cuda":
            self.generator = torch.Generator(device).manual_seed(int(seed.generate_state(1)[0]))
        generators = [] if self.generator is None else [self.generator]
        # Untried: whether NCCL's sums could be part of a graph.
        captures, optimizers = processes.count() == 1, [learner.descent.optimizer]
        self.recurring = Recurring(device, generators, optimizers, captures)
        self.names: tuple[str, ...] = ()
        self._measured_rows: Batch | None = None  # those of the newest update
        self.is_used = False
        self.reward_scale: DeviceRewardNormalizer | None = None
        if learner.config.scales_reward:
            self.reward_scale = DeviceRewardNormalizer(learner.reward_normalizer, device)

    @property
    def needs_host(self) -> str | None:
        """What about the learner needs rollouts as arrays; None: nothing."""
        learner, cfg = self.learner, self.learner.config
        reasons = {
            "recurrent": cfg.recurrent is not None,
            "sde": cfg.sde,
            "target_kl": cfg.target_kl is not None,
            "recompute_advantages": cfg.recompute_advantages,
            "normalize_advantages: percentile": cfg.normalize_advantages == "percentile",
            "normalize_values": cfg.normalize_values,
            "its extensions": bool(learner.extensions),
            "the action space": not learner.policy.chooses_tensors,
            "the observation space": not learner.encoder.is_vector or learner.encoder.is_dict,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def __call__(self, rollout: DeviceRollout, hp: dict[str, float]) -> dict[Any, Any]:
        """Learn from a rollout. The metrics are one tensor, under the tuple of their names."""
        learner, cfg = self.learner, self.learner.config
        encoder, self.is_used = learner.encoder, True
        is_first = encoder.learns_moments and not learner.n_updates and not encoder.has_moments
        if is_first:
            encoder.observe_on_device(rollout.obs.flatten(0, 1))
        if rollout.is_restart and self.reward_scale is not None:
            self.reward_scale.running_return.zero_()
        settings = (cfg.gamma, cfg.gae_lambda, cfg.n_epochs, cfg.batch_size)
        key = (rollout.obs.data_ptr(), rollout.n_rows, settings, cfg.normalize_advantages)

        def learn(numbers: Sequence[Any]) -> list[Tensor]:
            return [self._learn(rollout, dict(zip(hp, numbers, strict=True)))]

        (found,) = self.recurring(key, learn, list(hp.values()))
        if not is_first:
            encoder.observe_on_device(rollout.obs.flatten(0, 1))
        learner.n_updates += 1
        more = self._details(hp) if learner.take_details() else {}
        return {self.names: found, "opt/ppo/kl_stop_triggered": 0.0, **hp_metrics(hp), **more}

    def _learn(self, rollout: DeviceRollout, hp: Mapping[str, Any]) -> Tensor:
        learner = self.learner
        c = {name: hp[name] for name in learner.numbers}
        batch, norms = self._batch(rollout), list[Tensor]()
        for _ in range(learner.config.n_epochs):
            shuffled, parts = self._minibatches(batch)
            norms.append(learner.descent(shuffled, c, hp["policy_lr"], parts).norms)
        return self._measured(batch, c, hp, torch.cat(norms).mean())

    @torch.no_grad()
    def _batch(self, rollout: DeviceRollout) -> Batch:
        learner, cfg = self.learner, self.learner.config
        obs = rollout.obs.flatten(0, 1)
        value, next_value = (
            learner.net.value(part).view(rollout.reward.shape)
            for part in (obs, rollout.final_obs.flatten(0, 1))
        )
        reward, ends = rollout.reward, (rollout.terminated, rollout.truncated)
        if self.reward_scale is not None:
            reward = self.reward_scale(reward, ends[0] | ends[1])
        advantage = ops.gae_of_tensors(
            reward, value, next_value, *ends, cfg.gamma, cfg.gae_lambda
        ).flatten()
        value = value.flatten()
        returns = advantage + value
        if cfg.normalize_advantages == "rollout":
            advantage = _standardized(advantage)
        elif cfg.normalize_advantages == "symlog":
            advantage = advantage.sign() * advantage.abs().log1p()
        actions, log_prob = rollout.actions.flatten(0, 1), rollout.log_prob.flatten()
        return Batch(obs, actions, log_prob, advantage, returns, value)

    @torch.no_grad()
    def _minibatches(self, batch: Batch) -> tuple[Batch, list[slice]]:
        """The shuffled batch, and the minibatches of a pass as parts of it of nearly equal size."""
        cfg, n = self.learner.config, len(batch.returns)
        n_parts = -(-n // cfg.batch_size)
        by_part = cfg.normalize_advantages == "batch"
        if n_parts > 1:
            order = self._permutation(n)
            batch = map_tree(lambda column: column[order], batch)
        ends = [n * i // n_parts for i in range(n_parts + 1)]
        parts = [slice(*bounds) for bounds in pairwise(ends)]
        if by_part:
            scaled = torch.cat([_standardized(batch.advantage[part]) for part in parts])
            batch = batch._replace(advantage=scaled)
        return batch, parts

    def _permutation(self, n: int) -> Tensor:
        if self.generator is None:
            return torch.from_numpy(self.learner.rng.permutation(n))
        keys = torch.rand(n, generator=self.generator, device=self.generator.device)
        return keys.argsort()

    @torch.no_grad()
    def _measured(
        self, batch: Batch, c: Mapping[str, Any], hp: Mapping[str, Any], norm: Tensor
    ) -> Tensor:
        """The metrics of the policy after the update, on evenly spaced rows."""
        learner, device = self.learner, self.learner.device
        stride = -(-len(batch.returns) // MEASURED_ROWS)
        some: Batch = map_tree(lambda column: column[::stride], batch)
        self._measured_rows = some
        numbers = [x if isinstance(x, Tensor) else torch.tensor(x) for x in c.values()]
        found = dict(zip(MEASURED, learner.measured(some, numbers), strict=False))
        variance = batch.returns.var(correction=0)
        left = (batch.returns - batch.value).var(correction=0)
        found |= {
            "opt/grads/norm/all": norm,
            "opt/loss/entropy": -found["opt/policy/entropy"],
            "opt/loss/entropy_scaled": 0.0 - hp["ent_coef"] * found["opt/policy/entropy"],
            "opt/loss/value_scaled": hp["vf_coef"] * found["opt/loss/value"],
            "opt/value/explained_var": torch.where(variance == 0, torch.nan, 1 - left / variance),
        }
        self.names = tuple(found)
        return processes.mean_(torch.stack([v.float().to(device) for v in found.values()]))

    def _details(self, hp: Mapping[str, float]) -> dict[str, float]:
        """Gradient norms by part of the network and hidden units, on the same rows; this waits for
        the device."""
        learner, rows = self.learner, self._measured_rows
        assert rows is not None
        with torch.no_grad(), watch_units(learner.net) as units:
            evaluate_actions(learner.net, learner.actions, rows)
        numbers = {name: hp[name] for name in learner.numbers}
        return {**learner.descent.gradient_norms(rows, numbers), **units.metrics(rows.obs)}

    # -- state ------------------------------------------------------------------------------

    def pull(self) -> None:
        """Bring what is on the device to where the learner saves it from."""
        if self.reward_scale is not None and self.is_used:
            self.reward_scale.pull()

    def state(self) -> dict[str, Any]:
        if self.generator is None or not self.is_used:
            return {}
        return {"device_generator": self.generator.get_state().tolist()}

    def push(self) -> None:
        """The reverse of `pull`."""
        if self.reward_scale is not None:
            self.reward_scale.push()

    def load_state(self, extra: Mapping[str, Any]) -> None:
        self.push()
        saved = extra.get("device_generator")  # none: of a run on the CPU
        if self.generator is not None and saved is not None:
            self.generator.set_state(torch.tensor(saved, dtype=torch.uint8))


def _standardized(x: Tensor) -> Tensor:
    _, mean, var = processes.moments(x)
    return (x - mean) / (var.sqrt() + 1e-8)
