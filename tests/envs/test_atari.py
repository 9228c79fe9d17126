"""Atari under the contract: what is seen, played, learnt from and scored; options and errors."""

import sys
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.data.replay import Replay
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.envs.engines.envpool import atari_id
from gymnasium_solver.envs.journal import JournaledEnv
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.suites.atari import _fire_action
from gymnasium_solver.envs.suites.game_options import AtariOptions
from gymnasium_solver.envs.vector import VectorEnv
from gymnasium_solver.errors import EnvError
from gymnasium_solver.training.evaluate import evaluate

# A whole game with raw rewards and nothing random but the no-ops.
PLAIN: dict[str, Any] = {
    "repeat_action_probability": 0.0,
    "episodic_life": False,
    "reward_clip": False,
}


def atari(game: str, n_envs: int = 2, **options: Any) -> VectorEnv:
    mode, limit = options.pop("engine", "auto"), options.pop("max_episode_steps", None)
    return make_vector_env(
        f"ALE/{game}-v5",
        n_envs,
        env_kwargs=options,
        vectorization_mode=mode,
        max_episode_steps=limit,
        render_mode=options.pop("render_mode", None),
    )


@pytest.fixture(params=["envpool", "vector"])
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "vector":
        pytest.importorskip("ale_py", reason="ale-py is not installed (the atari extra)")
    return request.param


def test_a_life_ends_the_learners_episode_and_the_game_goes_on(engine, record):
    env = atari("Breakout", engine=engine, frame_stack=1)
    assert env.spec.protocol["episodic_life"] is True
    rollout = record(env, seed=1, n_steps=420)
    lives = np.stack([step.info["lives"] for step in rollout.steps])
    over = np.stack([step.is_over for step in rollout.steps])
    env.close()
    real = ~rollout.is_reset
    lost = np.zeros_like(over)
    lost[1:] = (lives[1:] < lives[:-1]) & real[1:]
    assert over.any()
    assert (lost & ~over).sum() > 6
    assert np.array_equal(rollout.terminated, lost)  # the last life is lost where the game is over
    # Only a game that is over is followed by a reset row; its account goes on through lost lives.
    assert np.array_equal(rollout.is_reset[1:], over[:-1])
    assert not rollout.is_reset[1:][lost[:-1] & ~over[:-1]].any()
    for n in range(env.n_envs):
        t = int(np.flatnonzero(over[:, n])[0])
        assert rollout.lengths[t, n] == t + 1
        assert (
            rollout.returns[t, n] == rollout.reward[: t + 1, n].sum()
        )  # Breakout's low rows pay 1
        assert rollout.lengths[t + 1, n] == rollout.returns[t + 1, n] == 0


def test_lives_and_clipping_change_the_learners_view_only(record):
    """The same game, told with and without: the score is the same, step by step."""
    # Without FIRE after a life, which would change what is played.
    options = PLAIN | {"obs_type": "ram", "fire_reset": False}
    plain = record(atari("SpaceInvaders", 1, **options), seed=2, n_steps=650)
    options |= {"episodic_life": True, "reward_clip": True}
    told = record(atari("SpaceInvaders", 1, **options), seed=2, n_steps=650)
    assert plain.reward.max() >= 5
    assert plain.terminated.any()
    for name in ("obs", "returns", "lengths", "truncated", "is_reset"):
        assert np.array_equal(getattr(told, name), getattr(plain, name)), name
    assert np.array_equal(told.reward, np.sign(plain.reward))
    assert told.terminated.sum() >= 3 * plain.terminated.sum()  # three lives
    over = np.array([step.is_over[0] for step in told.steps])
    assert np.array_equal(over, plain.terminated[:, 0])
    t = int(np.flatnonzero(over)[0])
    assert told.returns[t, 0] == plain.reward[: t + 1].sum() > told.reward[: t + 1].sum()


