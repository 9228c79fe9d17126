"""What groups of parameters declare is done by every executor: torch, NumPy programs, C, stacked
learners and CUDA graphs take the steps of a reference in double precision."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gymnasium_solver.fast.descent import Descent
from gymnasium_solver.fast.native.build import can_compile
from gymnasium_solver.fast.optimizer import AGC_LEAST, RMS_DECAY, Ema, FlatOptimizer, Group
from gymnasium_solver.fast.stacked_descent import Asked, Descents, can_descend_together

N_ROWS, LR = 24, 0.01
# Groups "body" and "head" with settings of their own, and those of the optimiser.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    **{
        f"{kind}{' decay' if decay else ''}": ({"kind": kind, "weight_decay": decay}, {}, {})
        for kind in ("adam", "adamw", "rmsprop", "rmsprop_tf", "laprop", "sgd")
        for decay in (0.0, 0.1)
    },
    "momentum": ({"kind": "sgd", "momentum": 0.8}, {"kind": "sgd"}, {}),
    "betas": ({"beta1": 0.5, "beta2": 0.9, "eps": 1e-3}, {"kind": "laprop", "beta1": 0.7}, {}),
    "lr scale": ({"lr_scale": 0.3}, {"kind": "sgd", "lr_scale": 4.0}, {}),
    "norm": ({}, {}, {"max_grad_norm": 0.1}),
    "value": ({}, {}, {"max_grad_value": 0.02}),
    "value, norm": ({}, {"kind": "sgd"}, {"max_grad_value": 0.05, "max_grad_norm": 0.1}),
    "agc": ({"agc": 0.01}, {}, {}),
    "agc, norm": ({"agc": 0.01, "kind": "sgd"}, {"agc": 0.3}, {"max_grad_norm": 0.1}),
    "unit rows": ({"unit_rows": True}, {}, {}),
    "bounds": ({"bounds": (-0.4, 0.5)}, {"bounds": (None, 0.1)}, {}),
    "target": ({"ema": Ema(0.1)}, {}, {}),
    "target in turns": ({"ema": Ema(0.3, every=2)}, {"ema": Ema(1.0, every=3)}, {}),
    "target of unit rows": ({"ema": Ema(0.1), "unit_rows": True}, {"ema": Ema(None)}, {}),
    "all": (
        {"kind": "laprop", "weight_decay": 0.1, "lr_scale": 0.5, "agc": 0.1, "unit_rows": True},
        {"kind": "adamw", "weight_decay": 0.2, "bounds": (-0.3, 0.3)},
        {"max_grad_norm": 0.2, "max_grad_value": 0.1},
    ),
}  # fmt: skip


class Net(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.body = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh())
        self.head = nn.Linear(4, 1)
        for p in self.parameters():
            p.data.copy_(0.5 * torch.randn(p.shape, generator=generator))

    def loss(self, batch: Any, c: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        error = self.head(self.body(batch["x"]))[:, 0] - batch["y"]
        total = c["scale"] * error.square().mean()
        return total, {"error": error.abs().mean()}


class Learner:
    """A network, its data, and its minibatches."""

    def __init__(self, case: str, seed: int = 0, device: str = "cpu", n_steps: int = 7) -> None:
        body, head, settings = CASES[case]
        self.net = Net(seed).to(device)
        self.reference = copy.deepcopy(self.net).double().cpu()
        self.optimizer = FlatOptimizer(
            [Group("body", self.net.body, **body), Group("head", self.net.head, **head)], **settings
        )
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(N_ROWS, 3)), 3 * rng.normal(size=N_ROWS)
        self.batch = {
            name: torch.from_numpy(column).float().to(device)
            for name, column in (("x", x), ("y", y))
        }
        self.parts = [rng.permutation(N_ROWS)[:8] for _ in range(n_steps)]
        self.numbers = {"scale": 0.5 + seed}

    def descent(self, **how: Any) -> Descent:
        return Descent("test", self.net.loss, self.optimizer, **how)

    def check(self, norms: Tensor) -> None:
        """Compare with the reference: norms, weights and target networks."""
        expected, targets = by_hand(self)
        close: dict[str, Any] = {"rtol": 1e-3, "atol": 3e-5}  # Adam amplifies rounding
        torch.testing.assert_close(norms.double().cpu(), expected, **close)
        assert self.optimizer.n_steps == len(self.parts)
        pairs = zip(self.net.parameters(), self.reference.parameters(), strict=True)
        for own, wanted in pairs:
            torch.testing.assert_close(own.detach().double().cpu(), wanted.detach(), **close)
        assert self.optimizer.targets.keys() == targets.keys()
        for name, target in self.optimizer.targets.items():
            torch.testing.assert_close(target.flat.double().cpu(), targets[name], **close)


def by_hand(learner: Learner) -> tuple[Tensor, dict[str, Tensor]]:
    """Train the reference; returns the norms of its gradients, and the target networks."""
    net, o = learner.reference, learner.optimizer
    batch = {name: column.double().cpu() for name, column in learner.batch.items()}
    numbers = {name: torch.tensor(value).double() for name, value in learner.numbers.items()}
    modules = {"body": net.body, "head": net.head}
    mean = {p: torch.zeros_like(p) for p in net.parameters()}
    square = {
        p: torch.full_like(p, g.kind == "rmsprop_tf")
        for g in o.groups
        for p in modules[g.name].parameters()
    }
    targets = {g.name: flat_of(modules[g.name]) for g in o.groups if g.ema is not None}
    norms = []
    for step, part in enumerate(learner.parts, 1):
        taken = {name: column[torch.from_numpy(part)] for name, column in batch.items()}
        total, _ = net.loss(taken, numbers)
        grads = dict(
            zip(net.parameters(), torch.autograd.grad(total, list(net.parameters())), strict=True)
        )
        norms.append(length(grads))
        with torch.no_grad():
            for group in o.groups:
                for p in modules[group.name].parameters() if group.agc is not None else ():
                    most = (group.agc or 0) * max(float(p.norm()), AGC_LEAST)
                    grads[p] = grads[p] * min(1.0, most / float(grads[p].norm()))
            if o.max_grad_value is not None:
                most = o.max_grad_value
                grads = {p: grad.clamp(-most, most) for p, grad in grads.items()}
            if o.max_grad_norm is not None:
                scale = min(1.0, o.max_grad_norm / (float(length(grads)) + 1e-6))
                grads = {p: grad * scale for p, grad in grads.items()}
            for group in o.groups:
                for p in modules[group.name].parameters():
                    step_by_hand(group, p, grads[p], mean[p], square[p], step)
                    if group.unit_rows and p.ndim == 2:
                        p.div_(p.norm(dim=1, keepdim=True))
                    if group.bounds != (None, None):
                        p.clamp_(*group.bounds)
                ema = group.ema
                if ema is not None and ema.tau is not None and step % ema.every == 0:
                    now = flat_of(modules[group.name])
                    targets[group.name] += ema.tau * (now - targets[group.name])
    return torch.stack(norms), targets


def flat_of(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def length(grads: dict[Any, Tensor]) -> Tensor:
    return torch.cat([grad.reshape(-1) for grad in grads.values()]).norm()


def step_by_hand(g: Group, p: Tensor, grad: Tensor, mean: Tensor, square: Tensor, n: int) -> None:
    lr = LR * g.lr_scale
    if g.kind == "adamw":
        p.mul_(1 - lr * g.weight_decay)
    else:
        grad = grad + g.weight_decay * p
    if g.kind == "sgd":
        mean.copy_(g.momentum * mean + grad)
        p.sub_(lr * mean)
    elif g.kind in ("rmsprop", "rmsprop_tf"):
        square.copy_(RMS_DECAY * square + (1 - RMS_DECAY) * grad**2)
        p.sub_(
            lr * grad / ((square + g.eps).sqrt() if g.kind[-1] == "f" else square.sqrt() + g.eps)
        )
    else:
        square.copy_(g.beta2 * square + (1 - g.beta2) * grad**2)
        root = (square / (1 - g.beta2**n)).sqrt() + g.eps
        new = grad / root if g.kind == "laprop" else grad
        mean.copy_(g.beta1 * mean + (1 - g.beta1) * new)
        rise = mean / (1 - g.beta1**n)
        p.sub_(lr * (rise if g.kind == "laprop" else rise / root))


def one_by_one(learner: Learner, mode: str, **how: Any) -> Tensor:
    descent = learner.descent(**how)
    steps = [descent(learner.batch, learner.numbers, LR, [part]) for part in learner.parts]
    assert descent.mode == mode
    return torch.cat([step.norms for step in steps])


def in_one_call(learner: Learner) -> Tensor:
    descent = learner.descent(record=True, compile=True)
    steps = descent(learner.batch, learner.numbers, LR, learner.parts)
    assert descent.mode == "compiled"
    return steps.norms


EXECUTORS: dict[str, Callable[[Learner], Tensor]] = {
    "torch": lambda learner: one_by_one(learner, "torch"),
    "numpy": lambda learner: one_by_one(learner, "recorded", record=True),
    "native": lambda learner: one_by_one(learner, "compiled", record=True, compile=True),
    "native, in one call": in_one_call,
}


@pytest.mark.sample(48)
@pytest.mark.parametrize("executor", list(EXECUTORS))
@pytest.mark.parametrize("case", list(CASES))
def test_steps_are_those_of_the_reference(case: str, executor: str) -> None:
    if "native" in executor and not can_compile():
        pytest.skip("needs a C compiler")
    learner = Learner(case)
    learner.check(EXECUTORS[executor](learner))


def stacked(learners: list[Learner], record: bool = False) -> list[Tensor]:
    asked = []
    for learner in learners:
        descent = learner.descent(record=record)
        descent._given = tuple(learner.numbers)
        asked.append(
            Asked(
                descent.gradient, learner.optimizer, learner.batch, N_ROWS,
                np.stack(learner.parts), list(learner.numbers.values()), LR, len(learners),
            )
        )  # fmt: skip
    found = Descents()(asked)
    return [norms for norms in found if norms is not None]


@pytest.mark.parametrize("case", [case for case in CASES if "target" not in case])
def test_stacked_learners_take_the_steps_of_the_reference(case: str) -> None:
    learners = [Learner(case, seed) for seed in range(2)]
    for learner, norms in zip(learners, stacked(learners), strict=True):
        learner.check(norms)


def test_learners_with_target_networks_step_alone() -> None:
    learner = Learner("target")
    gradient = learner.descent().gradient
    gradient.mode = "graph"
    assert not can_descend_together(gradient, learner.optimizer)
    assert can_descend_together(gradient, Learner("adam").optimizer)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
@pytest.mark.parametrize("case", list(CASES))
def test_cuda_graphs_take_the_steps_of_the_reference(case: str) -> None:
    learner = Learner(case, device="cuda")
    learner.check(one_by_one(learner, "graph", record=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
@pytest.mark.parametrize("case", [case for case in CASES if "target" not in case])
def test_stacked_cuda_graphs_take_the_steps_of_the_reference(case: str) -> None:
    learners = [Learner(case, seed, "cuda") for seed in range(2)]
    for learner, norms in zip(learners, stacked(learners, record=True), strict=True):
        learner.check(norms)
