"""Recurrent cores against torch's own modules, run episode by episode."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gymnasium_solver.fast.recorded import LossGradient
from gymnasium_solver.nets.recurrent import Recurrence, RecurrentCore

KINDS = ["gru", "lstm", "rnn"]
N, L, N_IN, DIM = 5, 9, 3, 4


def core_of(kind: Any) -> RecurrentCore:
    core = RecurrentCore(Recurrence(kind, DIM), N_IN, torch.Generator().manual_seed(1))
    with torch.no_grad():  # zero biases would hide a bias that is added twice
        for parameter in core.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.manual_seed(2)))
    return core


def data(seed: int = 0, n: int = N, n_rows: int = L) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(n, n_rows, N_IN)).astype(np.float32))
    is_first = torch.from_numpy(rng.random((n, n_rows)) < 0.25)
    is_first[0] = False  # one sequence without a reset
    return x, is_first


def by_episodes(core: RecurrentCore, x: Tensor, carry: Tensor, is_first: Tensor) -> Tensor:
    """Outputs by torch's module: each sequence alone, cut where episodes start."""
    rows = []
    for i in range(len(x)):
        starts = [t for t in range(1, x.shape[1]) if is_first[i, t]]
        pieces, state = [], carry[i : i + 1]
        for start, stop in zip([0, *starts], [*starts, x.shape[1]], strict=True):
            if is_first[i, start]:
                state = torch.zeros_like(state)
            given: Any = state.unsqueeze(0)
            if core.kind == "lstm":
                given = tuple(half.unsqueeze(0).contiguous() for half in state.chunk(2, 1))
            y, after = core.rnn(x[i, start:stop].unsqueeze(1), given)
            state = torch.cat([half[0] for half in after], 1) if core.kind == "lstm" else after[0]
            pieces.append(y[:, 0])
        rows.append(torch.cat(pieces))
    return torch.stack(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_with_resets_equals_single_episodes(kind: str) -> None:
    core = core_of(kind)
    x, is_first = data()
    carry = torch.randn(N, core.carry_width, generator=torch.manual_seed(3))
    weight = torch.randn(N, L, DIM, generator=torch.manual_seed(4))

    def gradients(outputs: Tensor, given: Tensor) -> list[Tensor]:
        total = (weight * outputs.sin()).sum()
        return [outputs.detach(), *torch.autograd.grad(total, [*core.parameters(), given, start])]

    ours: list[Tensor] = []
    theirs: list[Tensor] = []
    for found, run in ((ours, lambda *a: core(*a)[0]), (theirs, lambda *a: by_episodes(core, *a))):
        given, start = x.clone().requires_grad_(), carry.clone().requires_grad_()
        found += gradients(run(given, start, is_first), given)
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_and_pieces_equal_the_sequence(kind: str) -> None:
    core = core_of(kind)
    x, is_first = data()
    with torch.no_grad():
        whole, last = core(x, torch.zeros(N, core.carry_width), is_first)
        carry, outputs = torch.zeros(N, core.carry_width), []
        for t in range(L):
            y, carry = core.step(x[:, t], carry, is_first[:, t])
            outputs.append(y)
        first, middle = core(x[:, :4], torch.zeros(N, core.carry_width), is_first[:, :4])
        rest, after = core(x[:, 4:], middle, is_first[:, 4:])
    torch.testing.assert_close(torch.stack(outputs, 1), whole)
    torch.testing.assert_close(torch.cat([first, rest], 1), whole)
    for state in (carry, after):
        torch.testing.assert_close(state, last)


@pytest.mark.parametrize("kind", KINDS)
def test_what_came_before_an_episode_has_no_influence(kind: str) -> None:
    core = core_of(kind)
    x, is_first = data()
    is_first[:, 3] = True
    other = x.clone()
    other[:, :3] += 1.0
    with torch.no_grad():
        one, _ = core(x, torch.zeros(N, core.carry_width), is_first)
        two, _ = core(other, torch.ones(N, core.carry_width), is_first)
    assert not torch.equal(one[:, :3], two[:, :3])
    torch.testing.assert_close(one[:, 3:], two[:, 3:], rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_recorded_for_any_number_of_sequences(kind: str) -> None:
    core = core_of(kind)

    def loss(batch: Any, coefficients: Any) -> tuple[Tensor, list[Tensor]]:
        outputs, _ = core(*batch)
        return (outputs * outputs.detach().roll(1, 2)).mean(), []

    recorded = LossGradient(loss, list(core.parameters()), record=True)
    plain = LossGradient(loss, list(core.parameters()), record=False)
    for n in (5, 1, 12):
        x, is_first = data(n, n)
        batch = (x, torch.randn(n, core.carry_width, generator=torch.manual_seed(n)), is_first)
        torch.testing.assert_close(
            recorded(batch, [])[0], plain(batch, [])[0], rtol=1e-4, atol=1e-6
        )
    assert recorded.mode == "recorded"