def test_no_n_step_return_of_a_replay_goes_beyond_a_lost_life():
    from gymnasium import spaces

    from gymnasium_solver.spaces.actions import action_kind

    observation, action = spaces.Box(0, 9, (1,), np.float32), action_kind(spaces.Discrete(2))
    rows = Rollout.allocate(6, 1, observation, action)
    rows.obs = np.arange(7, dtype=np.float32)[:, None, None]
    rows.reward[:], rows.valid[:] = 1.0, True
    rows.terminated[2] = True  # and no reset row after it
    replay = Replay(10, 1, observation, action)
    replay.add(rows)
    found = replay.transitions(np.arange(6), n_step=3, gamma=0.5)
    assert isinstance(found.obs, np.ndarray)
    assert isinstance(found.next_obs, np.ndarray)
    assert found.obs[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert found.reward.tolist() == [1.75, 1.5, 1, 1.75, 1.5, 1]
    assert found.discount.tolist() == [0, 0, 0, 0.125, 0.25, 0.5]
    assert found.next_obs[3:, 0].tolist() == [6, 6, 6]


def test_fire_is_pressed_after_a_lost_life():
    """Breakout waits for it: an agent that never does sees the ball again, or not."""
    for fire_reset, comes_back in ((True, True), (False, False)):
        env = atari("Breakout", 1, **PLAIN, obs_type="ram", fire_reset=fire_reset)
        env.reset(1)
        for _ in range(2 if fire_reset else 1):
            lives = 5 if fire_reset else 0
            for t in range(60):  # FIRE once where the game does not get it by itself
                step = env.step(np.array([1 if t == 0 and not fire_reset else 0]))
                if 0 < step.info["lives"][0] < lives:
                    break
                lives = step.info["lives"][0]
        for _ in range(10):
            step = env.step(np.array([0]))
        assert (step.obs[0, 101] > 0) == comes_back


@pytest.mark.parametrize("limit", [{"max_frames": 240}, {"max_episode_steps": 60}])
def test_the_frame_cap_truncates_with_the_true_final_observation(engine, limit, record):
    if engine == "vector":
        limit = {"max_frames": 264}  # ale-py counts the frames of the no-ops, too
    env = atari("Pong", engine=engine, **limit)
    capped = record(env, seed=3, n_steps=100)
    free = record(atari("Pong", engine=engine), seed=3, n_steps=100)
    for n in range(2):
        t = int(np.flatnonzero(capped.truncated[:, n])[0])
        assert 50 <= t + 1 <= 66
        assert engine == "vector" or t + 1 == 60
        assert capped.lengths[t, n] == t + 1
        assert capped.steps[t].is_over[n]
        assert not capped.terminated[: t + 1, n].any()
        # ale-py's cap may fall between the frames of a step, and shows the screen there.
        same = t + 1 if engine == "envpool" else t
        assert np.array_equal(capped.next_obs[:same, n], free.next_obs[:same, n])
        assert capped.is_reset[t + 1, n]
        assert not np.array_equal(capped.next_obs[t + 1, n], free.next_obs[t + 1, n])


def test_the_cap_of_the_suite_is_108_000_frames():
    assert atari("Pong").spec.max_episode_steps == 27_000
    assert atari("Pong", frame_skip=1).spec.max_episode_steps == 108_000
    assert atari("Pong", max_episode_steps=100).spec.max_episode_steps == 100


@pytest.mark.parametrize("obs_type", ["rgb", "objects"])
def test_sticky_actions_are_deterministic_and_stick(obs_type, record):
    env = atari("Pong", obs_type=obs_type)
    first = record(env, seed=5, n_steps=60)
    env.step(first.actions[0])
    assert first.same_as(record(env, seed=5, n_steps=60))
    env = atari("Pong", obs_type=obs_type, repeat_action_probability=0.0)
    unstuck = record(env, seed=5, n_steps=60, actions=list(first.actions))
    assert not np.array_equal(first.next_obs, unstuck.next_obs)


def test_a_journal_restores_a_game_amid_its_lives(record):
    """Sticky actions, FIRE after a life, stacked velocities: all come again."""
    options: dict[str, Any] = {"obs_type": "objects", "frame_stack": 2}
    env = JournaledEnv(atari("Breakout", **options))
    rollout = record(env, seed=7, n_steps=150)
    assert rollout.terminated.any()
    other = JournaledEnv(atari("Breakout", **options))
    assert np.array_equal(other.restore(env.state()), rollout.next_obs[-1])
    for action in rollout.actions[:60]:
        one, two = env.step(action), other.step(action)
        assert all(np.array_equal(a, b) for a, b in zip(one[:8], two[:8], strict=True))


@pytest.mark.parametrize("game", ["Breakout", "SpaceInvaders", "MsPacman"])
def test_envpool_plays_what_ale_plays(game):
    """Byte for byte: the RAM, the rewards and the lives of ALE's own interface."""
    ale_py = pytest.importorskip("ale_py", reason="ale-py is not installed (the atari extra)")
    env = atari(game, 1, **PLAIN, obs_type="ram", noop_max=1, fire_reset=False)
    seen = [env.reset(3)[0]]
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in game).lstrip("_")
    ale.loadROM(ale_py.roms.get_rom_path(snake))
    ale.reset_game()
    buttons = ale.getMinimalActionSet()
    ale.act(buttons[0])
    assert np.array_equal(ale.getRAM(), seen[0])
    for action in np.random.default_rng(0).integers(len(buttons), size=200):
        step = env.step(np.array([action]))
        reward = sum(ale.act(buttons[action]) for _ in range(4))
        assert np.array_equal(ale.getRAM(), step.obs[0])
        assert (reward, ale.lives()) == (step.reward[0], step.info["lives"][0])
    assert step.episode_return[0] > 0


