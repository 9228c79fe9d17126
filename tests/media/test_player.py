"""Episodes step by step: every moment counts, and they are those of an evaluation."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import gymnasium_solver as gs
from gymnasium_solver.envs.make import env_from_config
from gymnasium_solver.media.player import Moment, Player, PolicyActor, open_scene, trained_agent
from gymnasium_solver.media.stage import CannotDraw, Stage, open_stage
from gymnasium_solver.runs.query import get_events
from gymnasium_solver.training.agents import build_agent
from gymnasium_solver.training.evaluate import evaluate
from gymnasium_solver.training.prepare import build_config, load_config
from gymnasium_solver.training.targets import ENV_FIELDS, Found, find_run, with_fields
from tests.media.counting import SMALL, count_in, counting_config

MakeStage = Callable[..., Stage]


def played(player: Player) -> list[Moment]:
    return list(player.episode())


def test_an_episode_has_a_moment_more_than_steps(counting_stage: MakeStage, chance: Any) -> None:
    stage = counting_stage(env_kwargs={"length": 4})
    player = Player(stage, chance(stage), seed=1)
    moments = played(player)
    assert [m.t for m in moments] == [0, 1, 2, 3, 4]
    assert [m.reward for m in moments] == [0, 1, 2, 3, 4]
    assert [m.episode_return for m in moments] == [0, 1, 3, 6, 10]
    assert [count_in(m.frame) for m in moments if m.frame is not None] == [0, 1, 2, 3, 4]
    assert [float(m.obs[0]) for m in moments] == [0, 1, 2, 3, 4]
    assert [m.is_over for m in moments] == [False] * 4 + [True]
    assert [m.decision is None for m in moments] == [False] * 4 + [True]
    assert moments[-1].terminated
    assert not moments[-1].truncated
    assert moments[-1].info["n"] == 4
    second = played(player)
    assert [m.t for m in second] == [0, 1, 2, 3, 4]


def test_an_episode_can_be_cut(counting_stage: MakeStage, chance: Any) -> None:
    stage = counting_stage(env_kwargs={"length": 9})
    moments = list(Player(stage, chance(stage), seed=1).episode(most_steps=3))
    assert [m.t for m in moments] == [0, 1, 2, 3]
    assert not moments[-1].is_over


def test_a_seed_repeats_an_episode(counting_stage: MakeStage, chance: Any) -> None:
    stage = counting_stage()
    player = Player(stage, chance(stage), seed=5)
    first = played(player)
    player.restart(5)
    again = played(player)
    assert [m.obs.tolist() for m in first] == [m.obs.tolist() for m in again]
    actions = [[m.decision.action for m in part if m.decision] for part in (first, again)]
    assert actions[0] == actions[1]


def test_raw_observations_and_rewards_are_those_before_the_wrappers(
    counting_stage: MakeStage, chance: Any
) -> None:
    wrappers = [{"id": "ObservationScale", "scale": 0.5}, {"id": "RewardScale", "scale": 10.0}]
    stage = counting_stage(env_kwargs={"length": 3}, env_wrappers=wrappers)
    moments = played(Player(stage, chance(stage), seed=1))
    assert [float(m.raw[0]) for m in moments] == [0, 1, 2, 3]
    assert [float(m.obs[0]) for m in moments] == [0, 0.5, 1, 1.5]
    assert [m.reward for m in moments] == [0, 1, 2, 3]
    assert [m.learner_reward for m in moments] == [0, 10, 20, 30]


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("recurrent", [None, "gru"])
def test_the_episodes_are_those_of_an_evaluation(greedy: bool, recurrent: str | None) -> None:
    """Also of an agent with memory: its carry goes from step to step and starts anew."""
    config = build_config(
        {
            "env_id": "CartPole-v1",
            "algo_id": "ppo",
            "vectorization_mode": "envpool",
            "recurrent": recurrent,
            "hidden_dims": [8],
            "seed": 3,
        }
    )
    stage = open_stage(Found(config), 3)
    agent = build_agent(config, stage.env.observation_space, stage.env.action_space)
    agent.net.get_parameter("actor_head.weight").data.normal_()
    env = env_from_config(config, 3)
    result = evaluate(agent.policy, env, 3, greedy=greedy, seed=7)
    player = Player(stage, PolicyActor(agent, greedy=greedy, explains=True), seed=7)
    returns: dict[int, float] = {}
    while len(returns) < 3:
        player.step()
        for row in np.flatnonzero(player.is_over):
            returns.setdefault(int(row), player.moment(int(row)).episode_return)
    assert sorted(returns.values()) == sorted(result.returns)
    env.close()
    stage.close()


def test_a_decision_tells_what_the_network_computes(counting_run: Any) -> None:
    run = counting_run(normalize_obs="rolling")
    found = find_run(str(run.path), run.path.parent)
    agent, env_steps = trained_agent(found)
    assert env_steps == run.meta()["best"]["env_steps"]
    stage = open_stage(found, agent=agent)
    moment = next(Player(stage, PolicyActor(agent, greedy=True, explains=True), 1).episode())
    decision = moment.decision
    assert decision is not None
    assert decision.probabilities is not None
    assert decision.probabilities.sum() == pytest.approx(1)
    assert int(decision.action) == decision.probabilities.argmax()
    assert decision.value == pytest.approx(_value(agent, moment.obs))
    assert decision.seen[""].shape == (2,)
    assert not np.allclose(decision.seen[""], moment.obs)  # normalised
    stage.close()


def _value(agent: Any, obs: np.ndarray) -> float:
    return agent.net.value(torch.from_numpy(obs[None])).item()


def test_numbers_of_a_continuous_decision_are_in_the_units_of_the_environment() -> None:
    config = build_config({"env_id": "Pendulum-v1", "algo_id": "ppo", "hidden_dims": [8]})
    stage = open_stage(Found(config))
    agent = build_agent(config, stage.env.observation_space, stage.env.action_space)
    agent.net.get_parameter("actor_head.bias").data.fill_(0.25)
    player = Player(stage, PolicyActor(agent, greedy=True, explains=True), 1)
    decision = player.decide()[0]
    assert decision.mean == pytest.approx(decision.action)
    assert decision.mean[0] == pytest.approx(0.5, abs=0.1)  # of [-2, 2]
    assert decision.std == pytest.approx([2.0])
    stage.close()


# -- the stage ----------------------------------------------------------------------------------


def test_the_engine_of_training_is_taken_if_it_draws(counting_run: Any) -> None:
    run = gs.train("CartPole-v1:ppo", **{**SMALL, "max_episode_steps": 20})
    stage = open_stage(find_run(str(run.path), run.path.parent))
    assert stage.env.spec.engine == "envpool"
    assert stage.note is not None
    assert stage.note.startswith("shown in EnvPool's CartPole-v1, trained in Gymnasium's vector")
    assert stage.fps == 50
    run = counting_run()
    stage = open_stage(find_run(str(run.path), run.path.parent))
    assert (stage.env.spec.engine, stage.note, stage.fps) == ("sync", None, 20)


def test_actions_are_repeated_as_in_evaluations(counting_run: Any) -> None:
    run = counting_run(frame_skip=2, eval_frame_skip=4, env_kwargs={"length": 12})
    assert {event["length_mean"] for event in get_events(run, "eval")} == {3.0}
    found = find_run(run.id, run.path.parent)
    for fields, length in (({}, 3), ({"frame_skip": 1}, 12)):
        with open_scene(with_fields(found, fields, ENV_FIELDS)) as scene:
            assert played(scene.player(seed=1, greedy=True))[-1].t == length


def test_an_environment_that_draws_nothing_is_refused_in_one_line() -> None:
    found = Found(load_config("Bandit-v0:ppo"))
    with pytest.raises(CannotDraw, match=r"^Bandit-v0 cannot be drawn: it draws nothing$"):
        open_stage(found)
    stage = open_stage(found, must_draw=False)
    assert not stage.draws
    assert stage.frame() is None
    assert stage.no_frames == "Bandit-v0 cannot be drawn: it draws nothing"


def test_the_reason_of_a_renderer_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.media.counting import Counting

    def no_gl(self: Any) -> None:
        raise gymnasium.error.DependencyNotInstalled("no GL library is loaded\nmore")

    monkeypatch.setattr(Counting, "render", no_gl)
    with pytest.raises(
        CannotDraw, match=r"^GsolveMedia/Counting-v0 cannot be drawn: .*no GL library"
    ):
        open_stage(Found(counting_config()))


def test_the_speed_comes_from_the_spec_the_environment_or_the_console() -> None:
    assert open_stage(Found(counting_config(spec={}))).fps == 12
    assert open_stage(Found(counting_config(spec={}, frame_skip=3))).fps == 4
