"""All parameters of a module as one flat vector, and one optimiser step on it.

Clipping and Adam then touch one tensor instead of a dozen, which on small networks is where the
time goes: dispatch, not arithmetic. The module keeps its parameters as views of the vector.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

OptimizerKind = Literal["adam", "adamw", "sgd"]


class FlatOptimizer:
    def __init__(
        self,
        module: nn.Module,
        kind: OptimizerKind,
        *,
        eps: float = 1e-5,
        weight_decay: float = 0.0,
        max_grad_norm: float | None = None,
    ):
        self.params = list(module.parameters())
        self.max_grad_norm = max_grad_norm
        self.flat = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in self.params]))
        offset = 0
        for p in self.params:
            p.data = self.flat.data[offset : offset + p.numel()].view_as(p)
            offset += p.numel()
        self.torch_optimizer: torch.optim.Optimizer
        if kind == "sgd":
            self.torch_optimizer = torch.optim.SGD([self.flat], lr=0.0, weight_decay=weight_decay)
        else:
            adam = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
            self.torch_optimizer = adam(
                [self.flat], lr=0.0, eps=eps, weight_decay=weight_decay, fused=True
            )

    def step(self, flat_grad: Tensor, lr: float) -> Tensor:
        """One descent step along a gradient; its norm before clipping, still on the device."""
        norm = torch.linalg.vector_norm(flat_grad)
        if self.max_grad_norm is not None:
            flat_grad.mul_((self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        self.flat.grad = flat_grad
        self.torch_optimizer.param_groups[0]["lr"] = lr
        self.torch_optimizer.step()
        return norm

    def state(self) -> dict[str, Tensor]:
        """The optimiser's own tensors (moments, step count); empty before the first step."""
        return dict(self.torch_optimizer.state.get(self.flat, {}))

    def load_state(self, state: dict[str, Any]) -> None:
        self.torch_optimizer.state[self.flat] = {
            name: torch.as_tensor(value).to(self.flat.device).clone()
            for name, value in state.items()
        }

    def snapshot(self) -> tuple[Tensor, dict[str, Tensor]]:
        """A copy of weights and moments, to go back to when an update meets a NaN."""
        return self.flat.detach().clone(), {k: v.clone() for k, v in self.state().items()}

    def restore(self, snapshot: tuple[Tensor, dict[str, Tensor]]) -> None:
        weights, moments = snapshot
        self.flat.data.copy_(weights)
        self.load_state(moments)