def test_what_is_seen():
    shapes: dict[tuple[int, ...], dict[str, Any]] = {
        (4, 84, 84): {},
        (12, 84, 84): {"grayscale_obs": False},
        (2, 42, 50): {"frame_stack": 2, "resize_obs": [42, 50]},
        (1, 210, 160): {"frame_stack": 1, "resize_obs": False},
        (128,): {"obs_type": "ram"},
        (256,): {"obs_type": "ram", "frame_stack": 2},
    }
    for shape, options in shapes.items():
        env = atari("Pong", 1, **options)
        assert env.observation_space.shape == env.reset(0).shape[1:] == shape
        assert env.observation_space.dtype == np.uint8


def test_the_last_frame_alone_shows_less_than_the_maximum_of_two(record):
    pytest.importorskip("ale_py", reason="ale-py is not installed (the atari extra)")
    seen = []
    for max_pool in (True, False):
        env = atari(
            "Asteroids", engine="vector" if max_pool else "auto", max_pool=max_pool, **PLAIN
        )
        assert env.spec.engine == "vector"
        assert env.spec.protocol["max_pool"] is max_pool
        seen.append(record(env, seed=1, n_steps=80).obs[..., -1, :, :].astype(int))
    pooled, last = seen
    assert (pooled >= last - 2).all()  # resized and rounded
    assert (pooled > last + 50).any(axis=(-1, -2)).mean() > 0.3  # flickering sprites


def test_stacks_of_ram_begin_with_the_first_and_move_on(record):
    env = atari("Pong", 2, obs_type="ram", frame_stack=3, max_episode_steps=20)
    rollout = record(env, seed=1, n_steps=50)
    newest = rollout.next_obs[..., 256:]
    assert np.array_equal(newest, np.stack([step.info["ram"] for step in rollout.steps]))
    assert np.array_equal(rollout.obs[0], np.tile(rollout.obs[0, :, :128], 3))
    opened = rollout.next_obs[rollout.is_reset]
    assert len(opened) == 4
    assert np.array_equal(opened, np.tile(opened[:, :128], 3))
    goes_on = ~rollout.is_reset
    assert np.array_equal(rollout.next_obs[goes_on][:, :256], rollout.obs[goes_on][:, 128:])


def test_the_agent_sees_gray_and_a_film_is_in_colour():
    env = atari("Breakout", 2, render_mode="rgb_array")
    env.reset(0)
    frame = env.render(1)
    assert frame is not None
    assert (frame.shape, frame.dtype) == ((210, 160, 3), np.uint8)
    assert [200, 72, 72] in frame[57:63, 8:152].reshape(-1, 3).tolist()  # the red row of bricks
    assert [66, 72, 200] in frame[87:93, 8:152].reshape(-1, 3).tolist()  # the blue one


