"""Classes of torch.optim by name: the same steps, exact state without pickle, clear mistakes."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from gymnasium_solver.errors import ConfigError
from gymnasium_solver.training.prepare import build_config
from tests.optimizers import torch_optimizer

OPTIONS: dict[str, dict[str, Any]] = {
    "NAdam": {"betas": [0.8, 0.99], "momentum_decay": 0.01},
    "RAdam": {},
    "Adagrad": {"lr_decay": 0.1},
    "Adadelta": {},
    "Adamax": {},
    "ASGD": {"t0": 3},
    "Rprop": {},
    "Adafactor": {},
    "AdamW": {"amsgrad": True},
    "SGD": {"momentum": 0.9, "nesterov": True},
}
FIELDS: dict[str, Any] = {
    "env_id": "CartPole-v1", "seed": 3, "n_envs": 4, "n_steps": 32, "eval_freq_epochs": None,
    "test_episodes": 2, "optimizer": "NAdam", "optimizer_kwargs": {"betas": [0.9, 0.99]},
}  # fmt: skip


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def gradient(module: nn.Module, params: Sequence[torch.Tensor], step: int) -> torch.Tensor:
    x = torch.randn(16, 3, generator=torch.Generator().manual_seed(step))
    loss = (module(x) - 1.0).square().mean() * 10
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, params)])


@pytest.mark.parametrize("name", list(OPTIONS))
def test_same_steps_as_torch_with_a_changing_learning_rate(name: str) -> None:
    ours, theirs = net(), net()
    own = torch_optimizer(ours, f"torch.optim.{name}", OPTIONS[name], max_grad_norm=0.5)
    params = list(theirs.parameters())
    reference: Any = None
    for step in range(12):
        lr = 0.01 * (1 - step / 12)
        norm = own.step(gradient(ours, own.params, step), lr)
        flat = gradient(theirs, params, step)
        for p, part in zip(params, flat.split([p.numel() for p in params]), strict=True):
            p.grad = part.view_as(p)
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(params, 0.5))
        if reference is None:
            decay = {} if name == "Rprop" else {"weight_decay": 0.0}
            reference = getattr(torch.optim, name)(params, lr=lr, **decay, **OPTIONS[name])
        reference.param_groups[0]["lr"] = lr
        reference.step()
    for a, b in zip(own.params, params, strict=True):
        torch.testing.assert_close(a, b)
    assert own.n_steps == 12
    assert own.params[0].data_ptr() == own.flat.data_ptr()  # still views of the flat vector


@pytest.mark.parametrize("name", list(OPTIONS))
def test_state_and_snapshot_bring_back_the_same_future(name: str) -> None:
    module = net()
    own = torch_optimizer(module, name, OPTIONS[name])

    def train(n: int) -> torch.Tensor:
        for step in range(n):
            own.step(gradient(module, own.params, step), 0.01)
        return own.flat.clone()

    train(3)
    snapshot, state = own.snapshot(), copy.deepcopy(own.state())
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    expected = train(5)
    own.restore(snapshot)
    assert torch.equal(train(5), expected)
    own.flat.copy_(snapshot[0][0])
    fresh = torch_optimizer(module, name, OPTIONS[name])
    fresh.load_state(state)
    assert fresh.n_steps == 3
    own = fresh
    assert torch.equal(train(5), expected)


def test_a_scheduled_weight_decay_applies() -> None:
    module = nn.Linear(2, 1, bias=False)
    own = torch_optimizer(module, "SGD", weight_decay=0.5)
    before = own.flat.clone()
    own.step(torch.zeros(2), 0.1)
    torch.testing.assert_close(own.flat, before * 0.95)
    own.follow({"weight_decay": 0.0})
    before = own.flat.clone()
    own.step(torch.zeros(2), 0.1)
    assert torch.equal(own.flat, before)


@pytest.mark.parametrize(
    ("name", "options", "decay", "why"),
    [
        ("NAdan", {}, 0.0, "no optimiser 'NAdan'. Did you mean NAdam"),
        ("NAdam", {"beta": 1}, 0.0, "NAdam has no 'beta'. Did you mean betas"),
        ("NAdam", {"lr": 1}, 0.0, "lr cannot be set here: set policy_lr"),
        ("NAdam", {"betas": [2.0, 0.9]}, 0.0, "Invalid beta"),
        ("LBFGS", {}, 0.0, "LBFGS evaluates the loss several times"),
        ("Rprop", {}, 0.1, "weight_decay: torch.optim.Rprop has none"),
    ],
)
def test_mistakes(name: str, options: dict[str, Any], decay: float, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        torch_optimizer(net(), name, options, weight_decay=decay)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"optimizer": "adm"}, "or a class of torch.optim such as NAdam. Did you mean adam"),
        ({"optimizer": "adam"}, "optimizer_kwargs are for a class of torch.optim"),
    ],
)
def test_mistakes_in_a_config(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        build_config(FIELDS | {"algo_id": "ppo"} | fields)
