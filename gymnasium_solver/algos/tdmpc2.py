"""TD-MPC2: planning in the latent space of a learnt model (Hansen, Su and Wang 2024).

Observations are encoded into a latent state; a model of it predicts the next state, the reward and
the end of the episode, critics predict the return, and a policy proposes actions. There is no
decoder. The agent acts by planning a few steps ahead in the model (policies/planner.py). An update
takes subsequences of the replay: it trains model and critics on a latent rollout, then the policy
on the latent states of that rollout (tdmpc2_losses.py), and moves the target critics.

Differences from the authors' code (nicklashansen/tdmpc2), for single tasks:
- A step can be learnt from as soon as it is stored, not after its episode. A subsequence that
  reaches the end of its episode is cut off there; theirs draws no such subsequence, so that a
  termination is always its last step.
- Several environments can be stepped at once, each with a plan of its own.
- Images pass this library's convolutions and a layer to the latent state. They are shifted at
  random in learning only, theirs also in acting.
- `gamma` is given by the config; theirs follows from the length of episodes (docs/tdmpc2.md).
"""

from collections.abc import Iterator, Mapping
from typing import cast

import torch
from torch import Tensor

from gymnasium_solver.algos.configs.tdmpc2 import TDMPC2Config
from gymnasium_solver.algos.learner import Part
from gymnasium_solver.algos.replay_learner import ReplayLearner, SequenceLengths
from gymnasium_solver.algos.tdmpc2_losses import (
    ModelBatch,
    PolicyBatch,
    model_loss,
    next_scale,
    policy_loss,
)
from gymnasium_solver.config.schedule import at_start
from gymnasium_solver.data.memory import Sample
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.data.sequences import SequenceBatch, sequence_batch
from gymnasium_solver.errors import ConfigError
from gymnasium_solver.fast.program import Hp, Learnt
from gymnasium_solver.nets.heads import SymlogCategoricalHead
from gymnasium_solver.nets.world_model import CriticEnsemble, WorldModel
from gymnasium_solver.policies.planner import PlanningPolicy, Search
from gymnasium_solver.spaces.action_dists import require_bounded_box
from gymnasium_solver.tree import map_tree

POLICY_ADAM_EPS = 1e-5
WORTH_STOPPING = 8  # updates that are left: a few more are made in less than a second


