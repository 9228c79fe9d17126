"""Reward shapers: numbers by hand, parts apart from the true reward, nothing across a reset."""

from typing import Any

import numpy as np
import pytest

from gymnasium_solver.envs.make import env_from_config, make_vector_env
from gymnasium_solver.envs.wrappers.shaping import EPISODE_PARTS, PARTS
from gymnasium_solver.envs.wrappers.wrapping import wrap
from gymnasium_solver.errors import EnvError
from gymnasium_solver.training.prepare import load_config
from tests.envs.scripted import Scripted


def play(engine: Scripted, wrappers: list[dict], actions=None) -> list:
    env = wrap(engine, wrappers)
    env.reset(0)
    n_steps = len(engine.script) - 1
    rows = np.zeros((n_steps, engine.n_envs), np.int64) if actions is None else actions
    return [env.step(np.asarray(row)) for row in rows]


def part(steps: list, name: str, key: str = PARTS) -> list:
    return [step.info[key][name].round(5).tolist() for step in steps]


def test_action_rewards():
    shaper = {"id": "ActionRewardShaper", "rewards": [0.0, 0.5, -1, 2]}
    engine = Scripted(np.zeros((5, 2, 1), np.float32), ends=((2, 0),))
    steps = play(engine, [shaper], [[1, 2], [3, 0], [3, 1], [0, 3]])
    assert [s.reward.tolist() for s in steps] == [[1.5, 0.0], [3.0, 1.0], [0.0, 1.5], [1.0, 3.0]]
    # step 3 of env 0 is a reset row: its action was ignored
    assert part(steps, "action_reward_bonus") == [[0.5, -1.0], [2.0, 0.0], [0.0, 0.5], [0.0, 2.0]]
    sums = part(steps, "action_reward_bonus", EPISODE_PARTS)
    assert sums == [[0.5, -1.0], [2.5, -1.0], [0.0, -0.5], [0.0, 1.5]]
    assert [s.episode_return.tolist() for s in steps] == [[1, 1], [2, 2], [0, 3], [1, 4]]
    assert steps[1].info["shaping_reward"].tolist() == [2.0, 0.0]


def test_action_rewards_refuse_what_does_not_fit():
    engine = Scripted(np.zeros((2, 1, 1), np.float32))
    with pytest.raises(EnvError, match="rewards must have 4 numbers, one for each action, got 2"):
        wrap(engine, [{"id": "ActionRewardShaper", "rewards": [1, 2]}])
    with pytest.raises(EnvError, match="rewards must be a list of numbers, got 'x'"):
        wrap(engine, [{"id": "ActionRewardShaper", "rewards": "x"}])
    with pytest.raises(EnvError, match="needs Discrete actions; Pendulum-v1 has Box"):
        make_vector_env(
            "Pendulum-v1", 1, env_wrappers=[{"id": "ActionRewardShaper", "rewards": [1]}]
        )


def test_cartpole_parts():
    #                     x=0            x=1.2, angle 6 deg           falls: P = 0
    obs = [
        [0, 0, 0, 0],
        [1.2, 0, np.deg2rad(6), 0],
        [2.5, 0, 0.1, 0],
        [0.0, 0, 0, 0],
        [2.4, 0, 0, 0],
    ]
    engine = Scripted(np.array(obs, np.float32)[:, None], env_id="CartPole-v1", ends=((2, 0),))
    shaper = {"id": "CartPoleV1_RewardShaper", "angle_reward_scale": 1.0, "gamma": 1.0,
              "position_reward_scale": 0.25, "clip_potential": True}  # fmt: skip
    steps = play(engine, [shaper])
    assert part(steps, "position") == [[-0.125], [-0.125], [0.0], [-0.25]]
    assert part(steps, "angle") == [[-0.5], [-0.5], [0.0], [0.0]]
    assert part(steps, "angle", EPISODE_PARTS) == [[-0.5], [-1.0], [0.0], [0.0]]
    assert [round(float(s.reward[0]), 5) for s in steps] == [0.375, 0.375, 0.0, 0.75]


def car(*rows, **given) -> Scripted:
    """Rows of (position, velocity) of one env."""
    return Scripted(np.array(rows, np.float32)[:, None], env_id="MountainCar-v0",
                    reward=np.full((len(rows), 1), -1.0), **given)  # fmt: skip


