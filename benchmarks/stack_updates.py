"""One learner against S stacked ones: a gradient, an optimiser step and acting, in microseconds.

    python -m benchmarks.stack_updates          # on the GPU if there is one, else on the CPU

It needs torch and NumPy only. It also checks that the stacked results are those of each learner
alone, and prints the largest difference.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gymnasium_solver.fast.forward import Inference
from gymnasium_solver.fast.optimizer import FlatOptimizer, Group
from gymnasium_solver.fast.recorded import LossGradient
from gymnasium_solver.fast.stacked import Gradients, Inferences


class Net(nn.Module):
    """Actor and critic of PPO on CartPole, with its loss."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.actor_layers, self.critic_layers = self._mlp(2), self._mlp(1)
        self.register_buffer("mean", torch.randn(4))

    def _mlp(self, n_out: int) -> nn.Sequential:
        hidden = [nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()]
        return nn.Sequential(*hidden, nn.Linear(64, n_out))

    def actor(self, obs: Tensor) -> Tensor:
        out: Tensor = self.actor_layers(obs - self.mean)
        return out

    def loss(
        self, batch: Sequence[Tensor], coefficients: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        obs, actions, log_prob, advantage, returns = batch
        clip_range, vf_coef = coefficients
        now = torch.log_softmax(self.actor(obs), -1).gather(1, actions[:, None]).squeeze(1)
        ratio = (now - log_prob).exp()
        clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
        gain = torch.min(ratio * advantage, clipped * advantage).mean()
        value = self.critic_layers(obs - self.mean).squeeze(1)
        return vf_coef * (value - returns).square().mean() - gain, [ratio.mean()]


def batch(n: int, device: str) -> tuple[Tensor, ...]:
    rows = [torch.randn(n, 4), torch.randint(0, 2, (n,)), -torch.rand(n), *torch.randn(2, n)]
    return tuple(column.to(device) for column in rows)


def microseconds(run: Callable[[], Any], device: str, repeats: int = 200) -> float:
    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(10):
        run()
    wait()
    began = time.perf_counter()
    for _ in range(repeats):
        run()
    wait()
    return (time.perf_counter() - began) / repeats * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--learners", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    device, n = args.device, args.learners
    torch.set_num_threads(1)
    nets = [Net().to(device) for _ in range(n)]
    optimizers = [FlatOptimizer([Group("net", net)], max_grad_norm=0.5) for net in nets]
    gradients = [
        LossGradient(net.loss, optimizer.params, record=True, constants=[net.mean])
        for net, optimizer in zip(nets, optimizers, strict=True)
    ]
    items = [(g, batch(args.batch_size, device), [0.2 - 0.01 * i, 0.5])
             for i, g in enumerate(gradients)]  # fmt: skip
    stacked = Gradients()
    for _ in range(5):  # a CUDA graph is captured after some calls
        together = stacked(items)
        alone = [[t.clone() for t in g.alone(b, c)] for g, b, c in items]
    pairs = zip(together, alone, strict=True)
    differences = [float((x - y).abs().max()) for a, b in pairs for x, y in zip(a, b, strict=True)]
    modes = {name: p and p.gradient.mode for name, p in stacked.programs.items()}
    print(f"{device}, {n} learners: largest difference {max(differences):.1e}, programs {modes}")

    def step(learners: int) -> None:
        for optimizer, (grad, *_) in zip(optimizers[:learners], alone, strict=False):
            optimizer.step(grad, 1e-9)

    acting = [Inference(net.actor, net, record=True) for net in nets]
    obs = [torch.randn(8, 4, device=device) for _ in nets]
    given = [
        (one, (x if device == "cuda" else x.numpy(),)) for one, x in zip(acting, obs, strict=True)
    ]
    inferences = Inferences()
    for _ in range(5):
        outputs = inferences(given)
    apart = [
        np.abs(out[0] - one.alone(x)[0]).max() for out, (one, x) in zip(outputs, given, strict=True)
    ]
    print(f"acting: largest difference {max(apart):.1e}")
    one, x = given[0]
    rows = {
        "gradient": (lambda: gradients[0].alone(*items[0][1:]), lambda: stacked(items)),
        "optimiser": (lambda: step(1), lambda: step(n)),
        "acting, 8 envs": (lambda: one.alone(x), lambda: inferences(given)),
    }
    for name, (single, many) in rows.items():
        a, b = microseconds(single, device), microseconds(many, device)
        print(f"{name:16} one {a:8.0f} us   {n} stacked {b:8.0f} us   ratio {b / a:5.2f}")


if __name__ == "__main__":
    main()
