"""How often verdicts and intervals are right, by simulation: the tables of docs/statistics.md.

    python -m benchmarks.verdicts          # a minute or two

A simulated experiment draws the scores of all seeds from one of four distributions; the rules are
those of `gsolve compare`, called on many experiments at a time.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from gymnasium_solver.bench import harness
from gymnasium_solver.experiments import statistics as stats
from gymnasium_solver.experiments.statistics import Array, Metric

NAME = "verdicts"
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]


def _saturating(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """A game with a highest score that many seeds reach, such as CartPole's 500."""
    return np.minimum(500.0, rng.normal(490.0, 40.0, shape))


def _bimodal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Seeds that either solve the game or do not."""
    return (rng.random(shape) < 0.5) + rng.normal(0.0, 0.1, shape)


DISTRIBUTIONS: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "saturating": _saturating,
    "bimodal": _bimodal,
    "lognormal": lambda rng, shape: rng.lognormal(size=shape),
}
METRICS: dict[str, Metric] = {"IQM": stats.iqm, "mean": stats.mean, "median": stats.median}
SEEDS = (3, 4, 5, 7, 10, 20)
ABLATIONS = (1, 5)


def false_verdicts(draw: Draw, n: int, ablations: int, rounds: int, seed: int = 0) -> float:
    """Share of experiments with a false verdict: a baseline and equal ablations, n seeds each."""
    rng = np.random.default_rng(seed)
    baseline, others = draw(rng, (rounds, 1, n)), draw(rng, (rounds, ablations, n))
    p = stats.welch(others, np.broadcast_to(baseline, others.shape))
    return float((p.min(axis=1) * ablations <= 1 - stats.LEVEL).mean())  # Holm's first step


def seen(effect: float, n: int, rounds: int, seed: int = 0) -> float:
    """Share of experiments that find the better of two groups: normal scores that differ by
    `effect` standard deviations."""
    rng = np.random.default_rng(seed)
    ours, theirs = rng.normal(effect, 1.0, (rounds, n)), rng.normal(size=(rounds, n))
    is_better = ours.mean(axis=1) > theirs.mean(axis=1)
    return float(((stats.welch(ours, theirs) <= 1 - stats.LEVEL) & is_better).mean())


def coverage(draw: Draw, metric: Metric, n: int, rounds: int, repeats: int = 1_000) -> float:
    """Share of the 95 % intervals that hold the true value."""
    rng = np.random.default_rng(n)
    truth = float(metric(draw(np.random.default_rng(1), (1_000_000, 1))))
    scores = draw(rng, (rounds, n))
    found = [stats.interval(row, metric, repeats=repeats, seed=i) for i, row in enumerate(scores)]
    return float(np.mean([one.low <= truth <= one.high for one in found]))


def promised(effect: float, rounds: int) -> dict[str, float]:
    """How many seeds "would tell" such a difference, and how often that many do."""
    pair = np.array([-1.0, 1.0]) / 2**0.5  # with a standard deviation of 1
    n = stats.seeds_needed(pair + effect, pair) or 0
    return {"seeds": n, "power": seen(effect, n, rounds)}


def measure() -> dict[str, Any]:
    found: dict[str, Any] = {"benchmark": NAME, "false": {}, "coverage": {}}
    for name, draw in DISTRIBUTIONS.items():
        found["false"][name] = {
            str(k): {str(n): false_verdicts(draw, n, k, 40_000) for n in SEEDS} for k in ABLATIONS
        }
    effects = (1, 1.5, 2)
    found["power"] = {str(e): {str(n): seen(e, n, 20_000) for n in SEEDS} for e in effects}
    found["needed"] = {str(e): promised(e, 20_000) for e in effects}
    for title, metric in METRICS.items():
        found["coverage"][title] = {
            name: {str(n): coverage(draw, metric, n, 2_000) for n in SEEDS}
            for name, draw in DISTRIBUTIONS.items()
        }
    return harness.header("python -m benchmarks.verdicts") | found


def markdown(result: dict[str, Any]) -> str:
    return (
        "\n\n".join(["# Verdicts and intervals", harness.describe(result), tables(result)]) + "\n"
    )


def tables(found: dict[str, Any]) -> str:
    """The tables of docs/statistics.md."""
    heads = "| | " + " | ".join(f"{n} seeds" for n in SEEDS) + " |\n" + "| --- " * (len(SEEDS) + 1)

    def line(name: str, row: dict[str, float]) -> str:
        return f"| {name} | " + " | ".join(f"{row[str(n)] * 100:.1f} %" for n in SEEDS) + " |"

    def table(title: str, rows: list[str]) -> str:
        return "\n".join([title, "", heads + "|", *rows])

    words = {"1": "one comparison", "5": "five ablations"}
    parts = [
        table(
            "Experiments with a false verdict, where all groups are equal:",
            [line(f"{name}, {words[k]}", row) for name, by in found["false"].items()
             for k, row in by.items()],
        ),
        table(
            "Experiments in which the better one of two groups is found (normal scores):",
            [line(f"{effect} standard deviations", row) for effect, row in found["power"].items()],
        ),
    ]  # fmt: skip
    told = [f"{e} standard deviations: {row['seeds']} seeds, power {row['power']:.0%}"
            for e, row in found["needed"].items()]  # fmt: skip
    parts.append(f"About N seeds would tell: {'; '.join(told)}.")
    parts += [
        table(f"Coverage of the 95 % interval of the {metric}:",
              [line(name, row) for name, row in by.items()])
        for metric, by in found["coverage"].items()
    ]  # fmt: skip
    return "\n\n".join(parts)


def main() -> None:
    result = measure()
    harness.write(harness.ROOT / "benchmarks/results", NAME, result, markdown(result))
    print(tables(result))


if __name__ == "__main__":
    main()
