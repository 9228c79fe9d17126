"""Wrappers for Atari, VizDoom and Mario: numbers by hand, and the real games where present."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.envs.wrappers import atari
from gymnasium_solver.envs.wrappers.shaping import PARTS
from gymnasium_solver.envs.wrappers.wrapping import wrap
from gymnasium_solver.errors import EnvError
from tests.envs.scripted import Scripted


def pong_ram(player: float = 100, enemy: float = 100, ball: tuple | None = None) -> np.ndarray:
    """RAM with these centres, in pixels; no ball: None."""
    ram = np.zeros(128, np.uint8)
    ram[51], ram[50] = player + 13 - 8, enemy + 15 - 8
    ram[49], ram[54] = (0, 0) if ball is None else (ball[0] + 49 - 1, ball[1] + 14 - 2)
    return ram


def breakout_ram(paddle: float = 80, ball: tuple | None = None, blocks: int = 108) -> np.ndarray:
    ram = np.zeros(128, np.uint8)
    bits = np.zeros(36 * 8, np.uint8)
    bits[: 24 + 2 * blocks] = 1
    ram[:36] = np.packbits(bits)
    ram[72] = paddle + 47 - 8
    ram[99], ram[101] = (0, 0) if ball is None else (ball[0] + 49 - 1, ball[1] - 9 - 2)
    return ram


def game(env_id: str, rows: list, **given) -> Scripted:
    given.setdefault("action", spaces.Discrete(6))
    return Scripted(np.stack(rows)[:, None], env_id=env_id, **given)


def played(env, actions: list[int]) -> list:
    return [env.reset(0), *(env.step(np.array([a])) for a in actions)]


def test_pong_features_by_hand():
    rows = [
        pong_ram(114, 114),  # no ball yet; the middle of 34 .. 194
        pong_ram(138, 114, (80, 114)),
        pong_ram(138, 90, (84, 110)),
        pong_ram(138, 90),  # a point: the ball is gone
        pong_ram(60, 60, (80, 114)),  # reset row
    ]
    env = wrap(
        game("ALE/Pong-v5", rows, ends=((3, 0),)),
        [{"id": "PongV5_FeatureExtractor", "action_ids": [0, 3, 4]}],
    )
    assert env.observation_space.shape == (12,)
    first, *steps = played(env, [3, 1, 4, 0])
    obs = [first[0], *(step.obs[0] for step in steps)]
    np.testing.assert_allclose(obs[0], [0, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0], atol=1e-6)
    # paddle centres between 34 + 8 - 2 and 194 - 8 + 2: 148 pixels; ball x between -1 and 161, y
    # between 34 and 194
    np.testing.assert_allclose(
        obs[1], [48 / 148, np.tanh(1), 0, 0, 0, 0, 0, 0, 1, 0, 1, 0], atol=1e-6
    )
    moved = [2 * 4 / 162, -2 * 4 / 160]
    np.testing.assert_allclose(
        obs[2],
        # action 1 has no place: the last one stands
        [48 / 148, 0, -48 / 148, -np.tanh(1), *moved, *moved, 1, 0, 1, 0],
        atol=1e-6,
    )
    # the ball that is gone stays where and as fast as it was
    np.testing.assert_allclose(obs[3], [48 / 148, 0, -48 / 148, 0, *moved, *moved, -1, 0, 0, 1],
                               atol=1e-6)  # fmt: skip
    np.testing.assert_allclose(obs[4], [-108 / 148, 0, -108 / 148, 0, 0, 0, 0, 0, 1, 0, 0, 0],
                               atol=1e-6)  # fmt: skip


def test_breakout_features_by_hand():
    rows = [
        breakout_ram(80),
        breakout_ram(86, (80, 116)),
        breakout_ram(86, (84, 108), 54),
        breakout_ram(86, None, 54),
    ]
    env = wrap(game("Breakout-v5", rows), [{"id": "BreakoutV5_FeatureExtractor"}])
    assert env.observation_space == spaces.Box(-1, 1, (10,), np.float32)
    first, *steps = played(env, [0, 0, 0])
    paddle_y = 2 * (191 - 32) / 168 - 1
    # paddle between 6 and 154, ball x between 1 and 159, y between 33 and 199
    np.testing.assert_allclose(
        first[0], [0, 0, 0, -1, 0, 0, -1, 0, (-1 - paddle_y) / 2, 1], atol=1e-6
    )
    p = 12 / 148
    np.testing.assert_allclose(
        steps[0].obs[0], [p, np.tanh(1), 0, 0, 0, 0, 1, -p / 2, -paddle_y / 2, 1], atol=1e-6
    )
    x, y = 8 / 158, -16 / 166
    np.testing.assert_allclose(
        steps[1].obs[0], [p, 0, x, y, x, y, 1, (x - p) / 2, (y - paddle_y) / 2, 0], atol=1e-6
    )
    np.testing.assert_allclose(
        steps[2].obs[0], [p, 0, x, y, x, y, -1, (x - p) / 2, (y - paddle_y) / 2, 0], atol=1e-6
    )


def test_pong_rewards_by_hand():
    rows = [
        pong_ram(100, 100, (120, 100)),
        pong_ram(100, 100, (136, 100)),  # towards the player, level with it
        pong_ram(90, 100, (128, 100)),  # back again: a hit; 10 pixels off
        pong_ram(90, 100, (70, 40)),  # in the enemy's half
        pong_ram(90, 100, (30, 100)),
        pong_ram(90, 100, (34, 100)),  # the enemy's hit
        pong_ram(90, 100),  # gone: no turn, no closeness
    ]
    wrappers = [{"id": "PongV5_RewardShaper"}]
    _, *steps = played(wrap(game("ALE/Pong-v5", rows), wrappers), [0] * 6)
    parts = {n: [round(float(s.info[PARTS][n][0]), 5) for s in steps] for n in steps[0].info[PARTS]}
    assert parts == {
        "paddle_hit": [0, 1, 0, 0, 0.5, 0],
        "proximity": [0.1, 0.09, 0, 0, 0, 0],
        "direction_change": [0, 0.5, 0, 0, 0.5, 0],
    }
    # A reset between the two rows: a turn across it is none.
    cut = wrap(game("ALE/Pong-v5", rows[:3], ends=((1, 0),)), wrappers)
    assert played(cut, [0, 0])[2].reward.tolist() == [0.0]


def test_atari_wrappers_are_for_their_game():
    breakout = game("ALE/Breakout-v5", [breakout_ram()] * 2)
    for name in ("PongV5_FeatureExtractor", "PongV5_RewardShaper"):
        with pytest.raises(EnvError, match=f"{name} is for Pong, not ALE/Breakout-v5"):
            wrap(breakout, [{"id": name}])
    blind = Scripted(np.zeros((2, 1, 4, 84, 84), np.uint8), env_id="ALE/Pong-v5")
    with pytest.raises(EnvError, match="reads the console's memory, which the own engine does not"):
        wrap(blind, [{"id": "PongV5_FeatureExtractor"}]).reset(0)
    pong = game("ALE/Pong-v5", [pong_ram()] * 2)
    for ids in ([0, 0], [6], []):
        with pytest.raises(EnvError, match="action_ids must be different actions of 0 to 5, got"):
            wrap(pong, [{"id": "PongV5_FeatureExtractor", "action_ids": ids}])


@pytest.mark.parametrize("env_id", ["Pong-v5", "Breakout-v5"])
def test_memory_agrees_with_what_is_drawn(env_id):
    """Ball and paddle of every frame against the pixels of their colours."""
    pytest.importorskip("ale_py")
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    env = gymnasium.make(f"ALE/{env_id}", frameskip=1, repeat_action_probability=0.0)
    env.reset(seed=0)
    console: Any = getattr(env.unwrapped, "ale")  # noqa: B009
    things: Any
    rng, seen = np.random.default_rng(0), 0
    for t in range(400):
        frame, _, over, _, _ = env.step(1 if t % 50 == 0 else int(rng.integers(4)))
        ram = console.getRAM()[None]
        if env_id == "Pong-v5":
            things = atari.read_pong(ram)
            area, colour = frame[34:194], (236, 236, 236)
            ys, xs = np.nonzero((area == colour).all(-1))
            ys += 34
        else:
            things = atari.read_breakout(ram)
            area, colour = frame[93:188, 8:152], (200, 72, 72)
            ys, xs = np.nonzero((area == colour).all(-1))
            xs, ys = xs + 8, ys + 93
        if len(xs) == 8 and things.has_ball[0]:  # all of the ball, 2 x 4
            seen += 1
            assert abs(xs.mean() + 0.5 - things.ball[0, 0]) <= 1.0
            assert abs(ys.mean() + 0.5 - things.ball[0, 1]) <= 1.0
        if over:
            break
    assert seen > 50


def test_features_of_the_real_game(record):
    wrappers = [{"id": "PongV5_RewardShaper"}, {"id": "PongV5_FeatureExtractor"}]
    env = make_vector_env(
        "ALE/Pong-v5",
        2,
        env_kwargs={"obs_type": "objects", "reward_clip": False},
        env_wrappers=wrappers,
        max_episode_steps=60,
    )
    rollout = record(env, 0, 130)
    space: Any = env.observation_space
    assert all(space.contains(obs) for obs in rollout.next_obs.reshape(-1, *space.shape))
    assert (rollout.next_obs[..., 8] == 1).any()  # a ball was seen
    assert (np.abs(rollout.next_obs[..., 6]).max()) > 0  # and moved
    opened = rollout.next_obs[rollout.is_reset]
    assert len(opened)
    assert (opened[:, 9:] == 0).all()  # no action yet
    assert (opened[:, [1, 3, 6, 7]] == 0).all()  # and no past to move from
    assert np.array_equal(np.unique(rollout.returns % 1), [0.0])  # scores stay raw
    assert (rollout.reward % 1 != 0).any()


# -- VizDoom --------------------------------------------------------------------------------


def doom(n_steps: int, action, infos=None, **given) -> Scripted:
    return Scripted(np.zeros((n_steps + 1, 1, 1), np.float32), env_id="VizDoom-Basic-v0",
                    action=action, infos=infos, **given)  # fmt: skip


def parts_of(steps: list) -> dict:
    return {n: [round(float(s.info[PARTS][n][0]), 5) for s in steps] for n in steps[0].info[PARTS]}


def test_vizdoom_actions_by_hand():
    shaper = {"id": "VizDoom_RewardShaper", "noop_penalty": 0.01, "move_reward": 0.004,
              "turn_reward": 0.003, "attack_penalty": 0.5}  # fmt: skip
    _, *steps = played(wrap(doom(5, spaces.Discrete(9)), [shaper]), [0, 1, 5, 7, 8])
    parts = parts_of(steps)
    assert parts["noop"] == [-0.01, 0, 0, 0, 0]
    assert parts["move"] == [0, 0.004, 0, 0, 0.004]
    assert parts["turn"] == [0, 0, 0.003, 0, 0]
    assert parts["attack"] == [0, 0, 0, -0.5, 0]
    # eight buttons, each by itself: 1 forward, 6 turn right
    env = wrap(doom(1, spaces.MultiBinary(8)), [shaper])
    env.reset(0)
    step = env.step(np.array([[0, 1, 0, 0, 0, 0, 1, 0]]))
    assert float(step.info["shaping_reward"][0]) == pytest.approx(0.007)


def test_vizdoom_by_the_buttons_that_the_engine_names():
    engine = doom(3, spaces.Discrete(3))
    engine.button_names = ["TURN_LEFT", "ATTACK"]
    engine.button_table = np.array([[False, False], [True, False], [False, True]])
    _, *steps = played(wrap(engine, [{"id": "VizDoom_RewardShaper"}]), [0, 1, 2])
    assert [round(float(s.info["shaping_reward"][0]), 5) for s in steps] == [-0.005, 0.002, 0]
    with pytest.raises(
        EnvError, match=r"does not know which buttons the actions Discrete\(12\) of"
    ):
        wrap(doom(1, spaces.Discrete(12)), [{"id": "VizDoom_RewardShaper"}])


def test_vizdoom_ammo_and_health_by_hand():
    values = [(10, 100), (8, 100), (7, 90), (7, 95), (12, 100), (11, 80)]
    infos = [{"AMMO2": np.array([a]), "HEALTH": np.array([h])} for a, h in values]
    reward = np.array([[0], [0], [1], [0], [0], [0]])  # the second shot hits
    shaper = {"id": "VizDoom_RewardShaper", "noop_penalty": 0, "ammo_waste_penalty": 0.1,
              "health_loss_penalty": 0.01}  # fmt: skip
    engine = doom(5, spaces.Discrete(9), infos, reward=reward, ends=((3, 0),))
    _, *steps = played(wrap(engine, [shaper]), [0] * 5)
    parts = parts_of(steps)
    assert parts["ammo_waste"] == [-0.2, 0, 0, 0, -0.1]
    assert parts["health_loss"] == [0, -0.1, 0, 0, -0.2]
    assert [s.episode_return[0] for s in steps] == [0, 1, 1, 0, 0]
    with pytest.raises(EnvError, match=r"needs info\['HEALTH'\] for its penalty of 0.5.*Set it"):
        wrap(doom(1, spaces.Discrete(9)), [
            {"id": "VizDoom_RewardShaper", "health_loss_penalty": 0.5}]).reset(0)  # fmt: skip


# -- Mario ----------------------------------------------------------------------------------


def mario(infos: list[dict], **given) -> list:
    told = [{key: np.array([value]) for key, value in info.items()} for info in infos]
    n = len(infos)
    engine = Scripted(np.zeros((n, 1, 1), np.float32), env_id="Retro/SuperMarioBros-Nes",
                      reward=np.full((n, 1), 7.0), infos=told, **given)  # fmt: skip
    options = {"reward_scale": 0.5, "death_penalty": -50.0, "level_complete_bonus": 40.0,
               "step_penalty": -0.1, "x_position_scale": 0.2, "score_scale": 0.002}  # fmt: skip
    shaper = {"id": "RetroSuperMarioBros_RewardShaper", **options}
    return played(wrap(engine, [shaper]), [0] * (n - 1))[1:]


def test_mario_by_hand():
    rows = [
        {"xscrollHi": 0, "xscrollLo": 250, "score": 0, "lives": 2},
        {"xscrollHi": 1, "xscrollLo": 4, "score": 100, "lives": 2},  # 10 pixels on
        {"xscrollHi": 0, "xscrollLo": 40, "score": 100, "lives": 2},  # another area: 220 back
        {"xscrollHi": 0, "xscrollLo": 30, "score": 100, "lives": 1},  # a life lost
        {"xscrollHi": 0, "xscrollLo": 31, "score": 100, "lives": 1},  # over, after a death
    ]
    steps = mario(rows, ends=((4, 0),))
    assert parts_of(steps) == {
        "progress": [1.0, 0.0, -1.0, 0.1],
        "step": [-0.05] * 4,
        "end": [0, 0, -25.0, 0],
        "score": [0.1, 0, 0, 0],
    }
    # The game's own reward is left out of what is learnt, and is all of the score.
    assert [round(float(s.reward[0]), 5) for s in steps] == [1.05, -0.05, -26.05, 0.05]
    assert [s.episode_return[0] for s in steps] == [7, 14, 21, 28]


def test_mario_completes_a_level_and_forgets_deaths_with_the_episode():
    rows = [
        {"x": x, "lives": lives} for x, lives in ((0, 2), (5, 1), (9, 1), (0, 2), (5, 2), (9, 2))
    ]
    steps = mario(rows, ends=((2, 0), (5, 0)))
    assert parts_of(steps)["end"] == [-25.0, 0, 0, 0, 20.0]
    assert parts_of(steps)["progress"] == [0.5, 0.4, 0, 0.5, 0.4]
    assert parts_of(steps)["step"] == [-0.05, -0.05, 0, -0.05, -0.05]
    with pytest.raises(EnvError, match=r"needs info\['lives'\]"):
        mario([{"x": 1}, {"x": 2}])


def test_mario_waits_for_what_a_reset_does_not_tell():
    """Retro tells nothing at a reset: the first step then has nothing to compare with."""
    steps = mario([{}, {"x": 40, "score": 500, "lives": 2}, {"x": 45, "score": 500, "lives": 2}])
    assert parts_of(steps)["progress"] == [0, 0.5]
    assert parts_of(steps)["score"] == [0, 0]
