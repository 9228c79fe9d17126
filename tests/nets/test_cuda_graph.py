"""Graphs on a GPU give what plain calls give, and what cannot be captured still runs."""

import pytest
import torch
from torch import nn

from gymnasium_solver.fast.cuda_graph import MAX_GRAPHS, N_PLAIN_CALLS, Graphed
from gymnasium_solver.fast.recorded import LossGradient
from tests.optimizers import flat_optimizer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def numbers(n: int, seed: int) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed)).cuda()


def test_replays_read_the_inputs_given():
    graphed = Graphed(lambda inputs: [inputs[0] * 2 + inputs[1]])
    for seed in range(N_PLAIN_CALLS + 4):
        x, y = numbers(5, seed), numbers(5, seed + 100)
        assert torch.equal(graphed([x, y])[0], x * 2 + y)
    assert graphed._captures


def test_every_shape_has_its_graph_up_to_a_number():
    graphed = Graphed(lambda inputs: [inputs[0].sum()])
    for _ in range(N_PLAIN_CALLS + 2):
        for n in range(1, MAX_GRAPHS + 3):
            x = numbers(n, n)
            assert torch.equal(graphed([x])[0], x.sum())
    assert len(graphed._captures) == MAX_GRAPHS


def test_what_waits_for_the_gpu_runs_plainly():
    graphed = Graphed(lambda inputs: [inputs[0] * float(inputs[0].sum())])
    for seed in range(N_PLAIN_CALLS + 3):
        x = numbers(4, seed)
        assert torch.allclose(graphed([x])[0], x * x.sum())
    assert graphed.failure


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)).cuda()


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd"])
def test_training_is_the_same_with_and_without_graphs(kind):
    weights = []
    for record in (False, True):
        module = net()
        optimizer = flat_optimizer(module, kind, max_grad_norm=0.5, weight_decay=0.01)
        if not record:
            optimizer._graphed = None

        def loss(columns, coefficients, module=module):
            x, y = columns
            error = (module(x).squeeze(1) - y).square().mean()
            return coefficients[0] * error, [error]

        gradient = LossGradient(loss, optimizer.params, record=record)
        for seed in range(12):
            x, y = numbers(8 * 4, seed).view(8, 4), numbers(8, seed + 50)
            grad, _ = gradient([x, y], [0.5 + seed // 6])  # a coefficient that changes
            optimizer.step(grad, 0.01 / (1 + seed))
        weights.append(optimizer.flat.clone())
    assert torch.allclose(weights[0], weights[1], rtol=1e-5, atol=1e-6)
