"""The flat optimiser follows torch.optim step for step."""

import copy
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.optimizers import flat_optimizer

TORCH = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
}


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def loss_of(module: nn.Module, step: int) -> torch.Tensor:
    x = torch.randn(16, 3, generator=torch.Generator().manual_seed(step))
    return (module(x) - 1.0).square().mean() * 10


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", list(TORCH))
def test_same_steps_as_torch(kind: str, weight_decay: float) -> None:
    ours, theirs = net(), net()
    flat = flat_optimizer(ours, kind, weight_decay=weight_decay, max_grad_norm=0.5)
    close = 1e-3 if kind == "rmsprop" else 1e-5  # its steps magnify rounding
    options = {} if kind == "sgd" else {"eps": 1e-5}
    reference = TORCH[kind](theirs.parameters(), lr=0.0, weight_decay=weight_decay, **options)
    for step in range(20):
        lr = 0.01 * (1 - step / 20)
        grads = torch.autograd.grad(loss_of(ours, step), flat.params)
        norm = flat.step(torch.cat([g.reshape(-1) for g in grads]), lr)
        reference.zero_grad()
        loss_of(theirs, step).backward()
        expected_norm = nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        reference.param_groups[0]["lr"] = lr
        reference.step()
        torch.testing.assert_close(norm, expected_norm, rtol=close, atol=close)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=close, atol=close)


@pytest.mark.parametrize(
    ("kind", "own", "options"),
    [
        ("adam", {"beta1": 0.5, "beta2": 0.9}, {"betas": (0.5, 0.9), "eps": 1e-5}),
        ("sgd", {"momentum": 0.8}, {"momentum": 0.8}),
    ],
)
def test_betas_momentum_and_clipping_by_value_as_torch(
    kind: str, own: dict[str, Any], options: dict[str, Any]
) -> None:
    ours, theirs = net(), net()
    flat = flat_optimizer(ours, kind, max_grad_value=0.05, **own)
    reference = TORCH[kind](theirs.parameters(), lr=0.01, **options)
    for step in range(20):
        grads = torch.autograd.grad(loss_of(ours, step), flat.params)
        flat.step(torch.cat([g.reshape(-1) for g in grads]), 0.01)
        reference.zero_grad()
        loss_of(theirs, step).backward()
        nn.utils.clip_grad_value_(theirs.parameters(), 0.05)
        reference.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_rmsprop_as_tensorflow_has_it() -> None:
    """The mean square starts at 1, and epsilon is inside the root."""
    module = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, -2.0]]))
    flat = flat_optimizer(module, "rmsprop_tf", eps=0.1)
    weight, square = np.array([1.0, -2.0]), np.ones(2)
    for step in range(4):
        grad = np.array([0.5 * step - 0.3, 2.0])
        flat.step(torch.tensor(grad, dtype=torch.float32), 0.1)
        square = 0.99 * square + 0.01 * grad**2
        weight = weight - 0.1 * grad / np.sqrt(square + 0.1)
    np.testing.assert_allclose(module.weight.detach().numpy()[0], weight, rtol=1e-5)
    again = flat_optimizer(module, "rmsprop_tf", eps=0.1)
    again.load_state(flat.state())
    assert torch.equal(again.mean_square, flat.mean_square)


def test_state_and_snapshot_bring_back_the_same_future() -> None:
    module = net()
    flat = flat_optimizer(module, "adam")

    def train(n: int) -> torch.Tensor:
        for step in range(n):
            grads = torch.autograd.grad(loss_of(module, step), flat.params)
            flat.step(torch.cat([g.reshape(-1) for g in grads]), 0.01)
        return flat.flat.clone()

    train(3)
    snapshot, state = flat.snapshot(), copy.deepcopy(flat.state())
    expected = train(5)
    flat.restore(snapshot)
    assert torch.equal(train(5), expected)
    flat.flat.copy_(snapshot[0][0])
    flat.load_state(state)
    assert torch.equal(train(5), expected)


def test_torchs_compiler_is_not_imported_to_train() -> None:
    """It takes more than a second of every start."""
    import subprocess

    code = (
        "import sys, numpy as np\n"
        "from gymnasium import spaces\n"
        "from gymnasium_solver.algos.ppo import PPO, PPOConfig\n"
        "from gymnasium_solver.data.rollout import Rollout\n"
        "from gymnasium_solver.spaces.actions import action_kind\n"
        "o, a = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)\n"
        "c = PPOConfig(env_id='x', algo_id='ppo', n_envs=2, n_steps=8, batch_size=8)\n"
        "r = Rollout.allocate(8, 2, o, action_kind(a), n_outputs=2); r.valid[:] = True\n"
        "PPO(c, o, a, seed=0).update(r, 0, 100)\n"
        "print([m for m in ('torch._dynamo', 'sympy') if m in sys.modules])\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
