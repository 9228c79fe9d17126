"""Intrinsic reward: what is added to the rewards of a rollout (config/nested.py).

The reward of a step is for the state it leads to. It joins the environment's reward before
advantages or targets are computed, so one critic learns both; the RND paper has a critic for each,
and lets the intrinsic return run on beyond the end of an episode. It is scaled by statistics of its
own, never by those of the environment's rewards. With a replay buffer it is stored in a column of
its own and does not fade there. Scores and episode returns are never touched.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.algos.extensions.extension import Extension
from gymnasium_solver.config.nested import Intrinsic
from gymnasium_solver.data.novelty import (
    EpisodeMemory,
    EpisodeVisits,
    StateIds,
    VisitCounts,
    columns,
)
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.fast.cuda_graph import on_device
from gymnasium_solver.fast.descent import Descent
from gymnasium_solver.fast.optimizer import FlatOptimizer, Group
from gymnasium_solver.nets.blocks import HIDDEN_GAIN, Blocks, linear
from gymnasium_solver.nets.encoder import ObsEncoder, in_chunks
from gymnasium_solver.nets.features import Features
from gymnasium_solver.nets.network import Network
from gymnasium_solver.nets.normalizer import RewardNormalizer
from gymnasium_solver.spaces.observations import Space, map_obs
from gymnasium_solver.tree import map_tree

if TYPE_CHECKING:
    from gymnasium_solver.algos.learner import Learner

CLIP_OBS = 5.0  # normalised observations of RND, as in the paper
MOMENTS = "optimizer."  # how the names of saved moments begin


class RandomNetwork(nn.Module):
    """Observations -> embeddings [B, embed_dim]."""

    def __init__(
        self, encoder: ObsEncoder, network: Network, cfg: Intrinsic, generator: torch.Generator
    ):
        super().__init__()
        self.features = Features(encoder, network, HIDDEN_GAIN, generator)
        dims = cfg.hidden_dims
        blocks = Blocks("relu", generator, HIDDEN_GAIN)
        self.torso = nn.Sequential(*blocks.hidden(self.features.width, dims))
        width = dims[-1] if dims else self.features.width
        self.head = linear(width, cfg.embed_dim, 1.0, generator)

    def forward(self, x: Any) -> Tensor:
        out: Tensor = self.head(self.torso(self.features(x)))
        return out


class Rnd:
    """Random network distillation: the error of a network that learns to predict a random one."""

    def __init__(
        self,
        cfg: Intrinsic,
        space: Space,
        network: Network,
        generator: torch.Generator,
        device: torch.device,
        record: bool,
    ):
        self.cfg, self.device = cfg, device
        plain = network._replace(torso=None, head=None, embedding_dim=None, input_dims={})
        self.encoder = ObsEncoder(space, images=network.cnns, normalize="rolling", clip=CLIP_OBS)
        self.encoder.to(device)
        self.target = RandomNetwork(self.encoder, plain, cfg, generator).to(device)
        self.target.requires_grad_(False)
        self.predictor = RandomNetwork(self.encoder, plain, cfg, generator).to(device)
        self.parts = nn.ModuleDict(
            {"encoder": self.encoder, "target": self.target, "predictor": self.predictor}
        )
        self.has_images = bool(network.cnns)
        self.optimizer = FlatOptimizer([Group("predictor", self.predictor, eps=1e-8)])
        self.descent = Descent(
            "intrinsic",
            self._loss,
            self.optimizer,
            record=record and not self.has_images,
            constants=[*self.encoder.buffers(), *self.target.parameters()],
        )

    def _loss(self, obs: Any, c: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        x = self.encoder(obs)
        loss = (self.predictor(x) - self.target(x).detach()).square().mean()
        return loss, {"loss": loss}

    @torch.no_grad()
    def _errors(self, obs: Any) -> Tensor:
        x = self.encoder(obs)
        return (self.predictor(x) - self.target(x)).square().mean(1)

    def novelty(self, obs: Any) -> np.ndarray:
        """Errors [n] of new observations [n, ...], with which the normaliser is updated."""
        self.encoder.observe(obs)
        return self.errors(obs)

    def errors(self, obs: Any) -> np.ndarray:
        """Errors [n] of observations [n, ...]."""
        rows = map_tree(lambda part: on_device(part, self.device), obs)
        errors: Tensor = in_chunks(self._errors, rows, self.has_images)
        return errors.cpu().numpy()

    def learn(self, obs: Any, n: int, n_rows: int, rng: np.random.Generator) -> float:
        """One pass over the n observations of a rollout of `n_rows`; the mean loss."""
        size = min(self.cfg.batch_size, n)
        parts = self.descent.minibatches(n, size, rng, n_rows)
        rows = map_tree(lambda part: on_device(part, self.device), obs)
        return float(self.descent(rows, {}, self.cfg.lr, parts).means()["loss"])

    def tensors(self) -> dict[str, Tensor]:
        moments = self.optimizer.state()
        return self.parts.state_dict() | {f"{MOMENTS}{k}": v for k, v in moments.items()}

    def load(self, tensors: dict[str, Any]) -> None:
        moments = {k: v for k, v in tensors.items() if k.startswith(MOMENTS)}
        own = {name: tensors[name] for name in self.parts.state_dict()}
        self.parts.load_state_dict({k: torch.as_tensor(v) for k, v in own.items()})
        self.optimizer.load_state({k.removeprefix(MOMENTS): v for k, v in moments.items()})


class IntrinsicReward(Extension):
    name = "intrinsic"
    bytes_per_transition = 4
    gives_bonus = True

    def __init__(self, learner: "Learner"):
        super().__init__(learner)
        cfg: Intrinsic = learner.config.intrinsic
        self.cfg, space = cfg, learner.observation_space
        n_envs = int(learner.config.n_envs)
        generator = torch.Generator().manual_seed(learner.extension_seed)
        # Fixed random numbers, drawn from the generator of the initial weights.
        fixed = np.random.default_rng(int(torch.randint(2**31, (1,), generator=generator)))
        self.states = StateIds(
            space, by=cfg.by, n_bins=cfg.n_bins, n_signs=cfg.n_signs,
            table_bits=cfg.table_bits, rng=fixed,
        )  # fmt: skip
        self.counts = VisitCounts(cfg.table_bits) if cfg.kind == "count" else None
        self.visits: EpisodeVisits | None = None
        if cfg.first_visit or cfg.kind == "episodic_count":
            self.visits = EpisodeVisits(n_envs, cfg.table_bits)
        self.rnd: Rnd | None = None
        self.memory: EpisodeMemory | None = None
        if cfg.kind == "rnd":
            record = learner.execution.records
            self.rnd = Rnd(cfg, space, learner.network, generator, learner.device, record)
        elif cfg.kind == "episodic":
            width = len(self.states.low)
            self.embed_dim = min(cfg.embed_dim, width)
            shape = (width, self.embed_dim)
            self.projection = (fixed.standard_normal(shape) / np.sqrt(width)).astype(np.float32)
            self.memory = EpisodeMemory(n_envs, cfg.capacity, self.embed_dim, cfg.neighbors)
        self.normalizer = RewardNormalizer(n_envs, cfg.gamma, None)
        self._coef = 0.0
        self._metrics: dict[str, float] = {}

    @property
    def normalizes(self) -> bool:
        setting = self.cfg.normalize
        return self.cfg.kind == "rnd" if setting == "auto" else setting

    def follow(self, env_steps: int, total_steps: int) -> None:
        self._coef = self.cfg.coef.at(env_steps, total_steps)

    def report(self, rollout: Rollout) -> dict[str, float]:
        return self._metrics

    def bonus(self, rollout: Rollout) -> np.ndarray:
        """Intrinsic rewards [T, N], times their coefficient; learns from the rollout."""
        cfg, valid = self.cfg, rollout.valid
        ids = self._ids(rollout)
        bonus, found = self._novelty(rollout, ids)
        if self.visits is not None:
            assert ids is not None
            start = ids[0] if rollout.is_restart else None
            visits = self.visits(start, ids[1:], rollout.is_first[1:])
            bonus = bonus * (visits == 1) if cfg.first_visit else bonus / np.sqrt(visits)
        bonus = np.where(valid, bonus, 0.0).astype(np.float32)
        raw = bonus
        if self.normalizes:
            if rollout.is_restart:
                self.normalizer.restart()
            bonus = self.normalizer(bonus, rollout.done, valid)
        if cfg.clip is not None:
            bonus = np.minimum(bonus, cfg.clip)
        self._metrics = {
            "roll/intrinsic/raw": float(raw[valid].mean()) if valid.any() else 0.0,
            "roll/intrinsic/mean": float(bonus[valid].mean()) if valid.any() else 0.0,
            "roll/intrinsic/max": float(bonus[valid].max()) if valid.any() else 0.0,
            "hp/intrinsic_coef": self._coef,
            **found,
        }
        return (self._coef * bonus).astype(np.float32)

    def _ids(self, rollout: Rollout) -> np.ndarray | None:
        """The states [T + 1, N] as entries of the tables, where they are counted."""
        if self.counts is None and self.visits is None:
            return None
        shape = (len(rollout.valid) + 1, rollout.valid.shape[1])
        return self.states(_flat(rollout.obs)).reshape(shape)

    def _novelty(
        self, rollout: Rollout, ids: np.ndarray | None
    ) -> tuple[np.ndarray, dict[str, float]]:
        """Novelty [T, N] of the states that the steps lead to, or its rise, and metrics."""
        valid = rollout.valid
        found: dict[str, float] = {}
        if self.memory is not None:
            x = self.states.unit(columns(_flat(rollout.obs))) @ self.projection
            x = x.reshape(len(valid) + 1, valid.shape[1], -1)
            start = x[0] if rollout.is_restart else None
            return self.memory(start, x[1:], rollout.is_first[1:]), {}
        if self.cfg.kind == "episodic_count":
            return np.ones(valid.shape, np.float32), {}
        rise = self.cfg.difference
        if self.counts is not None:
            assert ids is not None
            if rise is None:
                after = before = self.counts(ids[1:], valid)
            else:  # the first state of an episode is also one before a step, so it is counted
                counted = valid | rollout.is_first[1:]
                after, before = self.counts.after_and_before(ids[1:], ids[:-1], valid, counted)
            found["roll/intrinsic/states"] = float(self.counts.n_states)
        else:
            after, before, loss = self._errors(rollout)
            found["opt/intrinsic/loss"] = loss
        return after if rise is None else np.maximum(after - rise * before, 0.0), found

    def _errors(self, rollout: Rollout) -> tuple[np.ndarray, np.ndarray, float]:
        """Prediction errors [T, N] of the states that the steps lead to and of those before (0
        unless they are asked for); the predictor learns the former, with the loss returned."""
        assert self.rnd is not None
        valid = rollout.valid
        rows = np.flatnonzero(valid)
        errors = np.zeros((2, valid.size), np.float32)
        after, before = errors.reshape(2, *valid.shape)
        if len(rows) == 0:
            return after, before, 0.0
        flat = _flat(rollout.obs)
        chosen = map_obs(lambda part: part[rows + valid.shape[1]], flat)
        errors[0, rows] = self.rnd.novelty(chosen)
        if self.cfg.difference is not None:
            errors[1, rows] = self.rnd.errors(map_obs(lambda part: part[rows], flat))
        loss = self.rnd.learn(chosen, len(rows), valid.size, self.learner.rng)
        return after, before, loss

    # -- state ------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {} if self.rnd is None else self.rnd.tensors()
        tensors |= {name: torch.from_numpy(array) for name, array in self._arrays().items()}
        mode = None if self.rnd is None else self.rnd.descent.mode
        return tensors, {"normalizer": self.normalizer.state(), "gradient": mode}

    def load_state(self, tensors: dict[str, Any], extra: dict[str, Any]) -> None:
        for name, array in self._arrays().items():
            array[...] = np.asarray(tensors[name])
        self.normalizer.load_state(extra["normalizer"])
        if self.rnd is not None:
            self.rnd.load(tensors)
            self.rnd.descent.gradient.resume(extra["gradient"])

    def _arrays(self) -> dict[str, np.ndarray]:
        named: dict[str, np.ndarray] = {}
        if self.counts is not None:
            named["counts"] = self.counts.counts
        if self.visits is not None:
            named["first_visits"] = self.visits.visits
        if self.memory is not None:
            named |= {"memory": self.memory.states, "memory_size": self.memory.n_seen}
            named["memory_distance"] = self.memory.distance
        return named


def _flat(obs: Any) -> Any:
    """Rows and environments as one axis: [T, N, ...] -> [T * N, ...]."""
    return map_obs(lambda part: part.reshape(-1, *part.shape[2:]), obs)