class TDMPC2(ReplayLearner):
    Config = TDMPC2Config
    config: TDMPC2Config
    net: WorldModel
    policy: PlanningPolicy

    def build(self) -> None:
        cfg, size = self.config, self.config.size
        require_bounded_box(self.action_space, cfg.algo_id, cfg.env_id, "Box actions")
        width = self.actions.shape[0]
        self.net = WorldModel(
            self.observation_space,
            self.network,
            width,
            enc_dims=[size.enc_dim] * max(size.enc_layers - 1, 1),
            latent_dim=size.latent_dim,
            mlp_dim=size.mlp_dim,
            n_critics=size.n_critics,
            simnorm_dim=cfg.simnorm_dim,
            head=SymlogCategoricalHead(cfg.n_atoms, cfg.v_min, cfg.v_max),
            episodic=cfg.episodic,
            generator=self.generator,
        ).to(self.device)
        search = Search(
            cfg.plan_horizon, cfg.iterations(width), cfg.n_samples, cfg.n_policy_samples,
            cfg.n_elites, cfg.plan_std_min, cfg.plan_std_max, cfg.plan_temperature,
        )  # fmt: skip
        how = self.execution
        self.policy = PlanningPolicy(
            self.net, self.observation_space, self.actions, self.act_rng, search,
            compile=how.compiles and how.records_acting, fuse=how.fuses,
        )  # fmt: skip
        self.policy.gamma = at_start(cfg.gamma)
        self.forwards["plan"] = self.policy.imagination
        parts = {
            "representation": Part(
                self.net.representation, settings={"lr_scale": cfg.enc_lr_scale}
            ),
            "dynamics": Part(self.net.dynamics),
            "critic": Part(self.net.critic, tau=cfg.tau),
        }
        self.model = self.add_descent("model", self.model_loss, parts)
        self.target = cast(CriticEnsemble, self.model.target)
        self.prior = self.add_descent(
            "policy", self.policy_loss, self.net.prior, eps=POLICY_ADAM_EPS
        )
        self.sequences = SequenceLengths(0, cfg.plan_horizon)
        self.program = self.add_program(self.step)

    def model_loss(
        self, batch: ModelBatch, c: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return model_loss(self.net, self.target, batch, c["gamma"], self.config)

    def policy_loss(
        self, batch: PolicyBatch, c: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return policy_loss(self.net, batch, c, self.config.step_weight)

    # -- when ---------------------------------------------------------------------------------

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        super().before_rollout(env_steps, total_steps)
        self.policy.gamma = float(self.config.gamma)

    def remember(self, rollout: Rollout) -> int:
        """The first updates are followed by as many as there were random steps."""
        if not self.config.episodic and (rollout.terminated & rollout.valid).any():
            raise ConfigError(
                f"episodic: false, but an episode of {self.config.env_id} terminated: set "
                "episodic: true, so that terminations are learnt"
            )
        is_first = self.n_updates == 0
        n_updates = super().remember(rollout)
        if is_first and n_updates:
            n_updates += self.config.first_updates
            self.n_updates = n_updates
        return n_updates

    # -- batches ------------------------------------------------------------------------------

    def samples(self, n_updates: int, hp: dict[str, float]) -> Iterator[Sample]:
        """A sample per update. The burst after the random steps takes minutes on a CPU: it ends
        early if the run is asked to stop."""
        for left in range(n_updates, 0, -1):
            if left >= WORTH_STOPPING and self.is_stopping():
                self.owed_updates = left
                return
            assert self.memory is not None
            yield self.memory.sequences(self.config.batch_size, self.config.plan_horizon)

    def columns(self, sample: Sample) -> SequenceBatch:
        """Discounts are 1, or 0 for a step that terminated: gamma is a number of the loss."""
        return sequence_batch(sample.rows, sample.weight, 0, 1, 1.0, *self.reward_shaping())

    # -- the update ---------------------------------------------------------------------------

    def step(self, batch: SequenceBatch, hp: Hp, turn: None) -> Learnt:
        cfg, lr, n_steps = self.config, hp["policy_lr"], self.config.plan_horizon
        n, width = len(batch.reward), self.net.n_actions
        shifts = cfg.image_shift > 0 and self.net.has_images
        given = ModelBatch(
            batch.obs, batch.actions, batch.reward, batch.discount, batch.valid,
            noise=self.normal_noise(n, n_steps, width),
            pick=self._two_critics(n),
            keep=self._dropout(n, n_steps),
            shift=self.uniform_noise(n, n_steps + 1, 2) if shifts else None,
        )  # fmt: skip
        steps = self.model(given, {"gamma": cfg.gamma}, lr)
        latent = PolicyBatch(
            steps.by_sample["z"],
            torch.cat([torch.ones_like(batch.valid[:, :1]), batch.valid], dim=1),
            noise=self.normal_noise(n, n_steps + 1, width),
            pick=self._two_critics(n),
            keep=self._dropout(n, n_steps + 1),
        )
        scale = self.net.q_scale.copy_(next_scale(self.net, latent, cfg.tau))
        taken = self.prior(latent, {"scale": scale, "entropy": hp["ent_coef"]}, lr)
        return Learnt({**steps.last(), **taken.last(), "opt/q/scale": scale.clone()})

    def _two_critics(self, n: int) -> Tensor:
        """Ones for two random critics, the same ones in all n rows."""
        n_critics = self.net.n_critics
        best = self.uniform_noise(n_critics).topk(2).indices
        pick = torch.zeros(n_critics, device=self.device).scatter(0, best, 1.0)
        return pick.expand(n, -1).contiguous()

    def _dropout(self, n: int, n_steps: int) -> Tensor | None:
        """Factors of the critics' first units: 0 for those that are dropped."""
        share = self.config.dropout
        if not share:
            return None
        drawn = self.uniform_noise(n, n_steps, self.net.n_critics, self.net.mlp_dim)
        return (drawn >= share).float() / (1.0 - share)

    def forward_all(self, batch: SequenceBatch) -> None:
        self.net(map_tree(lambda part: part[:, 0], batch.obs), batch.actions[:, 0])
