"""PPO on CartPole as one jitted JAX program: environments, rollout, GAE, passes. Written from
scratch with jax alone, in the manner of PureJaxRL, to compare with our device environments.

    python -m benchmarks.peers.jax_ppo --n-envs 1024 --seconds 5
    python -m benchmarks.peers.jax_ppo --n-envs 1024 --solve

Prints one JSON line. `setup_s` is the time from the start of the process's own code to the end of
the first call, which compiles; `steps_per_s` is of the calls after it. As many iterations are one
call as take about half a second, so that launches cost nothing. The clock is real: the program's
outputs are waited for. `--solve`: the seconds from the start until 100 greedy episodes, begun for
the test, have a mean return of 475; the program is tested every `--test-every` iterations.

The work is that of benchmarks/device_envs.py: two networks of 2x64 tanh units, `--epochs` passes
over shuffled minibatches, Adam with clipped gradients, GAE, advantages standardised over a rollout.
Values are kept from acting, and a time limit counts as a termination, as usual in such programs.
"""

import argparse
import json
import time
from functools import partial
from typing import Any, NamedTuple

STARTED = time.perf_counter()

import jax  # noqa: E402  (the import is part of the set-up)
import jax.numpy as jnp  # noqa: E402

LIMIT = 500


class Task(NamedTuple):
    n_envs: int
    n_steps: int
    n_epochs: int
    n_minibatches: int
    lr: float
    gamma: float
    gae_lambda: float
    clip_range: float = 0.2
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5


# -- CartPole ---------------------------------------------------------------------------------


def first_states(key: Any, n: int) -> Any:
    return jax.random.uniform(key, (n, 4), minval=-0.05, maxval=0.05)


def advance(x: Any, actions: Any) -> tuple[Any, Any]:
    """The states after a step, and whether the episodes terminated."""
    _, speed, angle, spin = x.T
    push = jnp.where(actions == 1, 10.0, -10.0)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    pull = (push + 0.05 * spin**2 * sin) / 1.1
    turn = (9.8 * sin - cos * pull) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    rush = pull - 0.05 * turn * cos / 1.1
    x = x + 0.02 * jnp.stack([speed, rush, spin, turn], 1)
    return x, (jnp.abs(x[:, 0]) > 2.4) | (jnp.abs(x[:, 2]) > 0.20943951)


# -- networks and Adam ------------------------------------------------------------------------


def new_layer(key: Any, n_in: int, n_out: int, gain: float) -> tuple[Any, Any]:
    return jax.nn.initializers.orthogonal(gain)(key, (n_in, n_out)), jnp.zeros(n_out)


def new_net(key: Any, n_out: int, gain: float) -> list[tuple[Any, Any]]:
    keys = jax.random.split(key, 3)
    sizes = [(4, 64, 2**0.5), (64, 64, 2**0.5), (64, n_out, gain)]
    return [new_layer(k, *size) for k, size in zip(keys, sizes, strict=True)]


def forward(layers: Any, x: Any) -> Any:
    for weight, bias in layers[:-1]:
        x = jnp.tanh(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


def adam(params: Any, grads: Any, moments: Any, task: Task) -> tuple[Any, Any]:
    """One step with gradients clipped by their norm."""
    squares = sum(jnp.sum(g**2) for g in jax.tree.leaves(grads))
    factor = jnp.minimum(1.0, task.max_grad_norm / (jnp.sqrt(squares) + 1e-6))
    grads = jax.tree.map(lambda g: g * factor, grads)
    mean, square, count = moments
    count = count + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
    square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g**2, square, grads)

    def moved(p: Any, m: Any, s: Any) -> Any:
        return p - task.lr * (m / (1 - 0.9**count)) / (jnp.sqrt(s / (1 - 0.999**count)) + 1e-5)

    return jax.tree.map(moved, params, mean, square), (mean, square, count)


# -- PPO --------------------------------------------------------------------------------------


def loss(params: Any, batch: Any, task: Task) -> Any:
    obs, actions, old, advantage, returns = batch
    log_probs = jax.nn.log_softmax(forward(params["actor"], obs))
    log_prob = jnp.take_along_axis(log_probs, actions[:, None], 1)[:, 0]
    ratio = jnp.exp(log_prob - old)
    clipped = jnp.clip(ratio, 1 - task.clip_range, 1 + task.clip_range)
    policy = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
    value = jnp.square(forward(params["critic"], obs)[:, 0] - returns).mean()
    return policy + task.vf_coef * value


def rolled(params: Any, envs: Any, key: Any, task: Task) -> tuple[Any, Any]:
    """A rollout of `n_steps` rows: the envs after it, and its columns."""

    def row(envs: Any, key: Any) -> tuple[Any, Any]:
        x, lengths = envs
        act_key, reset_key = jax.random.split(key)
        logits = forward(params["actor"], x)
        actions = jax.random.categorical(act_key, logits)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), actions[:, None], 1)[:, 0]
        value = forward(params["critic"], x)[:, 0]
        after, terminated = advance(x, actions)
        lengths = lengths + 1
        done = terminated | (lengths >= LIMIT)
        after = jnp.where(done[:, None], first_states(reset_key, len(x)), after)
        columns = (x, actions, log_prob, value, jnp.ones(len(x)), done)
        return (after, jnp.where(done, 0, lengths)), columns

    return jax.lax.scan(row, envs, jax.random.split(key, task.n_steps))


