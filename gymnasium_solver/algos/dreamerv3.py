"""DreamerV3: an actor that learns inside a learnt world model (Hafner et al. 2023).

A recurrent model with discrete latents (nets/rssm.py) learns to reconstruct observations, and to
predict rewards and the end of episodes. The actor and the critic learn from what the model imagines
from replayed states. The agent acts from the model's state, which is the policy's carry
(policies/latent.py). An update has one loss (dreamerv3_losses.py) and one optimiser.

Differences from the authors' code (danijar/dreamerv3):
- A sequence starts with the state that the acting policy had there, stored with each step in half
  precision. The authors write the states of an update back into the replay, here they stay as they
  were acted with.
- All sequences are drawn uniformly; theirs also draws each new sequence once.
- The first `learning_starts` actions are uniform; theirs are of the untrained actor, nearly so.
- The layer that reads Box actions starts with random biases (nets/rssm.py).
- Evaluations draw latents, as theirs, and take the most likely action, unless sampled ones score
  more.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from torch import Tensor

from gymnasium_solver.algos.configs.dreamerv3 import DreamerV3Config
from gymnasium_solver.algos.dreamerv3_losses import DreamBatch, dreamer_loss
from gymnasium_solver.algos.learner import Part
from gymnasium_solver.algos.replay_learner import ReplayLearner, SequenceLengths
from gymnasium_solver.data.memory import Sample
from gymnasium_solver.data.replay import Sequences
from gymnasium_solver.fast.fused import fuse
from gymnasium_solver.fast.program import Hp, Learnt
from gymnasium_solver.nets.rssm import DreamerNet, Sizes
from gymnasium_solver.policies.latent import LatentPolicy
from gymnasium_solver.spaces.action_dists import require_discrete_or_box
from gymnasium_solver.spaces.observations import map_obs
from gymnasium_solver.tree import map_tree


class DreamerV3(ReplayLearner):
    Config = DreamerV3Config
    config: DreamerV3Config
    net: DreamerNet
    policy: LatentPolicy

    def build(self) -> None:
        cfg, size = self.config, self.config.size
        self.actions = require_discrete_or_box(self.action_space, cfg.algo_id, cfg.env_id)
        is_choice = not self.actions.is_real
        n_actions = self.actions.n_outputs if is_choice else self.actions.shape[0]
        self.net = DreamerNet(
            self.observation_space,
            self.network,
            (n_actions, is_choice),
            self.actions.n_outputs,
            size=Sizes(
                size.deter_dim, size.core_dim, cfg.n_latents, size.n_classes, size.units,
                size.cnn_depth, cfg.n_blocks,
            ),
            unimix=cfg.unimix,
            n_bins=cfg.n_atoms,
            decodes=not cfg.decoder_free,
            generator=self.generator,
        ).to(self.device)  # fmt: skip
        self.policy = LatentPolicy(
            self.net, self.observation_space, self.actions, self.act_rng,
            record=self.execution.records_acting,
        )  # fmt: skip
        parts = {
            "model": Part(self.net.model),
            "actor": Part(self.net.actor),
            "critic": Part(self.net.critic, tau=cfg.tau),
        }
        # Thousands of operations: recording them for a CPU takes longer than it saves, and fusing
        # all of them many minutes. A step of the model and of the imagination is soon fused.
        is_recorded = self.device.type != "cpu"
        if self.execution.fuses and cfg.compile == "fused":
            self.net.rssm.rows.fuse = fuse
        self.descent = self.add_descent(
            "all", self.loss, parts, norm="model", record=is_recorded, fuse=False
        )
        self.slow = self.descent.target
        self.sequences = SequenceLengths(0, cfg.sequence_length)
        self.program = self.add_program(self.step)

    def loss(self, batch: DreamBatch, c: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return dreamer_loss(self.net, self.slow, self.actions, batch, c, self.config)

    # -- batches ------------------------------------------------------------------------------

    def samples(self, n_updates: int, hp: dict[str, float]) -> Iterator[Sample]:
        """Sequences with one row before them, which has a stored state and is not learnt from."""
        for _ in range(n_updates):
            assert self.memory is not None
            cfg = self.config
            yield self.memory.sequences(cfg.batch_size, cfg.sequence_length, 1.0, True, 1)

    def columns(self, sample: Sample) -> DreamBatch:  # type: ignore[override]
        return dream_batch(sample.rows, *self.reward_shaping())

    # -- the update ---------------------------------------------------------------------------

    def step(self, batch: DreamBatch, hp: Hp, turn: None) -> Learnt:
        n_rows, n = batch.reward.shape
        n_latents, n_dreamt = self.net.size.n_latents, self.config.imagination_steps
        given = batch._replace(
            latent_noise=self.uniform_noise(n_rows, n, n_latents),
            dream_noise=self.uniform_noise(n_dreamt, n_rows * n, n_latents),
            action_noise=self._action_noise(n_dreamt, n_rows * n),
        )
        numbers = {"gamma": self.config.gamma, "ent_coef": hp["ent_coef"]}
        steps = self.descent(given, numbers, hp["policy_lr"])
        self.net.return_range.copy_(steps.by_sample["bounds"])
        return Learnt(steps.last())

    def _action_noise(self, *lead: int) -> Tensor:
        """Normal for real numbers, exponential for choices."""
        if self.actions.is_real:
            return self.normal_noise(*lead, self.net.n_actions)
        return -(-self.uniform_noise(*lead, self.net.n_actions)).log1p()

    def forward_all(self, batch: DreamBatch) -> None:
        """With a memory and an action before each observation: the layers that read them would
        else seem dead."""
        core = batch.core.repeat(len(batch.reward), 1)
        self.net(map_tree(lambda part: part.flatten(0, 1), batch.obs), core)


def dream_batch(rows: Sequences, scale: float = 1.0, clip: float | None = None) -> DreamBatch:
    """Sequences of steps as rows of observations with what came before them. The first row only
    gives the action before the second. A row after which nothing follows (a reset row, a break) has
    the last observation of its episode."""
    reward = rows.reward * np.float32(scale)
    if clip is not None:
        reward = np.clip(reward, -clip, clip)
    if rows.bonus is not None:
        reward = reward + rows.bonus
    came, last = rows.valid, np.zeros(rows.valid.shape, np.float32)
    last[:-1] = ~came[1:]  # what follows the last row does not matter
    return DreamBatch(
        obs=map_obs(lambda part: part[1:], rows.obs),
        actions=rows.actions,
        reward=(reward * came).astype(np.float32),
        terminal=(rows.terminated & came).astype(np.float32),
        last=last,
        is_first=rows.is_first[1:] | ~came,
        core=rows.carry["core"].astype(np.float32),
    )
