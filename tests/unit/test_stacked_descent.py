"""Optimiser steps of several learners as one program: the weights and moments of each alone."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gymnasium_solver.fast import stacked
from gymnasium_solver.fast.recorded import LossGradient, eager
from gymnasium_solver.fast.stacked_descent import STEPS_A_TRANSFER, Asked, Descents
from tests.optimizers import flat_optimizer

N_ROWS, N_TAKEN = 24, 8
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no GPU"))]  # fmt: skip


class Learner:
    def __init__(self, seed: int, device: str, n_steps: int, **settings: Any) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).to(device)
        for p in self.net.parameters():
            p.data.copy_(torch.randn(p.shape, generator=generator))
        self.scale = torch.full((), 1.0 + seed, device=device)  # read by the loss, not learnt
        self.optimizer = flat_optimizer(self.net, settings.pop("kind", "adam"), **settings)
        self.gradient = LossGradient(
            self.loss, self.optimizer.params, record=device == "cuda", constants=[self.scale]
        )
        n = N_ROWS - seed  # reset rows are not in the batch
        self.batch = {
            "x": torch.randn(n, 3, generator=generator).to(device),
            "y": torch.randn(n, generator=generator).to(device),
        }
        rng = np.random.default_rng(seed)
        self.rows = np.stack([rng.integers(0, n, N_TAKEN) for _ in range(n_steps)])
        self.coefficients, self.lr = [0.5 + seed], 0.001 * (1 + seed)

    def loss(self, batch: Any, coefficients: Any) -> tuple[Tensor, list[Tensor]]:
        error = self.net(batch["x"])[:, 0] * self.scale - batch["y"]
        return coefficients[0] * error.square().mean(), []

    def item(self, n_learners: int = 4) -> Asked:
        return Asked(self.gradient, self.optimizer, self.batch, N_ROWS, self.rows,
                     self.coefficients, self.lr, n_learners)  # fmt: skip

    def alone(self) -> Tensor:
        norms = []
        for rows in self.rows:
            part = {name: column[torch.from_numpy(rows)] for name, column in self.batch.items()}
            grad, *_ = eager(self.loss, self.optimizer.params, part, self.coefficients)
            norms.append(self.optimizer.step(grad, self.lr).reshape(()))
        return torch.stack(norms)


def check(together: Learner, alone: Learner) -> None:
    ours, theirs = together.optimizer, alone.optimizer
    assert ours.n_steps == theirs.n_steps
    for name in ("flat", "mean", "mean_square"):
        a, b = getattr(ours, name), getattr(theirs, name)
        torch.testing.assert_close(a, b, rtol=1e-3, atol=3e-5)  # Adam amplifies rounding


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "settings",
    [
        {"max_grad_norm": 0.5},
        {"kind": "adamw", "weight_decay": 0.1},
        {"weight_decay": 0.1, "max_grad_value": 0.05, "max_grad_norm": 0.1, "beta1": 0.5},
    ],
    ids=["norm", "adamw", "all"],
)
def test_steps_are_those_of_each_learner_alone(settings: dict[str, Any], device: str) -> None:
    n_steps = STEPS_A_TRANSFER + 5
    together = [Learner(i, device, n_steps, **settings) for i in range(3)]
    alone = [Learner(i, device, n_steps, **settings) for i in range(3)]
    work = Descents()
    for turn in range(2):
        taken = range(3) if turn == 0 else (2, 0)  # one has left, in another order
        results = work([together[i].item() for i in taken])
        for i, norms in zip(taken, results, strict=True):
            assert norms is not None
            torch.testing.assert_close(norms, alone[i].alone(), rtol=1e-3, atol=3e-5)
            check(together[i], alone[i])
    assert len(work.programs) == 1


def test_learners_with_other_settings_or_batches_are_not_mixed() -> None:
    work, one = Descents(), Learner(0, "cpu", 4)
    assert work.key(one.item()) == work.key(Learner(1, "cpu", 4).item())
    assert work.key(one.item()) != work.key(Learner(1, "cpu", 3).item())
    assert work.key(one.item()) != work.key(Learner(1, "cpu", 4, max_grad_norm=1.0).item())


def test_a_loss_that_cannot_be_stacked_leaves_everything_as_it_was() -> None:
    class Odd(Learner):
        def loss(self, batch: Any, coefficients: Any) -> tuple[Tensor, list[Tensor]]:
            total, outputs = super().loss(batch, coefficients)
            return (total if float(total.detach()) else total * 2), outputs  # depends on data

    learners = [Odd(i, "cpu", 4) for i in range(2)]
    before = [one.optimizer.flat.clone() for one in learners]
    assert Descents()([one.item() for one in learners]) == [None, None]
    for one, weights in zip(learners, before, strict=True):
        assert torch.equal(one.optimizer.flat, weights)
        assert one.optimizer.n_steps == 0


def test_a_program_that_disagrees_with_torch_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from gymnasium_solver.fast import stacked_descent

    plain = stacked_descent._Program.gradient
    monkeypatch.setattr(
        stacked_descent._Program, "gradient", lambda self: [2 * t for t in plain(self)]
    )
    learners = [Learner(i, "cpu", 4) for i in range(2)]
    assert Descents()([one.item() for one in learners]) == [None, None]
    assert learners[0].optimizer.n_steps == 0


class Doubles:
    name = "doubles"

    def alone(self, x: int) -> int:
        return 2 * x


@pytest.mark.parametrize(("wrong", "n_stacked"), [((1, 1), 0), ((2, 0), 1), (None, 4)])
def test_results_of_a_stack_are_compared_for_every_learner(
    wrong: tuple[int, int] | None, n_stacked: int
) -> None:
    """The program errs in a call (counted from 1), for one of the learners."""
    calls = []

    class Work(stacked._Joint):
        def _program(self, items: Any) -> Any:
            def program(items: Any) -> list[int]:
                calls.append(items)
                return [2 * x + ((len(calls), i) == wrong) for i, (_, x) in enumerate(items)]

            return program

        def _is_right(self, program: Any, item: Any, found: Any) -> bool:
            return bool(found == item[0].alone(*item[1:]))

    work, items = Work(), [(Doubles(), 3), (Doubles(), 4)]
    assert [work._of(items) for _ in range(4)] == [[6, 8]] * 4
    assert len(calls) == (4 if wrong is None else n_stacked + 1)
