"""Units, order and noise of an environment do not matter: the same choice for a mutated classic."""

from functools import cache
from typing import Any

import pytest

from benchmarks import auto_tasks as tasks
from benchmarks.auto_tasks import CLASSICS, MUTATIONS, mutated
from gymnasium_solver.envs.probe import probe
from gymnasium_solver.training.choose import Choice, choose


@cache
def chosen(env_id: str) -> Choice:
    return choose(probe(env_id, most_steps=1000, costs=False, examines=False))


def fields(choice: Choice) -> list[tuple[str, dict[str, Any]]]:
    """But for the goal: the return that counts as solved is in the units of the environment."""
    goal = "early_stop_on_eval_threshold"
    both = choice.first, choice.contrast
    return [(c.name, {n: v for n, v in c.fields.items() if n != goal}) for c in both]


@pytest.mark.parametrize("name", CLASSICS)
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mutation_does_not_matter(name: str, mutation: str) -> None:
    if mutation.startswith("action") and name != "Pendulum":
        pytest.skip("its actions are no numbers")
    assert fields(chosen(mutated(name, mutation))) == fields(chosen(CLASSICS[name]))


def test_hidden_state_does() -> None:
    """Missing velocities are seen, so that the tests above could fail."""
    assert chosen(mutated("CartPole", "no_velocity")).first.name == "ppo_discrete+stack"


@pytest.mark.parametrize(("name", "preset"), [
    ("Recall", "ppo_discrete+gru"), ("TMaze", "ppo_discrete+gru"), ("Chain", "mbie"),
])  # fmt: skip
def test_small_tasks(name: str, preset: str) -> None:
    found = probe(f"{tasks.__name__}:{name}-v0", most_steps=4_000, costs=False, examines=False)
    assert choose(found).first.name == preset
