"""Any class of torch.optim by name, with the interface of the flat optimiser.

    optimizer = TorchOptimizer([group], "NAdam", {"momentum_decay": 0.004}, max_grad_norm=0.5)

The optimiser sees the parameters one by one, in their shapes, which some update rules depend on
(Adafactor). They stay views of the flat vector, and torch changes them in place. Its state is saved
as tensors by parameter and name, without pickle.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gymnasium_solver.errors import ConfigError, told_as
from gymnasium_solver.fast.optimizer import FLAT_KINDS, Group, Optimizer, project
from gymnasium_solver.suggest import did_you_mean

# LBFGS evaluates the loss several times per step, SparseAdam takes sparse gradients only.
_NOT_STEPWISE = {"LBFGS", "SparseAdam"}
# Set by fields of their own, or without meaning here.
_TAKEN = {
    "params": "the parameters are those of the networks",
    "lr": "set policy_lr, which can be a schedule",
    "weight_decay": "set the field weight_decay, which can be a schedule",
    "maximize": "losses are minimised",
}


class TorchOptimizer(Optimizer):
    def __init__(
        self,
        groups: Sequence[Group],
        name: str,
        options: Mapping[str, Any] | None = None,
        *,
        max_grad_norm: float | None = None,
        max_grad_value: float | None = None,
    ):
        super().__init__(groups, max_grad_norm=max_grad_norm, max_grad_value=max_grad_value)
        kind = optimizer_class(name)
        takes = _check_options(kind, options or {})
        if any(group.weight_decay for group in groups) and "weight_decay" not in takes:
            raise ConfigError(f"weight_decay: torch.optim.{kind.__name__} has none; set it to 0")
        # An own default of the class (AdamW, Muon) would change the weights unasked.
        given: dict[str, Any] = {"lr": 0.0, **(options or {})}
        if "weight_decay" in takes:
            given["weight_decay"] = 0.0
        with told_as(ConfigError, f"optimizer: torch.optim.{kind.__name__}", TypeError, ValueError):
            own = [{"params": list(group.module.parameters())} for group in groups]
            self._torch = kind(own, **given)

    @torch.no_grad()
    def step(self, grad: Tensor, lr: float | Tensor) -> Tensor:
        self.n_steps += 1
        norm = self._clipped(grad)
        parts = grad.split([p.numel() for p in self.params])
        for parameter, part in zip(self.params, parts, strict=True):
            parameter.grad = part.view_as(parameter)
        for own, group in zip(self.groups, self._torch.param_groups, strict=True):
            rate = float(lr) * own.lr_scale
            group["lr"] = torch.tensor(rate) if isinstance(group["lr"], Tensor) else rate
            if "weight_decay" in group:
                group["weight_decay"] = own.weight_decay
        self._torch.step()
        for parameter in self.params:
            parameter.grad = None
        for own in self.groups:
            project(own, self.unit_rows.get(own.name, ()), self.flat)
        self._move_targets()
        return norm

    def state(self) -> dict[str, Tensor]:
        found = {"n_steps": torch.tensor(self.n_steps)}
        for place, parameter in enumerate(self.params):
            for name, value in self._torch.state.get(parameter, {}).items():
                if value is not None:
                    kind = "tensor" if isinstance(value, Tensor) else type(value).__name__
                    found[f"{place}.{kind}.{name}"] = _as_tensor(value)
        return found

    def load_state(self, state: dict[str, Any]) -> None:
        self.n_steps = int(state["n_steps"])
        self._torch.state.clear()
        for key, value in state.items():
            if key == "n_steps":
                continue
            place, kind, name = key.split(".", 2)
            parameter = self.params[int(place)]
            saved = torch.as_tensor(value)
            own = self._torch.state[parameter]
            if kind == "tensor":
                # Counters stay on the CPU, as torch creates them.
                is_counter = saved.ndim == 0 and parameter.ndim != 0
                own[name] = saved.clone() if is_counter else saved.to(parameter.device).clone()
            else:
                own[name] = {"int": int, "float": float, "bool": bool}[kind](saved)

    def takes(self, state: Mapping[str, Any]) -> bool:
        places = {key.partition(".")[0] for key in state if key != "n_steps"}
        return "n_steps" in state and places <= {str(n) for n in range(len(self.params))}


def optimizer_class(name: str) -> type[torch.optim.Optimizer]:
    """The class of torch.optim with this name; ConfigError names what is near."""
    plain = name.removeprefix("torch.optim.")
    known = {
        key: value
        for key, value in vars(torch.optim).items()
        if inspect.isclass(value) and issubclass(value, torch.optim.Optimizer)
    }
    del known["Optimizer"]
    if plain not in known:
        names = (*FLAT_KINDS, *known)
        hint = did_you_mean(plain, names) or f"Known: {', '.join(names)}."
        raise ConfigError(
            f"optimizer: torch {torch.__version__} has no optimiser {plain!r}. {hint}"
        )
    if plain in _NOT_STEPWISE:
        why = "evaluates the loss several times" if plain == "LBFGS" else "takes sparse gradients"
        raise ConfigError(f"optimizer: {plain} {why} per step, which does not fit; use Adam")
    return known[plain]


def _check_options(kind: type[torch.optim.Optimizer], options: Mapping[str, Any]) -> set[str]:
    """Names that the class takes; ConfigError for an option that it does not."""
    takes = set(inspect.signature(kind).parameters)
    for name in options:
        if name in _TAKEN:
            raise ConfigError(f"optimizer_kwargs: {name} cannot be set here: {_TAKEN[name]}")
        if name not in takes:
            free = sorted(takes - set(_TAKEN))
            hint = did_you_mean(name, free) or f"It takes {', '.join(free)}."
            raise ConfigError(
                f"optimizer_kwargs: torch.optim.{kind.__name__} has no {name!r}. {hint}"
            )
    return takes


def _as_tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, bool | int | float):
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    raise TypeError(f"the optimiser keeps a {type(value).__name__}, which cannot be saved")
