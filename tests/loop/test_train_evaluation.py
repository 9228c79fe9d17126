"""Evaluations of a run: seeds, shares of episodes, cadence; in the process of the training, and in
another one."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gymnasium_solver.algos.ppo import PPO
from gymnasium_solver.envs.make import env_from_config, make_vector_env
from gymnasium_solver.envs.vector import Step, VectorWrapper
from gymnasium_solver.errors import ConfigError, DivergedError, EnvError
from gymnasium_solver.runs.checkpoint import list_checkpoints, load_checkpoint
from gymnasium_solver.runs.jsonl import read_jsonl
from gymnasium_solver.runs.query import get_events, get_metrics
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training import loop
from gymnasium_solver.training.agents import build_agent, load_agent
from gymnasium_solver.training.evaluate import (
    BackgroundEvaluator,
    Validation,
    check_async,
    episode_shares,
    evaluate,
    n_eval_envs,
)
from gymnasium_solver.training.observer import Observer
from gymnasium_solver.training.prepare import load_config
from gymnasium_solver.training.progress import EvalCadence, eval_cadence
from gymnasium_solver.training.targets import find_run
from tests.loop.conftest import (
    Asks,
    Heard,
    SmallEnv,
    events,
    exact_resume,
    learning_rows,
    make_config,
    registered,
    resume,
    train,
    weight_hash,
)


def policy_for(env: Any, **fields: Any) -> Any:
    config = make_config("ppo", env.spec.env_id, **fields)
    return build_agent(config, env.observation_space, env.action_space).policy


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize(
    ("n_envs", "episodes", "of_each_length"),
    [
        (4, 10, {3: 3, 4: 3, 5: 2, 6: 2}),  # env i has episodes of 3 + i steps
        (4, 4, {3: 1, 4: 1, 5: 1, 6: 1}),
        (4, 2, {3: 1, 4: 1}),
        (1, 3, {3: 3}),
        (3, 20, {3: 7, 4: 7, 5: 6}),
    ],
)
def test_exactly_the_episodes_asked_for_shared_out_evenly(
    n_envs: int, episodes: int, of_each_length: dict[int, int], greedy: bool
) -> None:
    """Counting the first to finish instead would take nearly all from the envs that end early."""
    env = make_vector_env("Probe/Counting-v0", n_envs, env_kwargs={"length": 3, "ends": "both"})
    policy = policy_for(env)
    result = evaluate(policy, env, episodes, greedy=greedy, seed=5)
    lengths, counts = np.unique(result.lengths, return_counts=True)
    assert dict(zip(lengths.tolist(), counts.tolist(), strict=True)) == of_each_length
    assert len(result.returns) == result.episodes == episodes
    assert sorted(result.returns) == sorted(result.lengths), "the reward is 1 a step"
    assert result.mean == pytest.approx(np.mean(result.returns))
    assert result.std == pytest.approx(np.std(result.returns))
    assert (result.min, result.max) == (min(result.returns), max(result.returns))
    assert result.length_mean == pytest.approx(np.mean(result.lengths))


def test_shares_differ_by_one_at_most() -> None:
    for episodes in range(1, 40):
        for n_envs in range(1, 12):
            shares = episode_shares(episodes, n_envs)
            assert shares.sum() == episodes
            assert shares.max() - shares.min() <= 1


def test_never_more_envs_than_episodes() -> None:
    config = make_config("ppo", "Acrobot-v1", n_envs=4)
    assert [n_eval_envs(config, n) for n in (1, 5, 64, 100)] == [1, 5, 64, 50]  # full rounds
    in_numpy = make_config("ppo", "CartPole-v1", n_envs=4)
    assert [n_eval_envs(in_numpy, n) for n in (1, 100, 300)] == [1, 100, 150]
    assert n_eval_envs(config.replace(n_eval_envs=3), 100) == 3
    in_processes = config.replace(vectorization_mode="async")
    assert [n_eval_envs(in_processes, n) for n in (2, 10)] == [2, 4]


def test_scores_are_raw_whatever_the_wrappers_do() -> None:
    wrappers = [{"id": "RewardScale", "scale": 0.5}]
    env = make_vector_env("Probe/Counting-v0", 1, env_wrappers=wrappers)
    assert evaluate(policy_for(env), env, 2, greedy=True, seed=1).mean == 5


@pytest.mark.parametrize("fields", [{}, {"eval_deterministic": False}], ids=["greedy", "sampled"])
@pytest.mark.parametrize("algo_id", ["ppo", "reinforce"])
def test_training_does_not_notice_evaluation(algo_id: str, fields: dict[str, Any]) -> None:
    normalised = {"normalize_obs": "rolling", "normalize_reward": True}
    never = train(algo_id, "CartPole-v1", **normalised)
    always = train(
        algo_id, "CartPole-v1", eval_freq_epochs=1, eval_episodes=3, **normalised, **fields
    )
    assert weight_hash(always) == weight_hash(never)
    trained = [
        {name: value for name, value in row.items() if not name.startswith("val/")}
        for row in learning_rows(always)
    ]
    assert trained == learning_rows(never)


def test_statistics_are_frozen_in_evaluation_and_are_those_of_training() -> None:
    fields = {"normalize_obs": "rolling", "n_envs": 2}
    config = make_config("ppo", "Pendulum-v1", **fields)
    env = env_from_config(config, 2)
    agent = build_agent(config, env.observation_space, env.action_space)
    assert isinstance(agent, PPO)
    agent.encoder.observe(np.random.default_rng(0).normal(3, 2, (50, 3)).astype(np.float32))
    tensors, extra = agent.state()
    before = {name: value.clone() for name, value in tensors["model"].items()}
    rng_before = dict(extra["act_rng"])
    for greedy in (True, False):
        evaluate(agent.policy, env, 2, greedy=greedy, seed=1)
    tensors, extra = agent.state()
    for name, value in tensors["model"].items():
        assert (value == before[name]).all(), name
    assert extra["act_rng"] == rng_before
    assert float(before["encoder.normalizer.count"]) == 50


def test_an_evaluation_that_fails_gives_the_training_stream_back() -> None:
    env = make_vector_env("Probe/Counting-v0", 2)
    policy = policy_for(env)
    rng = policy.rng
    env.close()
    with pytest.raises(Exception, match=r"after close"):
        evaluate(policy, env, 2, greedy=False, seed=1)
    assert policy.rng is rng


@pytest.mark.parametrize("spoilt", range(3))
def test_a_return_that_is_not_finite_is_no_score(spoilt: int) -> None:
    """Whichever of the episodes that end at the same step has it."""

    class Spoil(VectorWrapper):
        def step(self, actions: Any) -> Step:
            step = self.env.step(actions)
            returns = step.episode_return.astype(float)
            returns[spoilt] = np.nan
            return step._replace(episode_return=returns)

    env = Spoil(make_vector_env("Bandit-v0", 3))
    with pytest.raises(DivergedError, match="the return of an episode is nan"):
        evaluate(policy_for(env), env, 3, greedy=True, seed=1)


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_stored_score_is_reproduced_from_the_best_checkpoint(
    deterministic: bool, tmp_path: Path
) -> None:
    run = train(
        *("ppo", "CartPole-v1"),
        normalize_obs="rolling",
        eval_freq_epochs=2,
        eval_episodes=5,
        max_epochs=6,
        eval_deterministic=deterministic,
        early_stop_on_eval_threshold=None,
    )
    stored = load_checkpoint(run.checkpoints_dir / "best").metrics
    told = stored["eval"]
    assert stored["score"] == told["mean"] == run.meta()["best"]["score"]
    assert told["mean"] == max(e["mean"] for e in events(run, "eval") if e["stage"] == "val")

    config = load_config(str(run.config_path))
    agent = load_agent(f"{run.id}/@best", tmp_path / "runs")
    env = env_from_config(config, n_eval_envs(config, told["episodes"]))
    again = evaluate(agent.policy, env, told["episodes"], greedy=told["greedy"], seed=told["seed"])
    assert (again.returns, again.lengths) == (told["returns"], told["lengths"])
    other = evaluate(agent.policy, env, told["episodes"], greedy=told["greedy"], seed=1)
    assert other.returns != told["returns"], "the seed is what makes it the same"


def test_the_final_test_is_of_the_best_policy_on_episodes_of_its_own(tmp_path: Path) -> None:
    heard = Heard()
    fields = {"eval_freq_epochs": 1, "eval_episodes": 4, "test_episodes": 6, "seed": 2}
    fields["eval_deterministic"] = True
    run = train("ppo", "CartPole-v1", observer=heard, policy_lr=0.05, **fields)  # up and down
    best = run.meta()["best"]
    assert best["epoch"] < run.meta()["epoch"], "the best must not be the last here"
    assert {name: r.greedy for name, r in heard.final.items()} == {"greedy": True, "sampled": False}
    val_seeds = {r.seed for r, _ in heard.evals}
    assert len(val_seeds) == 4, "every evaluation draws its own episodes"
    for result in heard.final.values():
        assert (result.episodes, result.env_steps, result.epoch) == (
            *(6, best["env_steps"]),
            best["epoch"],
        )
        assert result.seed not in val_seeds
    greedy = heard.final["greedy"]
    assert run.meta()["test"] == greedy.score()
    assert greedy.stderr == pytest.approx(np.std(greedy.returns, ddof=1) / 6**0.5)
    agent = load_agent(f"{run.id}/@best", tmp_path / "runs")
    env = env_from_config(load_config(str(run.config_path)), 6)
    again = evaluate(agent.policy, env, 6, greedy=True, seed=greedy.seed)
    assert again.returns == greedy.returns
    assert [e["mean"] for e in events(run, "eval") if e["stage"] == "test"] == [
        greedy.mean,
        heard.final["sampled"].mean,
    ]


def test_the_test_follows_eval_deterministic() -> None:
    fields = {"eval_freq_epochs": 1, "eval_episodes": 2, "eval_deterministic": False}
    heard = Heard()
    run = train("ppo", "CartPole-v1", observer=heard, **fields)
    assert run.meta()["test"] == heard.final["sampled"].score()
    assert run.meta()["test"]["greedy"] is False


class Alternating(SmallEnv):
    """Pays for another action than the last one: greedy actions, all the same, are paid once."""

    def reset(self, **kwargs: Any) -> Any:
        self.last = 1
        return super().reset(**kwargs)

    def pay(self, action: int) -> float:
        changed, self.last = action != self.last, action
        return float(changed)

    def ends(self) -> bool:
        return self.t == 12


class Steady(Alternating):
    """Pays for the action that a policy prefers, whichever it is: for the same one again."""

    def pay(self, action: int) -> float:
        return 1.0 - super().pay(action)


STUCK: dict[str, Any] = {"eval_freq_epochs": 1, "eval_episodes": 8, "test_episodes": 8}


def test_auto_takes_the_better_of_greedy_and_sampled_actions() -> None:
    heard = Heard()
    run = train("ppo", registered(Alternating), observer=heard, policy_lr=1e-6, **STUCK)
    assert [result.greedy for result, _ in heard.evals] == [False] * 4
    assert heard.evals[0][0].other["mean"] <= 1 < heard.evals[0][0].mean
    assert heard.final["greedy"].mean <= 1 < heard.final["sampled"].mean
    meta = run.meta()
    assert meta["test"] == heard.final["sampled"].score()
    assert meta["best"]["greedy"] is False
    assert "sampled" in meta["test_note"]
    rows: Any = get_metrics(run, ["val/roll/ep_rew/*"])
    assert rows["val/roll/ep_rew/greedy"][0][1] <= 1 < rows["val/roll/ep_rew/sampled"][0][1]
    assert any("sampled actions score more" in text for text in heard.notes)


def test_auto_stays_greedy_where_that_is_better_and_compares_less_and_less() -> None:
    heard = Heard()
    fields = {**STUCK, "policy_lr": 1e-6, "max_epochs": 8}
    run = train("ppo", registered(Steady), observer=heard, **fields)
    results = [result for result, _ in heard.evals]
    assert all(result.greedy for result in results)
    assert [bool(result.other) for result in results] == [
        *(True, False, True, False),
        *(False, False, True, False),
    ]
    assert all(result.other["episodes"] == 2 for result in results if result.other)
    assert run.meta()["test"] == heard.final["greedy"].score()


@pytest.mark.parametrize("algo_id", ["dqn", "td3"])
def test_auto_is_greedy_where_sampling_only_explores(algo_id: str) -> None:
    heard, env_id = Heard(), {"dqn": registered(Alternating), "td3": "Pendulum-v1"}[algo_id]
    train(algo_id, env_id, observer=heard, **STUCK, max_epochs=1)
    assert all(result.greedy and not result.other for result, _ in heard.evals)


def test_a_resume_chooses_the_same_actions() -> None:
    fields = {**STUCK, "policy_lr": 0.01, "max_epochs": 6}
    whole, run = exact_resume("ppo", registered(Alternating), at=3, every=1, **fields)
    own, other = ([{**e, "at": 0} for e in events(r, "eval")] for r in (run, whole))
    assert own == other
    assert run.meta()["test"] == whole.meta()["test"]


def test_without_validations_auto_compares_before_the_test() -> None:
    fields = {"reward_threshold": 100.0, "test_episodes": 8, "policy_lr": 1e-6}
    run = train("ppo", registered(Alternating), **fields)
    assert run.meta()["test"]["greedy"] is False
    assert [event["stage"] for event in events(run, "eval")] == ["comparison", "test", "test"]


def test_an_agent_acts_as_its_run_is_judged(tmp_path: Path) -> None:
    run = train("ppo", registered(Alternating), policy_lr=1e-6, **STUCK)
    agent, obs = load_agent(run.id, tmp_path / "runs"), np.zeros(1, np.float32)
    assert {int(agent.act(obs)) for _ in range(50)} == {0, 1}
    assert len({int(agent.act(obs, greedy=True)) for _ in range(50)}) == 1
    assert find_run(run.id, tmp_path / "runs").is_greedy() is False


def test_evaluations_may_repeat_actions_otherwise_than_training() -> None:
    fields = {"frame_skip": 2, "eval_frame_skip": 4, "eval_freq_epochs": 1, "eval_episodes": 2}
    run = train("ppo", registered(Alternating), max_epochs=1, **fields)
    assert {event["length_mean"] for event in events(run, "eval")} == {3.0}  # 12 frames
    assert read_jsonl(run.metrics_path)[-1]["train/roll/ep_len/mean"] == 6.0


# -- how many episodes ------------------------------------------------------------------------


def test_a_short_trial_is_not_followed_by_a_long_test() -> None:
    fields = {"eval_freq_epochs": 1, "n_envs": 2, "n_steps": 60, "max_epochs": 1}
    run = train("ppo", registered(Alternating), test_episodes="auto", **fields)
    of_stage = {event["stage"]: event["episodes"] for event in events(run, "eval")}
    assert of_stage == {"val": 10, "test": 9}  # 12 steps each, of 120 and of those that count
    assert "9 test episodes instead of 100" in run.meta()["test_note"]


@pytest.mark.parametrize("threshold", [1.5, 100.0], ids=["reached", "missed"])
def test_a_claimed_verdict_has_the_whole_test(threshold: float) -> None:
    fields = {"n_envs": 2, "n_steps": 60, "max_epochs": 1, "test_episodes": 40, "policy_lr": 1e-6}
    goal = {"reward_threshold": threshold, "early_stop_on_eval_threshold": None}
    run = train("ppo", registered(Alternating), eval_freq_epochs=1, **fields, **goal)
    assert run.meta()["test"]["episodes"] == (40 if threshold == 1.5 else 10)


class Waiting(Alternating):
    """Ends after four changes: greedy actions play to the limit."""

    n_paid = 0.0

    def reset(self, **kwargs: Any) -> Any:
        self.n_paid = 0.0
        return super().reset(**kwargs)

    def pay(self, action: int) -> float:
        paid = super().pay(action)
        self.n_paid += paid
        return paid

    def ends(self) -> bool:
        return self.n_paid >= 4


def test_actions_that_are_only_shown_play_no_longer_than_those_that_judge() -> None:
    heard = Heard()
    fields = {**STUCK, "max_episode_steps": 400, "n_steps": 200, "max_epochs": 1}
    train("ppo", registered(Waiting), observer=heard, policy_lr=1e-6, **fields)
    judged, shown = heard.final["sampled"], heard.final["greedy"]
    assert (judged.episodes, shown.episodes) == (8, 2)
    assert shown.length_mean == 400


def test_episodes_that_were_asked_for_are_played_where_there_is_no_threshold() -> None:
    fields = {"n_envs": 1, "n_steps": 12, "max_epochs": 1, "eval_freq_epochs": 1}
    run = train("ppo", registered(Alternating), test_episodes=25, **fields)
    assert run.meta()["test"]["episodes"] == 25


def test_ties_go_to_the_later_checkpoint() -> None:
    """Counting: all evaluations score the same, so the last one is the best."""
    heard = Heard()
    run = train("ppo", "Probe/Counting-v0", observer=heard, eval_freq_epochs=1, eval_episodes=2)
    assert [is_best for _, is_best in heard.evals] == [True] * 4
    assert heard.saved == ["best"] * 4
    assert run.meta()["best"]["epoch"] == run.meta()["last_eval"]["epoch"] == 4


def epochs_evaluated(run: Run) -> list[int]:
    return [event["epoch"] for event in events(run, "eval") if event["stage"] == "val"]


def due(should_eval: EvalCadence, n_epochs: int, steps_per_epoch: int = 1) -> list[int]:
    """The epochs at which an evaluation is due."""
    return [
        epoch
        for epoch in range(1, n_epochs + 1)
        if should_eval(epoch, steps_per_epoch * (epoch - 1), steps_per_epoch * epoch)
    ]


def test_cadence_as_documented() -> None:
    assert due(EvalCadence(15, warmup_epochs=50), 100) == [60, 75, 90]
    assert due(EvalCadence(10), 39) == [10, 20, 30]
    # Up to and including the warm-up nothing is evaluated.
    assert due(EvalCadence(10, warmup_epochs=20), 39) == [30]
    for never in (None, 0):
        assert due(EvalCadence(never), 100) == []


def test_cadence_in_env_steps_is_the_first_epoch_at_or_after_each_multiple() -> None:
    every_100 = EvalCadence(None, n_steps=100)
    assert due(every_100, 12, steps_per_epoch=30) == [4, 7, 10]  # 120, 210, 300
    assert due(every_100, 6, steps_per_epoch=100) == [1, 2, 3, 4, 5, 6]
    assert due(every_100, 3, steps_per_epoch=250) == [1, 2, 3]  # several multiples: once
    assert due(EvalCadence(None, n_steps=100, warmup_epochs=5), 12, steps_per_epoch=30) == [7, 10]


def test_the_warm_up_may_be_a_fraction_of_the_planned_epochs() -> None:
    fields = {"max_epochs": 100, "eval_freq_epochs": 20}
    config = make_config("ppo", "CartPole-v1", **fields, eval_warmup_epochs=0.5)
    assert due(eval_cadence(config, planned_epochs=100), 100) == [60, 80, 100]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"eval_freq_epochs": 2, "eval_warmup_epochs": 3}, [4, 6, 7]),  # and at the end, always
        ({"eval_freq_epochs": 2, "eval_warmup_epochs": 0.6}, [6, 7]),
        ({"eval_freq_epochs": 3}, [3, 6, 7]),
        ({"eval_freq_epochs": 100}, [7]),
        ({"eval_freq_steps": 100}, [3, 5, 7]),  # about 41 env steps an epoch
        ({"eval_freq_steps": 10_000}, [7]),
    ],
    ids=str,
)
def test_cadence_of_a_run(fields: dict[str, Any], expected: list[int]) -> None:
    run = train("ppo", "Probe/Counting-v0", max_epochs=7, eval_episodes=1, **fields)
    assert epochs_evaluated(run) == expected
    assert run.meta()["test"] is not None


@pytest.mark.parametrize("stop_at", [2, 3, 4])
def test_a_cadence_in_env_steps_survives_a_resume(stop_at: int) -> None:
    """Epochs have about 41 env steps: whether one is due depends on the steps before it."""
    fields = {"eval_freq_steps": 100, "eval_episodes": 1}
    run = train("ppo", "Probe/Counting-v0", max_epochs=stop_at, **fields)
    resume(run.id, max_epochs=7)
    evaluated = [epoch for epoch in epochs_evaluated(run) if epoch != stop_at]
    assert evaluated == [epoch for epoch in (3, 5, 7) if epoch != stop_at]


@pytest.mark.parametrize("never", [None, 0])
def test_evaluation_off_is_off(never: int | None) -> None:
    heard = Heard()
    run = train("ppo", "Probe/Counting-v0", observer=heard, eval_freq_epochs=never)
    assert events(run, "eval") == []
    assert heard.evals == []
    assert heard.final == {}
    assert run.meta()["test"] is None
    assert not (run.checkpoints_dir / "best").exists()
    assert (run.checkpoints_dir / "last").exists()


# -- eval_async: the same evaluations as in the training process, at the env steps they belong to -


VAL = "val/roll/ep_rew/mean"
FIELDS: dict[str, Any] = {
    "n_envs": 2,
    "n_steps": 16,
    "max_epochs": 7,
    "eval_freq_epochs": 2,
    "eval_episodes": 3,
    "test_episodes": 3,
    "hidden_dims": [8],
    "seed": 5,
    "keep_checkpoints": 0,
    "checkpoint_freq_epochs": 1,
    "early_stop_on_eval_threshold": None,
}


def run_it(root: Path, observers: tuple[Observer, ...] = (), **fields: Any) -> Run:
    config = load_config("CartPole-v1:ppo", overrides=FIELDS | {"eval_async": True} | fields)
    return loop.train(config, runs_root=root, observers=observers)


def scores(run: Run) -> list[tuple[int, float | None]]:
    return get_metrics(run, [VAL])[VAL]


def weights(run: Run) -> dict[str, np.ndarray]:
    last = list_checkpoints(run.checkpoints_dir)[-1]
    return load_checkpoint(last.path).tensors["model"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_it(tmp_path_factory.mktemp("whole"))


def test_same_as_in_the_training_process(tmp_path: Path, whole: Run) -> None:
    plain = run_it(tmp_path, eval_async=False)
    assert scores(whole) == scores(plain)
    assert whole.meta()["best"] == plain.meta()["best"]
    assert whole.meta()["test"] == plain.meta()["test"]
    for name, array in weights(plain).items():
        assert np.array_equal(array, weights(whole)[name]), name
    best = [c for c in list_checkpoints(whole.checkpoints_dir) if c.is_best]
    assert best[0].score == whole.meta()["best"]["score"]
    load_checkpoint(best[0].path)  # its manifest holds after the score was added


@pytest.mark.parametrize("stop_at", [3, 4])
def test_resume_is_exact(tmp_path: Path, whole: Run, stop_at: int) -> None:
    """Also with an evaluation pending: it is made again, and logged once."""
    run = run_it(tmp_path, (Asks("stop", stop_at, "test"),))
    loop.resume(run.id, runs_root=tmp_path)
    assert scores(run) == scores(whole)
    assert run.meta()["best"] == whole.meta()["best"]
    val = [e["env_steps"] for e in get_events(run, "eval") if e["stage"] == "val"]
    assert val == sorted(set(val))
    for name, array in weights(whole).items():
        assert np.array_equal(array, weights(run)[name]), name


def test_a_goal_is_tested_and_ends_the_run(tmp_path: Path) -> None:
    run = run_it(tmp_path, max_epochs=20, early_stop_on_eval_threshold=True, reward_threshold=5.0)
    meta = run.meta()
    assert (meta["stop_reason"], meta["solved"]) == ("solved", True)
    assert meta["epoch"] == 4  # one evaluation after the one that reached it
    assert meta["best"]["epoch"] == 2
    tests = [event for event in get_events(run, "eval") if event["stage"] == "test"]
    assert {event["env_steps"] for event in tests} == {meta["best"]["env_steps"]}


def test_a_dead_process_is_told(tmp_path: Path, whole: Run) -> None:
    evaluator = BackgroundEvaluator(whole)
    best = next(c for c in list_checkpoints(whole.checkpoints_dir) if c.is_best)
    try:
        evaluator.submit(best.path, best.env_steps, 2, Validation(3))
        process = evaluator._process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(EnvError, match=r"ended with exit code -9.*--eval-async false"):
            evaluator.result()
    finally:
        evaluator.close()


def test_an_environment_given_as_code_is_refused() -> None:
    config = load_config("CartPole-v1:ppo").replace(env_id="Python/Mine")
    with pytest.raises(ConfigError, match="given as Python code"):
        check_async(config)
