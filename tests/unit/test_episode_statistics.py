"""The statistics of the last training episodes: measured again only after an episode has ended."""

import numpy as np
import pytest

from gymnasium_solver.training.epoch_metrics import EPISODE_WINDOW, Ended, EpisodeStats


def ended(stats: EpisodeStats, *returns: float, terminated: bool = True) -> None:
    n = len(returns)
    stats.count_episodes(Ended(np.array(returns), np.arange(1, n + 1), np.full(n, terminated)))


def test_no_episodes_have_no_statistics() -> None:
    assert EpisodeStats().statistics() == {}


def test_the_window_is_measured() -> None:
    stats = EpisodeStats()
    ended(stats, 1.0, 2.0, 6.0)
    ended(stats, 3.0, terminated=False)
    assert stats.statistics() == {
        "train/roll/ep_rew/mean": 3.0,
        "train/roll/ep_rew/last": 3.0,
        "train/roll/ep_rew/std": pytest.approx(np.std([1.0, 2.0, 6.0, 3.0])),
        "train/roll/ep_rew/min": 1.0,
        "train/roll/ep_rew/max": 6.0,
        "train/roll/ep_len/mean": 7 / 4,
        "train/roll/ep_len/last": 1,
        "train/roll/ep_truncated": 0.25,
    }


def test_it_is_measured_again_when_an_episode_ends() -> None:
    stats = EpisodeStats()
    ended(stats, 1.0)
    first = stats.statistics()
    assert stats.statistics() is first
    ended(stats, 3.0)
    assert stats.statistics()["train/roll/ep_rew/mean"] == 2.0
    ended(stats, *[5.0] * EPISODE_WINDOW)  # the window is full
    assert stats.statistics()["train/roll/ep_rew/mean"] == 5.0


def test_another_environment_or_a_checkpoint_begins_anew() -> None:
    stats, saved = EpisodeStats(), EpisodeStats()
    ended(stats, 1.0)
    ended(saved, 9.0)
    assert stats.statistics()["train/roll/ep_rew/mean"] == 1.0
    stats.forget_episodes()
    assert stats.statistics() == {}
    stats.load_state(saved.episode_state())  # as many episodes, but others
    assert stats.statistics()["train/roll/ep_rew/mean"] == 9.0
