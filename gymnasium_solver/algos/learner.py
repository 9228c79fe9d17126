"""Base of the learners: random streams, schedules, descents, extensions, and their state.

It contains no loss and no update. An algorithm builds its network, its policy and its descents in
`build`, and learns from a rollout in `update`:

    class MyAlgorithm(Learner):
        Config = MyConfig

        def build(self) -> None:
            self.net, self.policy = build_actor_critic(self)
            self.descent = self.add_descent("policy", self.loss, self.net)

        def update(self, rollout, env_steps, total_steps): ...
"""

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.algos.agent import Agent, Snapshot, Tensors
from gymnasium_solver.algos.extensions import extensions_for
from gymnasium_solver.algos.extensions.extension import Extension
from gymnasium_solver.algos.own_state import OWN, OwnState
from gymnasium_solver.config.schedule import AUTO, Schedule, at_start, marks_of
from gymnasium_solver.config.schema import LearnerConfig
from gymnasium_solver.data.demonstrations import Demonstrations
from gymnasium_solver.data.device_rollout import DeviceRollout
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.errors import ConfigError, RunError
from gymnasium_solver.fast.cuda_graph import on_device
from gymnasium_solver.fast.descent import Descent, Loss
from gymnasium_solver.fast.execution import Execution, Work, planned_work
from gymnasium_solver.fast.forward import CompiledForward
from gymnasium_solver.fast.optimizer import FLAT_KINDS, Ema, FlatOptimizer, Group, Optimizer
from gymnasium_solver.fast.recorded import LossGradient
from gymnasium_solver.fast.torch_optimizer import TorchOptimizer
from gymnasium_solver.nets.encoder import ObsEncoder
from gymnasium_solver.nets.init import reinitialise
from gymnasium_solver.nets.network import network_for
from gymnasium_solver.nets.normalizer import RewardNormalizer
from gymnasium_solver.spaces.action_dists import chosen_kind
from gymnasium_solver.spaces.observations import GoalFunctions, Space
from gymnasium_solver.spaces.space_types import space_to_json
from gymnasium_solver.timing import OFF, Timer

LARGE_ROLLOUT_BYTES = 16 * 2**20  # larger ones are reported before training, images always


if TYPE_CHECKING:
    from gymnasium_solver.algos.device_update import DeviceUpdate


class Part(NamedTuple):
    """A group of a descent's parameters: those of a module, with settings of their own."""

    module: nn.Module
    tau: Any = None  # factor of a target network's moves; None: there is none
    settings: Mapping[str, Any] = {}