def test_mountain_car_shaper_by_hand():
    engine = car((-0.5, 0.0), (0.35, 0.07), (0.5, 0.0), (-0.5, 0.0), ends=((2, 0),))
    shaper = {"id": "MountainCarV0_RewardShaper", "gamma": 1.0}
    steps = play(engine, [shaper])
    # 100 * 0.85 / 1.7; 10 * 0.07 / 0.14; 50 * (sin(1.05) - sin(-1.5)) / 2
    height = 25 * (np.sin(1.05) - np.sin(-1.5))
    assert part(steps, "position")[0] == [50.0]
    assert part(steps, "velocity")[0] == [5.0]
    np.testing.assert_allclose(part(steps, "height")[0], height, rtol=1e-5)
    np.testing.assert_allclose(steps[0].reward, -1 + 55 + height, rtol=1e-5)
    # The potential is 0 at the goal: no penalty for arriving.
    np.testing.assert_allclose(part(steps, "position")[1], [100 * 0.15 / 1.7], rtol=1e-4)
    assert steps[2].reward.tolist() == [0.0]
    assert [s.episode_return.tolist() for s in steps] == [[-1], [-2], [0]]


@pytest.mark.parametrize("gamma", [0.9, 1.0])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "MountainCar-v0"])
def test_potential_shaping_keeps_the_best_policy(env_id, gamma):
    """The discounted sum over an episode that terminates is -P(first obs), whatever was done."""
    shaper = {
        "CartPole-v1": {"id": "CartPoleV1_RewardShaper"},
        "MountainCar-v0": {"id": "MountainCarV0_RewardShaper"},
    }[env_id]
    width = {"CartPole-v1": 4, "MountainCar-v0": 2}[env_id]
    rng = np.random.default_rng(0)
    start = rng.normal(0, 0.1, (1, width))
    sums = []
    for length in (3, 7, 12):
        path = np.concatenate([start, rng.normal(0, 0.5, (length, width))]).astype(np.float32)
        engine = Scripted(path[:, None], env_id=env_id, ends=((length, 0),))
        steps = play(engine, [{**shaper, "gamma": gamma}])
        shaped = [float(step.info["shaping_reward"][0]) for step in steps]
        sums.append(sum(gamma**t * reward for t, reward in enumerate(shaped)))
    np.testing.assert_allclose(sums, sums[0], rtol=1e-4)


def test_shapers_get_the_gamma_of_the_run():
    config = load_config("CartPole-v1:ppo", overrides={
        "env_wrappers": [{"id": "CartPoleV1_RewardShaper"}], "gamma": 0.5})  # fmt: skip
    env: Any = env_from_config(config, 2)
    assert env._gamma == 0.5
    env.close()
    named = [{"id": "CartPoleV1_RewardShaper", "gamma": 0.75}]
    env = env_from_config(config.replace(env_wrappers=named), 2)
    assert env._gamma == 0.75


@pytest.mark.parametrize(
    ("kind", "over"),
    [("count", np.sqrt([1, 1, 2, 3])), ("inverse", [1, 1, 2, 3]), ("log", np.log([2, 2, 3, 4]))],
)
def test_count_bonus_by_hand(kind, over):
    same = [(-0.5, 0.0)] * 5
    shaper = {"id": "MountainCarV0_StateCountBonus", "bonus_scale": 0.1, "bonus_type": kind}
    steps = play(car(*same), [shaper])
    got = [float(s.info[PARTS]["exploration_bonus"][0]) for s in steps]
    np.testing.assert_allclose(got, 0.1 / np.array(over), rtol=1e-6)
    np.testing.assert_allclose([s.reward[0] for s in steps], -1 + 0.1 / np.array(over), rtol=1e-6)


