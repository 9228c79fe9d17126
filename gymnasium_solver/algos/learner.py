"""What learners share: random streams, schedules, rewards to learn from, and what is saved.

Not a base algorithm: no update, no loss and no hook is in here. A learner sets `net`, `policy` and
`optimizers`; this class turns them into state and back.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from gymnasium_solver.config.schedule import Schedule
from gymnasium_solver.config.schema import ActorCriticFields, LearnerConfig
from gymnasium_solver.data.memory_check import available_memory_bytes, check_fits
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.fast.optimizer import FlatOptimizer
from gymnasium_solver.nets.actor_critic import ActorCritic
from gymnasium_solver.nets.encoder import ObsEncoder, upload
from gymnasium_solver.nets.network import network_for
from gymnasium_solver.nets.normalizer import RewardNormalizer
from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.policies.policy import ActorPolicy, Policy
from gymnasium_solver.policies.q_policy import Exploration, QPolicy
from gymnasium_solver.spaces.spaces import space_to_json

Metrics = Mapping[str, float | Tensor]
Snapshot = list[tuple[Tensor, dict[str, Tensor]]]
LARGE_ROLLOUT_BYTES = 16 * 2**20  # worth a line before training, as images always are


class Learner:
    net: ObsEncoder
    policy: Policy
    has_replay = False

    def __init__(
        self,
        config: LearnerConfig,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        seed: int,
        device: str = "cpu",
    ):
        self.config = config
        self.observation_space, self.action_space = observation_space, action_space
        self.device = torch.device(device)
        init_seed, act_seed, learn_seed = np.random.SeedSequence(seed).spawn(3)
        self.generator = torch.Generator().manual_seed(int(init_seed.generate_state(1)[0]))
        self.act_rng = np.random.default_rng(act_seed)
        self.rng = np.random.default_rng(learn_seed)
        self.optimizers: dict[str, FlatOptimizer] = {}
        n_envs = int(config.n_envs)
        self.reward_normalizer = RewardNormalizer(n_envs, config.gamma, config.clip_reward)
        self.schedules = {
            name: value
            for name in type(config).model_fields
            if isinstance(value := getattr(config, name), Schedule)
        }
        self.network = network_for(config, observation_space)
        self.notes: list[str] = []  # said before the first step

    def ignore(self, *names: str) -> None:
        """Leave scheduled fields out that this learner does not read, and so does not report."""
        for name in names:
            self.schedules.pop(name, None)

    @property
    def saves_replay(self) -> bool:
        """Is there a replay, to be kept in checkpoints?"""
        return False

    # -- parts ------------------------------------------------------------------------------

    def build_actor_critic(
        self, critic: bool = True
    ) -> tuple[ActorCritic, ActorPolicy, FlatOptimizer]:
        cfg, network = self.config, self.network
        assert isinstance(cfg, ActorCriticFields)
        is_shared = network.cnn is not None if cfg.share_trunk == "auto" else cfg.share_trunk
        net = ActorCritic(
            self.observation_space,
            self.action_space,
            **network._asdict(),
            share_trunk=is_shared,
            log_std_init=cfg.log_std_init,
            normalize_obs=cfg.normalize_obs,
            clip_obs=cfg.clip_obs,
            critic=critic,
            generator=self.generator,
        ).to(self.device)
        policy = ActorPolicy(net, self.observation_space, self.action_space, self.act_rng)
        return net, policy, self.add_optimizer("policy", net)

    def build_q_network(
        self, exploration: Exploration, **options: Any
    ) -> tuple[QNetwork, QPolicy, FlatOptimizer]:
        cfg, actions = self.config, self.action_space
        if not isinstance(actions, spaces.Discrete):
            raise ConfigError(
                f"algo_id: {cfg.algo_id} needs discrete actions, but {cfg.env_id} has {actions}; "
                "use sac, td3 or ppo."
            )
        net = QNetwork(
            self.observation_space,
            actions,
            **self.network._asdict(),
            normalize_obs=cfg.normalize_obs,
            clip_obs=cfg.clip_obs,
            generator=self.generator,
            **options,
        ).to(self.device)
        policy = QPolicy(net, self.observation_space, actions, self.act_rng, exploration)
        # Until a checkpoint tells, or training sets them.
        last = {name: schedule.values[-1] for name, schedule in self.schedules.items()}
        policy.epsilon, policy.temperature = last.get("epsilon", 0.0), last.get("temperature", 1.0)
        read_by = {"epsilon": "epsilon_greedy", "temperature": "boltzmann"}
        self.ignore(*(name for name, kind in read_by.items() if kind != exploration))
        return net, policy, self.add_optimizer("q", net.q)

    def add_optimizer(self, name: str, module: nn.Module, **options: Any) -> FlatOptimizer:
        """The config's optimiser on a module's parameters, saved with the learner."""
        cfg = self.config
        settings: dict[str, Any] = {
            "eps": cfg.adam_eps,
            "weight_decay": cfg.weight_decay,
            "max_grad_norm": cfg.max_grad_norm,
        }
        self.optimizers[name] = FlatOptimizer(module, cfg.optimizer, **{**settings, **options})
        return self.optimizers[name]

    # -- acting -----------------------------------------------------------------------------

    def act(self, obs: Any, greedy: bool = True, mask: Any = None) -> Any:
        """The environment's action for one observation or a batch: the best, or a draw."""
        return self.policy.act(obs, greedy, mask)

    def start_training(self) -> None:
        """Refuse what cannot be trained here, and note what should be said; acting needs none."""
        rows, n_envs = self.config.rollout_rows, self.config.n_envs
        estimate = Rollout.estimate_bytes(rows, n_envs, self.observation_space, self.action_space)
        if self.network.cnn is not None or estimate >= LARGE_ROLLOUT_BYTES:
            # Learning takes the valid rows out of it: for a while they are there twice.
            self.notes.append(
                f"rollout: {rows:,} rows of {n_envs} envs take {estimate / 2**20:,.1f} MB, twice "
                "that while learning"
            )
        check_fits(
            2 * estimate, available_memory_bytes(), "the rollout", "Set smaller n_steps or n_envs."
        )

    def before_rollout(self, env_steps: int, total_steps: int) -> None:
        """Set what exploration depends on (a rate, a warm-up); called before each rollout."""

    # -- what updates need ------------------------------------------------------------------

    @property
    def may_record(self) -> bool:
        """Replay gradients (fast/recorded.py)? On a GPU always, on a CPU up to these sizes."""
        cfg = self.config
        if self.network.cnn is not None and self.device.type == "cpu":
            return False  # convolutions have no NumPy twin, and are arithmetic and not dispatch
        if cfg.compile != "auto":
            return cfg.compile
        if self.device.type == "cuda":
            return True
        is_small = cfg.widest_layer <= 512 and cfg.gradient_samples <= 4096
        return is_small and self.device.type == "cpu"

    @property
    def update_mode(self) -> str:
        """How gradients are computed, and why, in a few words for the user."""
        if self.may_record:
            return "CUDA graphs" if self.device.type == "cuda" else "updates replayed in NumPy"
        return "plain torch, as asked for" if self.config.compile is False else "plain torch"

    def scheduled_values(self, env_steps: int, total_steps: int) -> dict[str, float]:
        """Every scheduled field, by name; `env_steps` is the clock before the rollout."""
        return {name: s.at(env_steps, total_steps) for name, s in self.schedules.items()}

    @contextmanager
    def observing(self, rollout: Rollout) -> Iterator[None]:
        """Take the rollout's observations into the normaliser, around an update from it.

        After the update, so that log-probabilities are those of the policy that acted; only the
        very first before it, since the first update would else learn from raw observations.
        """
        if not self.net.learns_moments:
            yield
            return
        is_first = float(self.net.normalizer.count) == 0
        if is_first:
            self.net.observe(rollout.valid_obs())
        yield
        if not is_first:
            self.net.observe(rollout.valid_obs())

    def normalized_reward(self, rollout: Rollout) -> np.ndarray:
        """The rollout's rewards to learn from, scaled if the config says so."""
        if not self.config.normalize_reward:
            return rollout.reward
        return self.reward_normalizer(rollout.reward, rollout.done, rollout.valid)

    def encoded_obs(self, rollout: Rollout) -> Tensor:
        """All observations of a rollout as the network takes them [(T + 1) N, ...]."""
        if rollout.device_obs is not None:
            return self.net.encode(rollout.device_obs.flatten(0, 1))
        return self.net.encode(self.to_device(rollout.obs).flatten(0, 1))

    def to_device(self, array: np.ndarray) -> Tensor:
        return upload(array, self.device)

    # -- state ------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        """Tensors by file ("model", "optimizer"), and the rest as JSON."""
        moments = {
            f"{name}.{key}": value
            for name, optimizer in self.optimizers.items()
            for key, value in optimizer.state().items()
        }
        extra = {
            "observation_space": space_to_json(self.observation_space),
            "action_space": space_to_json(self.action_space),
            "policy": self.policy.state(),
            "act_rng": self.policy.rng.bit_generator.state,
            "learn_rng": self.rng.bit_generator.state,
            "reward_normalizer": self.reward_normalizer.state(),
        }
        return {"model": dict(self.net.state_dict()), "optimizer": moments}, extra

    def load_state(self, tensors: dict[str, dict[str, Any]], extra: dict[str, Any]) -> None:
        self.load_weights(tensors["model"])
        for name, optimizer in self.optimizers.items():
            prefix = f"{name}."
            optimizer.load_state(
                {
                    key.removeprefix(prefix): value
                    for key, value in tensors["optimizer"].items()
                    if key.startswith(prefix)
                }
            )
        self.policy.load_state(extra["policy"])
        self.policy.rng.bit_generator.state = extra["act_rng"]
        self.rng.bit_generator.state = extra["learn_rng"]
        self.reward_normalizer.load_state(extra["reward_normalizer"])

    def snapshot(self) -> Snapshot:
        """A copy of weights, moments and statistics, to go back to when an update meets a NaN."""
        statistics = {name: value.clone() for name, value in self.net.named_buffers()}
        weights = [optimizer.snapshot() for optimizer in self.optimizers.values()]
        return [*weights, (torch.empty(0), statistics)]

    def restore(self, snapshot: Snapshot) -> None:
        *weights, (_, statistics) = snapshot
        for optimizer, saved in zip(self.optimizers.values(), weights, strict=True):
            optimizer.restore(saved)
        for name, value in self.net.named_buffers():
            value.copy_(statistics[name])

    def learnt_weights(self) -> list[Tensor]:
        """All that optimisers change, as flat vectors."""
        return [optimizer.flat for optimizer in self.optimizers.values()]

    def load_weights(self, model: dict[str, Any]) -> None:
        """All weights and statistics of a policy with these very shapes, in place."""
        skipped = self.load_matching_weights(model)
        if skipped:
            raise RunError(
                f"the saved weights do not fit this policy: {', '.join(skipped)}. Keep the spaces, "
                "hidden_dims and share_trunk they were trained with, or take over what fits with "
                "init_from_run."
            )

    def load_matching_weights(self, model: dict[str, Any]) -> list[str]:
        """What fits by name and shape (transfer); the names, ours or theirs, that did not."""
        own = self.net.state_dict()
        fits = {
            name
            for name, target in own.items()
            if name in model and tuple(model[name].shape) == tuple(target.shape)
        }
        statistics = {name for name in own if name.startswith("normalizer.")}
        if not statistics <= fits:  # a count without its mean would stop the mean from moving
            fits -= statistics
        with torch.no_grad():
            for name in fits:
                # copy_ and not assignment: parameters are views of the optimiser's flat vector.
                own[name].copy_(torch.as_tensor(model[name]))
        return sorted(set(model) - set(own)) + [name for name in own if name not in fits]