def iteration(state: Any, key: Any, task: Task) -> tuple[Any, Any]:
    params, moments, envs = state
    roll_key, shuffle_key = jax.random.split(key)
    envs, (obs, actions, log_prob, value, reward, done) = rolled(params, envs, roll_key, task)
    last = forward(params["critic"], envs[0])[:, 0]

    def back(carry: Any, row: Any) -> tuple[Any, Any]:
        advantage, following = carry
        reward, value, done = row
        delta = reward + task.gamma * following * (1 - done) - value
        advantage = delta + task.gamma * task.gae_lambda * (1 - done) * advantage
        return (advantage, value), advantage

    rows = (reward, value, done.astype(jnp.float32))
    _, advantage = jax.lax.scan(back, (jnp.zeros_like(last), last), rows, reverse=True)
    returns = advantage + value
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    columns = (obs, actions, log_prob, advantage, returns)
    batch = jax.tree.map(lambda c: c.reshape(-1, *c.shape[2:]), columns)

    def one_pass(carry: Any, key: Any) -> tuple[Any, Any]:
        order = jax.random.permutation(key, len(batch[1]))
        parts = jax.tree.map(
            lambda c: c[order].reshape(task.n_minibatches, -1, *c.shape[1:]), batch
        )

        def step(carry: Any, part: Any) -> tuple[Any, Any]:
            params, moments = carry
            return adam(params, jax.grad(loss)(params, part, task), moments, task), None

        return jax.lax.scan(step, carry, parts)

    keys = jax.random.split(shuffle_key, task.n_epochs)
    (params, moments), _ = jax.lax.scan(one_pass, (params, moments), keys)
    return (params, moments, envs), None


@partial(jax.jit, static_argnames=("task", "n"))
def iterations(state: Any, key: Any, task: Task, n: int) -> Any:
    return jax.lax.scan(lambda s, k: iteration(s, k, task), state, jax.random.split(key, n))[0]


@partial(jax.jit, static_argnames=("task",))
def start(key: Any, task: Task) -> Any:
    keys = jax.random.split(key, 3)
    params = {"actor": new_net(keys[0], 2, 0.01), "critic": new_net(keys[1], 1, 1.0)}
    zeros = jax.tree.map(jnp.zeros_like, params)
    envs = first_states(keys[2], task.n_envs), jnp.zeros(task.n_envs, jnp.int32)
    return params, (zeros, zeros, jnp.zeros(())), envs


@jax.jit
def tested(params: Any, key: Any) -> Any:
    """The mean return of 100 greedy episodes."""

    def row(carry: Any, _: Any) -> tuple[Any, Any]:
        x, alive, total = carry
        x, terminated = advance(x, forward(params["actor"], x).argmax(1))
        return (x, alive & ~terminated, total + alive), None

    first = first_states(key, 100), jnp.ones(100, bool), jnp.zeros(100)
    return jax.lax.scan(row, first, None, LIMIT)[0][2].mean()


# -- measuring --------------------------------------------------------------------------------


def measure(task: Task, seconds: float, seed: int) -> dict[str, Any]:
    key, per_iteration = jax.random.key(seed), task.n_envs * task.n_steps
    state = jax.block_until_ready(iterations(start(key, task), key, task, 1))
    setup_s = time.perf_counter() - STARTED
    began = time.perf_counter()
    for i in range(3):
        state = iterations(state, jax.random.fold_in(key, i), task, 1)
    jax.block_until_ready(state)
    n = max(1, round(0.5 / ((time.perf_counter() - began) / 3)))
    state = jax.block_until_ready(iterations(state, key, task, n))  # compiles again
    rates = []
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        before = time.perf_counter()
        state = jax.block_until_ready(iterations(state, jax.random.fold_in(key, 9), task, n))
        rates.append(n * per_iteration / (time.perf_counter() - before))
    rates.sort()
    return {"steps_per_s": rates[len(rates) // 2], "setup_s": setup_s}


def solve(task: Task, test_every: int, most_steps: int, seed: int) -> dict[str, Any]:
    key = jax.random.key(seed)
    state, done, score = start(key, task), 0, 0.0
    while score < 475 and done * task.n_envs * task.n_steps < most_steps:
        state = iterations(state, jax.random.fold_in(key, done), task, test_every)
        done += test_every
        score = float(tested(state[0], jax.random.fold_in(key, 10**6 + done)))
    return {
        "solve_s": time.perf_counter() - STARTED if score >= 475 else None,
        "score": score,
        "env_steps": done * task.n_envs * task.n_steps,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--n-envs", type=int, default=1024)
    parser.add_argument("--n-steps", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--minibatches", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--gamma", type=float, default=0.98)
    parser.add_argument("--gae-lambda", type=float, default=0.8)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--solve", action="store_true")
    parser.add_argument("--test-every", type=int, default=2)
    parser.add_argument("--most-steps", type=int, default=20_000_000)
    args = parser.parse_args()
    task = Task(
        args.n_envs, args.n_steps, args.epochs, args.minibatches, args.lr, args.gamma,
        args.gae_lambda,
    )  # fmt: skip
    if args.solve:
        found = solve(task, args.test_every, args.most_steps, args.seed)
    else:
        found = measure(task, args.seconds, args.seed)
    device = jax.devices()[0].device_kind
    print(json.dumps({**found, "device": device, "jax": jax.__version__}))


if __name__ == "__main__":
    main()
