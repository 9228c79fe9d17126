"""The layers of a network with shapes, parameters and multiply-adds, as rows and as a picture."""

import math
from html import escape
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.nets.actor_critics import ActorCritics
from gymnasium_solver.nets.blocks import StackedLinear
from gymnasium_solver.nets.q_network import QNetwork
from gymnasium_solver.nets.world_model import WorldModel
from gymnasium_solver.tree import map_tree

_UNSEEN = (nn.Identity, nn.Flatten)


class LayerRow(NamedTuple):
    name: str
    kind: str
    output: list[int]  # shape of the output for one observation; [] of a layer that was not used
    parameters: int
    multiply_adds: int


@torch.no_grad()
def describe_network(net: nn.Module, obs: Any, n_actions: int) -> list[LayerRow]:
    """The layers in the order of the module, measured on the observations [1, ...]. `n_actions`:
    numbers in an action, for critics that take it; 0: discrete actions."""
    shapes: dict[str, list[int]] = {}
    leaves = {name: part for name, part in net.named_modules() if _is_leaf(name, part)}
    handles = [part.register_forward_hook(_recorder(shapes, name)) for name, part in leaves.items()]
    try:
        use_network(net, map_tree(lambda part: torch.from_numpy(np.asarray(part)), obs), n_actions)
    finally:
        for handle in handles:
            handle.remove()
    rows = []
    for name, part in leaves.items():
        is_layer = _size(part) or type(part).__module__ != "gymnasium_solver.nets.features"
        if name.partition(".")[0] != "encoder" and is_layer and not isinstance(part, _UNSEEN):
            shape = shapes.get(name, [])
            rows.append(LayerRow(name, _kind(part), shape, _size(part), _work(part, shape)))
    counted = {id(p) for part in leaves.values() for p in part.parameters()}
    for name, parameter in net.named_parameters():
        if id(parameter) not in counted:
            rows.append(LayerRow(name, "parameter", list(parameter.shape), parameter.numel(), 0))
    return [row for row in rows if row.parameters or row.output]


def _is_leaf(name: str, part: nn.Module) -> bool:
    """Whether a module is one row: a layer of torch, or of ours that has none inside."""
    if ".parametrizations" in f".{name}" or isinstance(part, nn.Sequential | nn.ModuleList):
        return False
    return hasattr(part, "parametrizations") or not any(part.children())


def _kind(part: nn.Module) -> str:
    name = type(part).__name__.removeprefix("Parametrized")
    if isinstance(part, nn.Conv2d):
        return f"{name} {part.kernel_size[0]}x{part.kernel_size[1]}/{part.stride[0]}"
    return name


def _size(part: nn.Module) -> int:
    return sum(parameter.numel() for parameter in part.parameters())


def _work(part: nn.Module, output: list[int] | None) -> int:
    if isinstance(part, StackedLinear):
        return part.weight.numel()
    if isinstance(part, nn.RNNBase):
        return sum(weight.numel() for weight in part.parameters() if weight.ndim == 2)
    if not output:
        return 0
    if isinstance(part, nn.Linear):
        return part.in_features * math.prod(output)
    if isinstance(part, nn.Conv2d):
        return math.prod(part.kernel_size) * (part.in_channels // part.groups) * math.prod(output)
    return 0


def _recorder(shapes: dict[str, list[int]], name: str) -> Any:
    def record(part: nn.Module, inputs: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) else output
        if isinstance(first, Tensor):
            sizes = list(first.shape)
            # Stacked networks have [n, batch, width].
            is_stack = len(sizes) == 3 and sizes[1] == 1
            shapes[name] = [sizes[0], sizes[2]] if is_stack else sizes[1:] or [1]

    return record


def use_network(net: Any, obs: Any, n_actions: int) -> None:
    """One forward pass through every part of a network."""
    n = len(next(iter(obs.values()))) if isinstance(obs, dict) else len(obs)
    is_first = torch.ones(n, dtype=torch.bool, device=next(net.parameters()).device)
    if isinstance(net, QNetwork) and net.q.core is not None:
        net.step(obs, torch.zeros(n, net.q.core.carry_width, device=is_first.device), is_first)
    elif getattr(net, "core", None) is not None:
        net.step_valued(obs, torch.zeros(n, net.core.carry_width, device=is_first.device), is_first)
    elif isinstance(net, ActorCritics) and net.has_memory:
        carry = net.initial_carry(n)
        outputs, _ = net.step(obs, carry[net.actor.carry_name], is_first)
        actions = outputs[:, :n_actions] if n_actions else None
        core = carry[net.critic.carry_name]
        y, _ = net.critic.remembered(net.encoder(obs), core, is_first)
        net.critic.values(y, actions)
    elif isinstance(net, ActorCritics):
        net(obs, net.actor_outputs(obs)[:, :n_actions] if n_actions else None)
    elif isinstance(net, WorldModel):
        net(obs, torch.zeros(n, net.n_actions, device=is_first.device))
    elif getattr(net, "critic_head", True) is None:
        net.actor(obs)
    else:
        net(obs)


def picture(rows: list[LayerRow], title: str) -> str:
    """The layers as an SVG: a box each, as wide as the logarithm of its parameters."""
    height, gap, left, most = 26, 8, 16, 360
    biggest = max((row.parameters for row in rows), default=1) or 1
    lines = []
    for place, row in enumerate(rows):
        y = 48 + place * (height + gap)
        share = math.log1p(row.parameters) / math.log1p(biggest)
        width = 90 + share * (most - 90)
        shape = " × ".join(map(str, row.output))
        text = f"{row.name}  {row.kind}  {shape}".strip()
        sizes = f"{row.parameters:,}" if row.parameters else ""
        colour = "#4c78a8" if row.parameters else "#b8c7d9"
        lines.append(
            f'<rect x="{left}" y="{y}" width="{width:.0f}" height="{height}" rx="4" '
            f'fill="{colour}"/><text x="{left + most + 12}" y="{y + 17}">{escape(text)}</text>'
            f'<text x="{left + 8}" y="{y + 17}" fill="#fff">{sizes}</text>'
        )
    total = sum(row.parameters for row in rows)
    full = 60 + len(rows) * (height + gap)
    head = f"{escape(title)}: {total:,} parameters"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="860" height="{full}" '
        f'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="{left}" y="28" font-size="16">{head}</text>{"".join(lines)}</svg>\n'
    )
