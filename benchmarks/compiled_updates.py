"""One gradient of a loss as torch, NumPy and compiled C, against the arithmetic it needs.

    .venv/bin/python -m benchmarks.compiled_updates

PPO with two tanh networks 2x64 and a batch of 256, DQN with 2x256 and a batch of 64: the
sizes of the training benchmark. The limit is the time of the multiplications of the matrix products
at the speed of one 256 x 256 x 256 product in torch, on one thread. Then the products of 256 x 256
layers beside torch's.
"""

import time
from collections.abc import Callable
from ctypes import CDLL, c_long, c_void_p
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.fast import recorded
from gymnasium_solver.fast.native.build import can_compile
from gymnasium_solver.fast.native.program import NativeGradient, set_threads

REPEATS = 300


def net(sizes: list[int], activation: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes[:-1]):
        layers += [nn.Linear(n_in, n_out), activation()]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


def multiplications(*sizes: list[int]) -> int:
    return sum(a * b for own in sizes for a, b in pairwise(own))


def ppo() -> tuple[Any, list[Tensor], list[Tensor], list[float], list[Tensor], int]:
    n, actor, critic = 256, net([4, 64, 64, 2], nn.Tanh), net([4, 64, 64, 1], nn.Tanh)

    def loss(batch: Any, c: Any) -> tuple[Tensor, list[Tensor]]:
        obs, actions, old, advantage, returns = batch
        log_prob = torch.log_softmax(actor(obs), 1).gather(1, actions[:, None]).squeeze(1)
        ratio = (log_prob - old).exp()
        clipped = ratio.clamp(1 - c[0], 1 + c[0])
        gain = torch.min(ratio * advantage, clipped * advantage).mean()
        return -gain + c[1] * (critic(obs).squeeze(1) - returns).square().mean(), []

    batch = [
        torch.randn(n, 4), torch.randint(2, (n,)), torch.randn(n) * 0.1 - 0.7, torch.randn(n),
        torch.randn(n),
    ]  # fmt: skip
    work = 3 * n * multiplications([4, 64, 64, 2], [4, 64, 64, 1])
    return loss, [*actor.parameters(), *critic.parameters()], batch, [0.2, 0.5], [], work


def dqn() -> tuple[Any, list[Tensor], list[Tensor], list[float], list[Tensor], int]:
    n, q, target = 64, net([4, 256, 256, 2], nn.ReLU), net([4, 256, 256, 2], nn.ReLU)

    def loss(batch: Any, c: Any) -> tuple[Tensor, list[Tensor]]:
        obs, actions, reward, next_obs = batch
        with torch.no_grad():
            wanted = reward + 0.99 * target(next_obs).amax(1)
        return (q(obs).gather(1, actions[:, None]).squeeze(1) - wanted).square().mean(), []

    batch = [torch.randn(n, 4), torch.randint(2, (n,)), torch.randn(n), torch.randn(n, 4)]
    work = 4 * n * multiplications([4, 256, 256, 2])
    return loss, list(q.parameters()), batch, [], list(target.parameters()), work


def product_rates(library: CDLL) -> list[tuple[str, float, float]]:
    """GFLOP/s of a forward and of a weight product of 256 x 256 layers, compiled and in torch."""
    found = []
    weights, packed = torch.randn(256, 256), torch.empty(256 * 256)
    for n in (64, 128, 256):
        x, grad, out = torch.randn(n, 256), torch.randn(n, 256), torch.empty(256 * 256)
        a, b, c = (t.data_ptr() for t in (x, packed, out))
        library.gsolve_pack(*map(c_long, (256, 256)), c_void_p(weights.data_ptr()),
                            *map(c_long, (1, 256)), c_void_p(b))  # fmt: skip
        forward = partial(
            library.gsolve_matmul, *map(c_long, (n, 256, 256)), c_void_p(a),
            *map(c_long, (256, 1)), c_void_p(b), c_long(0), c_void_p(c), c_long(256), None, 0,
            None,
        )  # fmt: skip
        for_weights = partial(
            library.gsolve_matmul, *map(c_long, (256, 256, n)), c_void_p(a),
            *map(c_long, (1, 256)), c_void_p(grad.data_ptr()), c_long(256), c_void_p(c),
            c_long(256), None, 0, None,
        )  # fmt: skip
        work = 2 * n * 256 * 256 / 1e3  # kFLOP: by microseconds it is GFLOP/s
        pairs = {
            "forward": (forward, partial(torch.mm, x, weights.T)),
            "of the weights": (for_weights, partial(torch.mm, x.T, grad)),
        }
        for kind, (own, torchs) in pairs.items():
            found.append((f"{kind}, {n} samples", work / median(own), work / median(torchs)))
    return found


def median(run: Callable[[], Any]) -> float:
    """Microseconds."""
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return float(np.median(found)) * 1e6


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    a = torch.randn(256, 256)
    speed = 256**3 / median(lambda: a @ a)  # multiplications a microsecond
    print("| loss | torch | NumPy | C, one thread | C, two | the products alone |")
    print("|---|---|---|---|---|---|")
    for name, case in (("PPO 2x64, batch 256", ppo), ("DQN 2x256, batch 64", dqn)):
        loss, params, batch, numbers, constants, work = case()
        cells = [median(partial(recorded.eager, loss, params, batch, numbers))]
        forms: list[recorded.Form] = ["recorded", "compiled"] if can_compile() else ["recorded"]
        for form in forms:
            gradient = recorded.record_gradient(loss, params, batch, numbers, constants, form=form)
            assert gradient is not None
            for threads in (1, 2) if form == "compiled" else (1,):
                before = set_threads(threads)
                cells.append(median(partial(gradient, batch, numbers)))
                set_threads(before)
        cells.append(work / speed)
        print(f"| {name} | " + " | ".join(f"{us:,.0f} us" for us in cells) + " |")
    if isinstance(gradient, NativeGradient):
        print("\n| product, 256 x 256 layers | C, GFLOP/s | torch |")
        print("|---|---|---|")
        for name, own, torchs in product_rates(gradient.program.compiled):
            print(f"| {name} | {own:,.0f} | {torchs:,.0f} |")


if __name__ == "__main__":
    main()
