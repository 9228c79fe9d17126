"""`gs.evaluate`: the scores of `gsolve eval`, from Python."""

import json
from typing import Any

import gymnasium
import numpy as np
import pytest

import gymnasium_solver as gs
from gymnasium_solver.cli.main import main
from gymnasium_solver.errors import ConfigError, EnvError

from .conftest import MakeRun

SCALE = {"id": "ObservationScale", "scale": 3.0}


def by_command(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert main(["eval", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_equal_to_the_command(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(max_episode_steps=60)
    report = by_command(capsys, run.id, "--episodes", "6", "--seed", "11")
    for target in (run, run.id, f"{run.id}/@best", run.agent()):
        result = gs.evaluate(target, 6, seed=11)
        assert result.returns == report["scores"]["greedy"]["returns"]
        assert result.lengths == report["scores"]["greedy"]["lengths"]
        assert (result.mean, result.stderr) == (
            report["scores"]["greedy"]["mean"],
            report["scores"]["greedy"]["stderr"],
        )
    sampled = gs.evaluate(run, 6, seed=11, greedy=False)
    assert sampled.returns == report["scores"]["sampled"]["returns"]
    assert repr(sampled).startswith("EvalResult(mean ")

    tested = gs.evaluate(run, episodes=None)
    assert run.test is not None
    assert (tested.mean, tested.episodes) == (run.test.mean, run.test.episodes)
    stored = gs.evaluate(run, episodes=2, seed="val")
    assert run.best is not None
    assert stored.mean == run.best.score
    last = by_command(capsys, f"{run.id}/@last", "--episodes", "3")
    assert gs.evaluate(f"{run.id}/@last", 3).returns == last["scores"]["greedy"]["returns"]


def test_changed_environments(make_run: MakeRun) -> None:
    run = make_run(max_episode_steps=60)
    assert max(gs.evaluate(run, 3, max_episode_steps=5).lengths) <= 5
    with pytest.raises(ConfigError, match="n_steps has no effect outside training"):
        gs.evaluate(run, 3, n_steps=5)
    with pytest.raises(EnvError, match=r"with frame_stack changed has the observations"):
        gs.evaluate(run, 3, frame_stack=2)
    with pytest.raises(ConfigError, match="a config has no trained agent"):
        gs.evaluate("CartPole-v1:ppo")
    for bad in ("tset", -1, True):
        with pytest.raises(ConfigError, match="expected test, val, train or a number"):
            gs.evaluate(run, 3, seed=bad)
    with pytest.raises(ConfigError, match="as_trained is for an environment object"):
        gs.evaluate(run, 3, as_trained=True)
    with pytest.raises(ConfigError, match="episodes must be a whole number"):
        gs.evaluate(run, 0)


def test_an_environment_of_the_caller(make_run: MakeRun) -> None:
    run = make_run(env_wrappers=[SCALE, {"id": "RewardScale", "scale": 0.1}])
    env = gymnasium.make("CartPole-v1", max_episode_steps=30)
    first = gs.evaluate(run, 4, env=env, seed=3)
    assert first.returns == gs.evaluate(run.agent(), 4, env=env, seed=3).returns
    assert first.episodes == 4
    assert first.returns == [float(length) for length in first.lengths]
    made = gs.make_env(run)
    scores = gs.evaluate(run, 3, env=made, seed=3)
    assert scores.returns == [float(length) for length in scores.lengths], "raw, not scaled"
    vec = gs.make_env(run, n_envs=2)
    assert gs.evaluate(run, 4, env=vec).episodes == 4
    env.reset()  # still open
    with pytest.raises(EnvError, match="got the vector env"):
        gs.evaluate(run, 2, env=gymnasium.make_vec("CartPole-v1", 2))
    with pytest.raises(ConfigError, match="max_episode_steps: no effect on an environment"):
        gs.evaluate(run, 2, env=env, max_episode_steps=2)
    with pytest.raises(EnvError, match=r"act\(\) got an observation of shape \(3,\)"):
        gs.evaluate(run, 2, env=gymnasium.make("Pendulum-v1"))


@pytest.mark.parametrize("recurrent", [None, "gru"])
def test_a_made_environment_gives_the_same_episodes(
    recurrent: str | None, make_run: MakeRun
) -> None:
    run = make_run(recurrent=recurrent, vectorization_mode="sync", env_wrappers=[SCALE])
    expected = gs.evaluate(run, 4, seed=5, greedy=True, n_eval_envs=1)
    got = gs.evaluate(run, 4, seed=5, greedy=True, env=gs.make_env(run))
    assert (got.returns, got.lengths) == (expected.returns, expected.lengths)
    both = gs.evaluate(run, 4, seed=5, n_eval_envs=2)
    assert gs.evaluate(run, 4, seed=5, env=gs.make_env(run, 2)).returns == both.returns


@pytest.mark.filterwarnings("error:act:UserWarning")
def test_memory_in_a_vector_env(make_run: MakeRun) -> None:
    """Rows that begin an episode forget; the others do not."""
    run = make_run(recurrent="gru", max_episode_steps=3)
    agent, env = run.agent(), gs.make_env(run, 2)
    obs, _ = env.reset(seed=1)
    over = np.ones(2, bool)
    for step in range(8):
        agent.act(obs, is_first=over)
        carry = agent.policy._user_carry
        assert carry is not None
        other = run.agent()
        other.act(obs)
        begins = np.allclose(carry["core"], other.policy._user_carry["core"])
        assert begins == (step % 4 == 0)
        # The action at a row that is over does not count: the next one opens the new episode.
        obs, *_, info = env.step(np.zeros(2, int))
        over = info["episode_length"] == 0


def test_a_factory_takes_the_place_of_the_environment(make_run: MakeRun) -> None:
    run = make_run(env_wrappers=[SCALE])

    def short() -> gymnasium.Env[Any, Any]:
        return gymnasium.make("CartPole-v1", max_episode_steps=6)

    result = gs.evaluate(run, 5, env=short, seed=2)
    assert max(result.lengths) == 6
    assert not [name for name in gymnasium.registry if name.startswith("Python/")]


def test_sampling_leaves_the_agents_own_stream_alone(make_run: MakeRun) -> None:
    agent = make_run().agent()
    before = agent.policy.rng.bit_generator.state
    gs.evaluate(agent, 2, greedy=False)
    gs.evaluate(agent, 2, greedy=False, env=gymnasium.make("CartPole-v1"))
    assert agent.policy.rng.bit_generator.state == before
    np.testing.assert_equal(agent.policy.is_random, False)