class Learner(Agent):
    takes_stale = False
    """Whether it may learn from rollouts of an earlier policy, as collectors make them."""
    device_update: "DeviceUpdate | None" = None
    """Its update from a rollout that is on its device; None: it has none."""

    def __init__(
        self,
        config: LearnerConfig,
        observation_space: Space,
        action_space: Space,
        seed: int,
        device: str = "cpu",
    ):
        if config.gamma == AUTO:  # decided before training (training/prepare.py)
            config = config.replace(gamma=type(config).model_fields["gamma"].default)
        self.config: Any = config
        self.observation_space, self.action_space = observation_space, action_space
        self.actions = chosen_kind(action_space, **config.action_settings)
        self.device = torch.device(device)
        self._timer: Timer = OFF
        self.seed = seed
        init_seed, act_seed, learn_seed = np.random.SeedSequence(seed).spawn(3)
        self.generator = torch.Generator().manual_seed(int(init_seed.generate_state(1)[0]))
        # A generator of their own: the networks start with the same weights as without them.
        self.extension_seed = int(init_seed.generate_state(2)[1])
        self.act_rng = np.random.default_rng(act_seed)
        self.rng = np.random.default_rng(learn_seed)
        self.generators: dict[str, torch.Generator] = {}  # on a GPU, saved by name
        self.optimizers: dict[str, Optimizer] = {}
        self.descents: dict[str, Descent] = {}
        self.forwards: dict[str, CompiledForward] = {}
        self.reward_normalizer = RewardNormalizer(
            int(config.n_envs), at_start(config.gamma), config.clip_reward, config.max_return,
            by_size=config.normalize_reward == "size",
        )  # fmt: skip
        self._read_schedules(config)
        self.network = network_for(config, observation_space)
        self.execution = Execution(config.compile, self.device, self._work())
        if config.compile == "fused" and config.bf16:
            raise ConfigError("compile: fused does not compute in bf16; remove one of them")
        self.notes: list[str] = []
        self.wants_details = False
        self.extensions: list[Extension] = extensions_for(self)
        self._own = OwnState(self)
        self.build()
        self.policy.unread = self.network.critic_keys
        for extension in self.extensions:
            extension.attach()

    def build(self) -> None:
        """Build the network, the policy and the descents."""

    def make_policy(self, kind: Callable[..., Any], net: Any, *args: Any, **more: Any) -> Any:
        """A policy of this class on a network, which acts in the form that suits the run."""
        given = (net, self.observation_space, self.actions, self.act_rng, *args)
        how = self.execution
        return kind(*given, record=how.records_acting, compile=how.compiles, **more)

    def _read_schedules(self, config: LearnerConfig) -> None:
        fields = type(config).model_fields
        self.schedules = {
            name: value for name in fields if isinstance(value := getattr(config, name), Schedule)
        }
        marks = {
            name: mark
            for name, info in fields.items()
            for mark in marks_of(info)
            if name in self.schedules
        }
        for value in self.schedules.values():
            value.at(0, 1)  # a class of torch that does not exist is refused here
        self._written_config = config
        self._changing = list(marks)
        self._whole = [name for name, mark in marks.items() if mark.whole]
        self._followed: dict[str, list[str]] = {}  # settings of optimisers that are schedules

    def _work(self) -> Work:
        return planned_work(self.config)._replace(
            has_images=bool(self.network.cnns), is_stateful=self.network.needs_torch
        )

    def ignore(self, *names: str) -> None:
        """Drop scheduled fields that this learner does not read, so that they are not reported."""
        for name in names:
            self.schedules.pop(name, None)

    @property
    def encoder(self) -> ObsEncoder:
        encoder: ObsEncoder = self.net.encoder
        return encoder

    def observe(self, obs: Any) -> None:
        """Take observations into the statistics of the encoders: of critics that see more parts
        than the actor, and of the actor."""
        self.encoder.observe(obs)
        own: ObsEncoder | None = getattr(self.net, "own_encoder", None)
        if own is not None:
            own.observe(obs)

    @property
    def timer(self) -> Timer:
        return self._timer

    @timer.setter
    def timer(self, timer: Timer) -> None:
        self._timer = timer
        for part in self._timed():
            part.timer = timer

    def _timed(self) -> list[Any]:
        return list(self.descents.values())

    # -- descents ---------------------------------------------------------------------------

    def add_descent(
        self,
        name: str,
        loss: Loss | None,
        module: nn.Module | Mapping[str, Part] | None = None,
        *,
        record: bool = True,
        fuse: bool = True,
        target: bool = False,
        tau: Any = None,
        ema_every: int = 1,
        share: Descent | None = None,
        norm: str | None = None,
        **settings: Any,
    ) -> Descent:
        """Gradient steps of a loss on the parameters of a module, or of several by the names of
        their groups, by the configured optimiser. They are saved with the learner. Outputs of the
        loss have the names of metrics, and so has the norm of the gradient: opt/grads/norm/NAME, or
        with `norm` in place of the name.

        `loss`: None if gradients are known. `record`: False if the loss cannot be recorded, because
        its control flow depends on data. `fuse`: False if it has so many operations that fusing
        them would take many minutes. `target`: the module has a target network; with `tau` it moves
        by this factor, every `ema_every` steps. `share`: another descent, whose parameters and
        optimiser this one uses. `settings`: of the group, in place of the config's."""
        if share is not None:
            optimizer = share.optimizer
        else:
            assert module is not None
            parts = {name: Part(module, tau)} if isinstance(module, nn.Module) else module
            emas = {
                key: Ema(at_start(part.tau), ema_every)
                for key, part in parts.items() if target or part.tau is not None
            }  # fmt: skip
            optimizer = self._optimizer(name, parts, emas, settings)
        how = self.execution
        descent = Descent(
            name,
            loss,
            optimizer,
            record=record and how.records,
            compile=how.compiles,
            constants=lambda: self._other_tensors(optimizer),
            steps_in_c=share is None,
            bf16=self.config.bf16,
            fuse=fuse and how.fuses and not self.config.bf16,
            norm=f"opt/grads/norm/{norm or name}",
        )
        descent.timer = self._timer
        if descent.has_loss:  # a stack computes together what has the same config but for the seed
            fields = repr(self.config.model_dump(exclude={"seed"}))
            descent.gradient.name += f" {zlib.crc32(fields.encode())}"
        self.descents[name] = descent
        return descent

    def _optimizer(
        self, name: str, parts: Mapping[str, Part], emas: Mapping[str, Ema], given: dict[str, Any]
    ) -> Optimizer:
        cfg = self.config
        if cfg.init != "auto" or cfg.zero_last:
            for part in parts.values():
                reinitialise(part.module, cfg.init, cfg.init_gain, cfg.zero_last, self.generator)
        settings: dict[str, Any] = {
            "eps": cfg.adam_eps,
            "weight_decay": cfg.weight_decay,
            "beta1": cfg.adam_beta1,
            "beta2": cfg.adam_beta2,
            "momentum": cfg.momentum,
            "agc": cfg.agc,
            "unit_rows": cfg.has_unit_norm,
            "max_grad_norm": cfg.max_grad_norm,
            "max_grad_value": cfg.max_grad_value,
        } | given
        moving = [part.tau for part in parts.values() if isinstance(part.tau, Schedule)]
        self._followed[name] = ["tau"] * bool(moving) + [
            key for key, value in settings.items() if isinstance(value, Schedule)
        ]
        settings = {key: at_start(value) for key, value in settings.items()}
        clipping = {key: settings.pop(key) for key in ("max_grad_norm", "max_grad_value")}
        is_flat = cfg.optimizer in FLAT_KINDS
        kind: Any = cfg.optimizer if is_flat else "adam"
        groups = [
            Group(key, part.module, kind, ema=emas.get(key), **{**settings, **part.settings})
            for key, part in parts.items()
        ]
        if is_flat:
            # A CUDA graph would keep the first values of settings that change.
            constant = not self._followed[name]
            made: Optimizer = FlatOptimizer(groups, graph=constant, **clipping)
        else:
            made = TorchOptimizer(groups, cfg.optimizer, cfg.optimizer_kwargs, **clipping)
        if any(group.projects for group in groups):
            made.project()
        self.optimizers[name] = made
        return made

    def _other_tensors(self, own: Optimizer) -> list[Tensor]:
        """All tensors of the networks that are not parameters of an optimiser."""
        targets = [t.module for o in self.optimizers.values() for t in o.targets.values()]
        taken, found = {id(p) for p in own.params}, list[Tensor]()
        for module in (self.net, *targets):
            for tensor in (*module.parameters(), *module.buffers()):
                if id(tensor) not in taken:
                    taken.add(id(tensor))
                    found.append(tensor)
        return found

    def add_forward(
        self, name: str, function: Callable[..., Any], *, wanted: bool = True, n_numbers: int = 0,
        is_metric: bool = False,
    ) -> CompiledForward:  # fmt: skip
        """A forward pass that is compiled where updates are; its mode is saved. `is_metric`: it
        computes metrics once in an update, and is compiled only where that pays."""
        rows, how = self.config.rollout_rows, self.execution
        pays = not is_metric or how.work.is_worth_metrics(rows, rows * int(self.config.n_envs))
        wanted = wanted and how.compiles and pays
        made = CompiledForward(function, self.net, wanted=wanted, n_numbers=n_numbers)
        self.forwards[name] = made
        return made

    @property
    def gradients(self) -> dict[str, LossGradient]:
        """The gradients of the descents, by name."""
        return {name: own.gradient for name, own in self.descents.items() if own.has_loss}

    @property
    def needs_host(self) -> str | None:
        """What keeps its rollouts from staying on a device (data/device_rollout.py); None: nothing
        does, and `update` takes them."""
        own = self.device_update
        return f"algo_id: {self.config.algo_id}" if own is None else own.needs_host

    @property
    def uncaptured(self) -> str | None:
        """Why updates on the device are no CUDA graph, where that was tried."""
        return None if self.device_update is None else self.device_update.recurring.failure

    @property
    def update_mode(self) -> str:
        gradients = self.gradients.values()
        planned = {gradient.form for gradient in gradients if gradient.mode is None}
        return self.execution.describe({gradient.mode for gradient in gradients}, set(planned))

    # -- training ---------------------------------------------------------------------------

    def use_goals(self, goals: Callable[[], GoalFunctions]) -> None:
        for extension in self.extensions:
            extension.use_goals(goals)

    @property
    def demonstrations(self) -> Demonstrations | None:
        """What it learns from in place of the environment, from `start_training` on."""
        sources = (extension.demonstrations for extension in self.extensions)
        return next((source for source in sources if source is not None), None)

    @demonstrations.setter
    def demonstrations(self, source: Demonstrations | None) -> None:
        for extension in self.extensions:
            extension.demonstrations = source

    def start_training(self) -> None:
        self.notes += self.execution.notes
        self._note_sizes()
        for extension in self.extensions:
            self.notes += extension.start_training()

    def _note_sizes(self) -> None:
        rows, n_envs = self.config.rollout_rows, self.config.n_envs
        estimate = Rollout.estimate_bytes(
            rows, n_envs, self.observation_space, self.actions, n_outputs=self.policy.n_outputs
        )
        if self.network.cnns or estimate >= LARGE_ROLLOUT_BYTES:
            # The update copies the valid rows, so they exist twice for a while.
            self.notes.append(
                f"rollout: {rows:,} rows of {n_envs} envs take {estimate / 2**20:,.1f} MB, twice "
                "that during an update"
            )

    def set_clock(self, env_steps: int, total_steps: int) -> None:
        if self._changing:
            now = {}
            for name in self._changing:
                value = self.schedules[name].at(env_steps, total_steps)
                now[name] = round(value) if name in self._whole else value
            self.config = self._written_config.model_copy(update=now)
            self.reward_normalizer.gamma = self.config.gamma
            for optimizer_name, keys in self._followed.items():
                self.optimizers[optimizer_name].follow({key: now[key] for key in keys})
        for extension in self.extensions:
            extension.follow(env_steps, total_steps)

    def update(
        self, rollout: Rollout | DeviceRollout, env_steps: int, total_steps: int
    ) -> dict[Any, Any]:
        hp = self.scheduled_values(env_steps, total_steps)
        if isinstance(rollout, DeviceRollout):
            assert self.device_update is not None, "asked before, by `needs_host`"
            return self.device_update(rollout, hp)
        with self.observing(rollout):
            return self.learn(rollout, hp) | hp_metrics(hp)

    def learn(self, rollout: Rollout, hp: dict[str, float]) -> dict[str, float]:
        """Learn from a rollout and return metrics. `hp`: the scheduled values, now."""
        raise NotImplementedError

    def side_metrics(self, rollout: Rollout) -> dict[str, float]:
        """Metrics of extensions about the last update, from this rollout."""
        found: dict[str, float] = {}
        for extension in self.extensions:
            found |= extension.report(rollout)
        return found

    # -- used by updates --------------------------------------------------------------------

    def scheduled_values(self, env_steps: int, total_steps: int) -> dict[str, float]:
        """Current value of every scheduled field. `env_steps` is the count before the rollout."""
        return {name: s.at(env_steps, total_steps) for name, s in self.schedules.items()}

    @contextmanager
    def observing(self, rollout: Rollout) -> Iterator[None]:
        """Update the observation normaliser after the wrapped update.

        The first rollout is the exception: it updates the normaliser before, so that the first
        update does not train on raw observations."""
        encoder = self.encoder
        if not encoder.learns_moments:
            yield
            return
        is_first = not encoder.has_moments
        if is_first:
            self.observe(rollout.valid_obs())
        yield
        if not is_first:
            self.observe(rollout.valid_obs())

    def scaled_reward(self, rollout: Rollout) -> np.ndarray:
        """The environment's rewards [T, N], normalised if configured."""
        if not self.config.scales_reward:
            return rollout.reward
        if rollout.is_restart:
            self.reward_normalizer.restart()
        return self.reward_normalizer(rollout.reward, rollout.done, rollout.valid)

    def bonus(self, rollout: Rollout) -> np.ndarray | None:
        """The rewards [T, N] that extensions add, each scaled by its own statistics; None: none."""
        columns = [c for e in self.extensions if (c := e.bonus(rollout)) is not None]
        return sum(columns[1:], columns[0]) if columns else None

    def rewards(self, rollout: Rollout) -> np.ndarray:
        """What is learnt from [T, N]: the environment's rewards and those of extensions."""
        reward, bonus = self.scaled_reward(rollout), self.bonus(rollout)
        return reward if bonus is None else reward + bonus

    def take_details(self) -> bool:
        """Whether to report the metrics that cost time: once for each request of the loop."""
        wanted, self.wants_details = self.wants_details, False
        return wanted

    def to_device(self, array: np.ndarray) -> Tensor:
        return on_device(array, self.device)

    # -- state ------------------------------------------------------------------------------

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        """Return tensors by file ("model", "optimizer", ...) and the remaining state as JSON."""
        moments, targets = dict[str, Tensor](), dict[str, Tensor]()
        if self.device_update is not None:
            self.device_update.pull()
        for name, optimizer in self.optimizers.items():
            moments |= {f"{name}.{key}": value for key, value in optimizer.state().items()}
            targets |= optimizer.target_tensors()
        extra = {
            "observation_space": space_to_json(self.observation_space),
            "action_space": space_to_json(self.action_space),
            "policy": self.policy.state(),
            "act_rng": self.policy.rng.bit_generator.state,
            "learn_rng": self.rng.bit_generator.state,
            "reward_normalizer": self.reward_normalizer.state(),
            "n_updates": self.n_updates,
            "gradients": {name: gradient.mode for name, gradient in self.gradients.items()},
            "forwards": {name: forward.mode for name, forward in self.forwards.items()},
        }
        extra |= {name: own.get_state().tolist() for name, own in self.generators.items()}
        tensors = {"model": dict(self.net.state_dict()), "optimizer": moments}
        if targets:
            tensors["target"] = targets
        for extension in self.extensions:
            own, numbers = extension.state()
            tensors |= {extension.name: own} if own else {}
            extra |= {extension.name: numbers} if numbers else {}
        own, numbers = self._own.state()
        return tensors | ({OWN: own} if own else {}), extra | ({OWN: numbers} if numbers else {})

    def load_state(self, tensors: dict[str, dict[str, Any]], extra: dict[str, Any]) -> None:
        for extension in self.extensions:  # one that refuses does so before anything is changed
            own, numbers = tensors.get(extension.name, {}), extra.get(extension.name, {})
            if own or numbers:
                extension.load_state(own, numbers)
        self.load_weights(tensors["model"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state(_under(name, tensors["optimizer"]))
            with torch.no_grad():
                for key, value in optimizer.target_tensors().items():
                    value.copy_(torch.as_tensor(tensors["target"][key]))
        self._own.load(tensors.get(OWN, {}), extra.get(OWN, {}))
        self.policy.load_state(extra["policy"])
        self.policy.rng.bit_generator.state = extra["act_rng"]
        self.rng.bit_generator.state = extra["learn_rng"]
        self.reward_normalizer.load_state(extra["reward_normalizer"])
        for name, generator in self.generators.items():
            if name in extra:  # else of a run on the CPU
                generator.set_state(torch.tensor(extra[name], dtype=torch.uint8))
        if self.device_update is not None:
            self.device_update.push()
        self.n_updates = extra.get("n_updates", 0)
        modes = extra.get("gradients", {})
        resumed = [self.gradients[name].resume(mode) for name, mode in modes.items()]
        saved = extra.get("forwards", {})  # an older version computed in torch
        resumed += [own.resume(saved.get(name, "torch")) for name, own in self.forwards.items()]
        if not all(resumed):
            self.notes.append(
                "updates: the run was trained with compiled C programs, and there is no C compiler "
                "here. It continues with NumPy programs, which round differently."
            )

    def snapshot(self) -> Snapshot:
        statistics = {name: value.clone() for name, value in self._buffers()}
        return [optimizer.snapshot() for optimizer in self.optimizers.values()], statistics

    def restore(self, snapshot: Snapshot) -> None:
        weights, statistics = snapshot
        for optimizer, saved in zip(self.optimizers.values(), weights, strict=True):
            optimizer.restore(saved)
        for name, value in self._buffers():
            value.copy_(statistics[name])

    _buffer_places: tuple[Any, list[tuple[str, dict[str, Tensor | None], str]]] | None = None

    def _buffers(self) -> list[tuple[str, Tensor]]:
        """The buffers of the network by name. Torch searches all modules for them, which takes as
        long as the copy of a small network."""
        if self._buffer_places is None or self._buffer_places[0] is not self.net:
            places = [
                (f"{prefix}.{name}" if prefix else name, module._buffers, name)
                for prefix, module in self.net.named_modules()
                for name in module._buffers
            ]
            self._buffer_places = (self.net, places)
        found = ((full, owner[name]) for full, owner, name in self._buffer_places[1])
        return [(name, value) for name, value in found if value is not None]

    def learnt_weights(self) -> list[Tensor]:
        """All trained parameters, as one flat vector per optimiser."""
        return [optimizer.flat for optimizer in self.optimizers.values()]

    # -- weights ----------------------------------------------------------------------------

    def export_flat(self) -> dict[str, np.ndarray]:
        arrays = {
            name: value.detach().cpu().numpy().copy() for name, value in self.flat_tensors().items()
        }
        return arrays | {"version": np.array(self.n_updates)}

    def import_flat(self, arrays: Mapping[str, np.ndarray]) -> None:
        own = self.flat_tensors()
        for name, value in own.items():
            if name not in arrays or arrays[name].shape != tuple(value.shape):
                raise RunError(
                    f"the weights do not match this agent: {name} is missing or has a different "
                    "shape. Export them from an agent with the same config and spaces."
                )
        with torch.no_grad():
            for name, value in own.items():
                value.copy_(torch.as_tensor(arrays[name]))
        self.n_updates = int(arrays["version"])

    def flat_tensors(self) -> dict[str, Tensor]:
        """Weights and statistics by name, as flat vectors that may be written into."""
        weights = {f"weights.{name}": o.flat for name, o in self.optimizers.items()}
        return weights | {f"buffer.{name}": value for name, value in self.net.named_buffers()}

    def load_weights(self, model: dict[str, Any]) -> None:
        skipped = self.load_matching_weights(model)
        if skipped:
            raise RunError(
                f"the saved weights do not match this policy: {', '.join(skipped)}. Keep the "
                "spaces, hidden_dims and share_trunk they were trained with, or take over what "
                "fits with init_from_run."
            )

    def load_matching_weights(self, model: dict[str, Any]) -> list[str]:
        own = self.net.state_dict()
        fits = {
            name
            for name, target in own.items()
            if name in model and tuple(model[name].shape) == tuple(target.shape)
        }
        statistics = {name for name in own if ".normalizer." in name}
        if not statistics <= fits:  # a count without its mean would freeze the mean
            fits -= statistics
        is_checked = self.config.check_finite
        wrong = [
            name for name in sorted(fits)
            if is_checked and not torch.as_tensor(model[name]).isfinite().all()
        ]  # fmt: skip
        if wrong:
            raise RunError(
                f"the saved weights are not finite: {', '.join(wrong)}. Take another checkpoint."
            )
        with torch.no_grad():
            for name in fits:
                # copy_ instead of assignment: parameters are views into the optimiser's flat
                # vector.
                own[name].copy_(torch.as_tensor(model[name]))
        for optimizer in self.optimizers.values():
            optimizer.copy_to_targets()
        return sorted(set(model) - set(own)) + [name for name in own if name not in fits]

    def load_matching_moments(
        self, moments: Mapping[str, Any], loaded: Collection[str]
    ) -> tuple[list[str], list[str]]:
        # Not of parameters one by one: an optimiser counts its steps once, and parameters without
        # moments would take their first steps several times too long.
        names = {id(p): name for name, p in self.net.named_parameters()}
        taken, left = list[str](), list[str]()
        for name, optimizer in self.optimizers.items():
            state = _under(name, moments)
            fits = all(names.get(id(p)) in loaded for p in optimizer.params)
            if fits and optimizer.takes(state):
                optimizer.load_state(state)
                taken.append(name)
            else:
                left.append(name)
        return taken, left


def _under(name: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors whose names start with `name` and a point, without these."""
    prefix = f"{name}."
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def hp_metrics(hp: Mapping[str, float]) -> dict[str, float]:
    """Scheduled values as metrics."""
    return {f"hp/{name}": value for name, value in hp.items()}
