"""Several heads on one trunk: outputs with layers of their own, and outputs by task.

Parts of an observation with layers of their own are in features.py.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from gymnasium_solver.nets.blocks import HIDDEN_GAIN
from gymnasium_solver.nets.network import Network

VALUE = "value"  # name of the critic's output


class Branches(nn.Module):
    """Outputs side by side, each with layers of its own on the shared features."""

    def __init__(self, branches: Sequence[nn.Module]):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, features: Tensor) -> Tensor:
        return torch.cat([branch(features) for branch in self.branches], dim=1)


class TaskOutputs(nn.Module):
    """One output layer for each task. The last `n_tasks` features say which task it is."""

    def __init__(self, every: nn.Module, n_tasks: int):
        """`every`: features -> the outputs of all tasks [B, n_tasks * W]."""
        super().__init__()
        self.every, self.n_tasks = every, n_tasks

    def forward(self, features: Tensor) -> Tensor:
        n = self.n_tasks
        width = features.shape[1] - n
        outputs = self.every(features[:, :width]).unflatten(1, (n, -1))
        return (outputs * features[:, width:].unsqueeze(2)).sum(1)


class KeepTask(nn.Module):
    """Hidden layers whose output ends with the task, one-hot, from some of their inputs."""

    def __init__(self, layers: nn.Module, start: int, stop: int):
        super().__init__()
        self.layers, self.start, self.stop = layers, start, stop

    def forward(self, x: Tensor) -> Tensor:
        # A normaliser shifts and scales a one-hot vector; the 1 stays the only positive number.
        task = (x[:, self.start : self.stop] > 0).to(x.dtype)
        return torch.cat([self.layers(x), task], dim=1)


def outputs_of(
    network: Network,
    n_features: int,
    parts: Mapping[str, int],
    gain: float,
    generator: torch.Generator,
    n_tasks: int = 0,
) -> nn.Module:
    """The output layer for parts {name: width}: one linear layer, or `network.output_dims` of its
    own before the outputs of each part. `n_tasks`: as often, chosen by the last features."""

    blocks = network.blocks(generator, HIDDEN_GAIN)

    def layer(width: int, n_in: int) -> nn.Module:
        return blocks.outputs(n_in, width * (n_tasks or 1), gain)[-1]

    n_in = n_features - n_tasks
    dims = {name: network.output_dims.get(name, ()) for name in parts}
    if not any(dims.values()):
        made = layer(sum(parts.values()), n_in)
        return TaskOutputs(made, n_tasks) if n_tasks else made
    branches: list[nn.Module] = []
    for name, width in parts.items():
        own = dims[name]
        hidden = blocks.hidden(n_in, own)
        branch = nn.Sequential(*hidden, layer(width, own[-1] if own else n_in))
        branches.append(TaskOutputs(branch, n_tasks) if n_tasks else branch)
    return branches[0] if len(branches) == 1 else Branches(branches)