class RandomPolicy:
    """Enough of a policy for `evaluate`."""

    def __init__(self, n_actions: int) -> None:
        self.n_actions, self.rng, self.is_random = n_actions, np.random.default_rng(0), False

    def still(self) -> Any:
        return nullcontext()

    def initial_carry(self, n_envs: int) -> dict[str, np.ndarray]:
        return {}

    def sample(
        self, obs: np.ndarray, carry: Any, is_first: np.ndarray, mask: Any = None
    ) -> tuple[np.ndarray, Any, np.ndarray]:
        return self.rng.integers(self.n_actions, size=len(obs)), carry, np.zeros((len(obs), 0))

    greedy = sample

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        return actions

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        pass


def test_an_evaluation_scores_whole_games_and_tells_the_protocol():
    """Lives and clipping, which training has, change no score."""
    results = []
    for options in ({}, {"episodic_life": False, "reward_clip": False}):
        env = atari("SpaceInvaders", 2, obs_type="ram", **options)
        policy: Any = RandomPolicy(6)
        results.append(evaluate(policy, env, 2, greedy=False, seed=4))
    assert results[0].returns == results[1].returns
    assert results[0].lengths == results[1].lengths
    assert min(results[0].returns) > 20
    assert all(score % 5 == 0 for score in results[0].returns)
    told = results[0].to_dict()["protocol"]
    assert (told["repeat_action_probability"], told["noop_max"]) == (0.25, 30)
    assert (told["episodic_life"], told["reward_clip"], told["max_frames"]) == (True, True, 108_000)


def test_every_game_of_ale_is_known():
    pytest.importorskip("ale_py", reason="ale-py is not installed (the atari extra)")
    import gymnasium

    ids = [env_id for env_id in gymnasium.registry if env_id.startswith("ALE/")]
    assert len(ids) > 100
    for env_id in ids:
        atari_id(env_id)


@pytest.mark.parametrize(
    ("game", "number"),
    [("Pong", 1), ("Backgammon", 0), ("VideoCheckers", 0), ("Freeway", None), ("MsPacman", None)],
)
def test_where_fire_is(game, number):
    ale_py = pytest.importorskip("ale_py", reason="ale-py is not installed (the atari extra)")
    options = AtariOptions()
    assert _fire_action(f"ALE/{game}-v5", options) == number
    env = ale_py.AtariEnv("".join(f"_{c.lower()}" if c.isupper() else c for c in game).lstrip("_"))
    meanings = env.get_action_meanings()
    assert (meanings.index("FIRE") if "FIRE" in meanings else None) == number
    full = options.model_copy(update={"full_action_space": True})
    assert _fire_action(f"ALE/{game}-v5", full) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sticky_actions": 0.1}, "Did you mean repeat_action_probability"),
        ({"episodic_lives": True}, "Did you mean episodic_life"),
        ({"colour": True}, "There are: obs_type"),
        ({"noop_max": -1}, "noop_max is -1, expected a whole number >= 0"),
        ({"repeat_action_probability": 1.0}, "expected a number >= 0 and < 1"),
        ({"obs_type": "pixels"}, "expected one of 'rgb', 'ram', 'objects'"),
        ({"obs_type": "ram", "grayscale_obs": False}, "grayscale_obs is for obs_type rgb, not ram"),
        ({"obs_type": "ram", "max_pool": False}, "max_pool is for obs_type rgb, not ram"),
        ({"maxpool": False}, "Did you mean max_pool"),
        ({"max_pool": False, "engine": "envpool"}, "use vectorization_mode auto or vector"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(EnvError, match=words):
        atari("Pong", **options)


def test_ale_py_has_rgb_only():
    pytest.importorskip("ale_py", reason="ale-py is not installed (the atari extra)")
    with pytest.raises(EnvError, match="ale-py's vector env has no obs_type ram"):
        atari("Pong", engine="vector", obs_type="ram")


def test_bad_games_and_engines(monkeypatch):
    with pytest.raises(EnvError, match="Did you mean ALE/Pong-v5"):
        atari("Pongg")
    with pytest.raises(EnvError, match=r"its objects are not known.*ALE/Pong-v5.*Use obs_type ram"):
        atari("Qbert", obs_type="objects")
    with pytest.raises(EnvError, match=r"no sync engine. Use vectorization_mode auto"):
        atari("Pong", engine="sync")
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(EnvError, match=r'pip install "gymnasium-solver\[atari\]"'):
        atari("Pong", engine="vector")