def test_count_bonus_counts_over_episodes_but_no_reset_rows():
    rows = [(-0.5, 0.0), (-0.5, 0.0), (-0.5, 0.0), (-0.5, 0.0), (-0.5, 0.0), (0.6, 0.07)]
    shaper = {"id": "MountainCarV0_StateCountBonus", "bonus_type": "inverse"}
    steps = play(car(*rows, cuts=((2, 0),)), [shaper])
    # visits before: 0, 1, (reset row), 2, and a new place on the very edge
    assert part(steps, "exploration_bonus") == [[1.0], [1.0], [0.0], [0.5], [1.0]]
    least = {**shaper, "min_count": 4}
    assert part(play(car(*rows), [least]), "exploration_bonus")[:2] == [[0.25], [0.25]]
    # each env counts for itself
    two = Scripted(np.tile(np.array([-0.5, 0], "f"), (4, 2, 1)), env_id="MountainCar-v0")
    assert part(play(two, [shaper]), "exploration_bonus") == [[1, 1], [1, 1], [0.5, 0.5]]


def test_count_bonus_begins_anew_with_a_seed():
    env = wrap(car(*[(-0.5, 0.0)] * 4), [{"id": "MountainCarV0_StateCountBonus"}])
    for _ in range(2):
        env.reset(0)
        bonus = [float(env.step(np.array([0])).info["shaping_reward"][0]) for _ in range(3)]
        np.testing.assert_allclose(bonus, [1, 1, 1 / np.sqrt(2)], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"position_bins": 0}, "position_bins must be >= 1, got 0"),
        ({"position_bins": 2.5}, "position_bins must be a whole number, got 2.5"),
        ({"bonus_type": "sum"}, "bonus_type must be one of 'count', 'inverse', 'log', got 'sum'"),
        ({"min_count": True}, "min_count must be a whole number, got True"),
    ],
)
def test_bad_count_bonus(options, message):
    with pytest.raises(EnvError, match=message):
        wrap(car((0, 0)), [{"id": "MountainCarV0_StateCountBonus", **options}])


def test_shapers_are_for_their_env():
    for name in ("MountainCarV0_RewardShaper", "MountainCarV0_StateCountBonus"):
        with pytest.raises(EnvError, match=f"{name} is for MountainCar, not CartPole-v1"):
            make_vector_env("CartPole-v1", 1, env_wrappers=[{"id": name}])
        with pytest.raises(EnvError, match=f"{name} is for MountainCar, not MountainCarCont"):
            make_vector_env("MountainCarContinuous-v0", 1, env_wrappers=[{"id": name}])
    with pytest.raises(EnvError, match="is for CartPole, not Acrobot-v1"):
        make_vector_env("Acrobot-v1", 2, env_wrappers=[{"id": "CartPoleV1_RewardShaper"}])
    pixels = Scripted(np.zeros((2, 1, 4, 4), np.uint8), env_id="CartPole-v1")
    with pytest.raises(EnvError, match=r"shape \(4,\), here they are \(4, 4\). Put it before"):
        wrap(pixels, [{"id": "CartPoleV1_RewardShaper"}])


def test_two_shapers_tell_both_their_parts_and_scaling_leaves_them(record):
    wrappers: list[dict[str, Any]] = [
        {"id": "MountainCarV0_RewardShaper"},
        {"id": "MountainCarV0_StateCountBonus", "bonus_scale": 0.1},
        {"id": "RewardScale", "scale": 0.5},
    ]
    plain = record(make_vector_env("MountainCar-v0", 3, max_episode_steps=20), 0, 60)
    env = make_vector_env("MountainCar-v0", 3, env_wrappers=wrappers, max_episode_steps=20)
    shaped = record(env, 0, 60)
    assert np.array_equal(plain.returns, shaped.returns)  # scores are raw
    names = ["position", "velocity", "height", "exploration_bonus"]
    parts = {n: np.stack([s.info[PARTS][n] for s in shaped.steps]) for n in names}
    total = sum(parts.values())
    np.testing.assert_allclose(shaped.reward, 0.5 * (plain.reward + total), atol=1e-4)
    assert shaped.is_reset.any()
    assert (shaped.reward[shaped.is_reset] == 0).all()
    # the sums over whole episodes
    for name in names:
        running = np.zeros(3)
        for t, step in enumerate(shaped.steps):
            running = np.where(shaped.is_reset[t], 0, running + parts[name][t])
            np.testing.assert_allclose(step.info[EPISODE_PARTS][name], running, atol=1e-4)
