"""Memory/...: perfect memory scores 1, and what the tasks are is checked against their rules."""

from typing import Any

import numpy as np
import pytest

from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.random_policy import RandomPolicy
from gymnasium_solver.errors import EnvError


def play(env: Any, k: int | None, n_rows: int) -> list[float]:
    """Returns of an agent that remembers every card of its episode."""
    obs = env.reset(3)
    seen: list[list[int]] = [[int(suit)] for suit in obs.argmax(1)]
    returns: list[float] = []
    for _ in range(n_rows):
        asked = [cards[0] if k is None else cards[max(-k - 1, -len(cards))] for cards in seen]
        step = env.step(np.array(asked))
        returns += step.episode_return[step.is_over].tolist()
        for i, suit in enumerate(step.obs.argmax(1)):
            seen[i] = [int(suit)] if step.is_reset[i] else [*seen[i], int(suit)]
    return returns


@pytest.mark.parametrize(
    ("name", "kwargs", "k", "length"),
    [
        ("RepeatPreviousEasy", {}, 4, 52),
        ("RepeatPreviousMedium", {"decks": 1}, 32, 52),
        ("RepeatPreviousHard", {"k": 2}, 2, 156),
        ("RepeatFirstEasy", {}, None, 52),
    ],
)
def test_perfect_memory_scores_one(name: str, kwargs: Any, k: int | None, length: int) -> None:
    env = make_vector_env(f"Memory/{name}-v0", 3, env_kwargs=kwargs)
    assert env.spec.suite == "memory"
    assert env.spec.reward_threshold == 0.95
    returns = play(env, k, 2 * length + 2)
    assert len(returns) == 6
    np.testing.assert_allclose(returns, 1.0, rtol=1e-5)


def test_random_answers_score_minus_one_half() -> None:
    env = JournaledEnv(make_vector_env("Memory/RepeatPreviousEasy-v0", 40))
    policy = RandomPolicy(env.action_space, 40, 1)
    obs = env.reset(1)
    counts, returns = np.zeros(4), []
    for _ in range(110):
        counts += obs.sum(0)
        step = env.step(policy.act())
        obs = step.obs
        returns += step.episode_return[step.is_over].tolist()
    assert np.mean(returns) == pytest.approx(-0.5, abs=0.06)
    np.testing.assert_allclose(counts / counts.sum(), 0.25, atol=0.02)
    restored = JournaledEnv(make_vector_env("Memory/RepeatPreviousEasy-v0", 40))
    np.testing.assert_array_equal(restored.restore(env.state()), obs)


@pytest.mark.parametrize(
    ("name", "kwargs", "words"),
    [
        ("RepeatPrevius-v0", {}, "Unknown environment.*RepeatPreviousEasy-v0"),
        ("RepeatFirstEasy-v0", {"k": 3}, "unknown env_kwargs key 'k'"),
        ("RepeatPreviousEasy-v0", {"k": 52}, "k 52 must be below the number of cards, 52"),
        ("RepeatPreviousEasy-v0", {"decks": 0}, "decks must be an int >= 1, got 0"),
    ],
)
def test_bad_input_is_refused(name: str, kwargs: Any, words: str) -> None:
    with pytest.raises(EnvError, match=words):
        make_vector_env(f"Memory/{name}", 2, env_kwargs=kwargs)
