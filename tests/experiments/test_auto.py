"""`gsolve solve`: what is measured, what follows from it, and the way to a verdict."""

import dataclasses
import json
import math
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from gymnasium_solver.algos import algo_ids
from gymnasium_solver.cli.main import main
from gymnasium_solver.envs import probe as probing
from gymnasium_solver.envs.probe import Probe, from_dict, hidden_share, probe
from gymnasium_solver.envs.random_steps import Rollout
from gymnasium_solver.errors import ConfigError, EnvError, RunError, TrustError
from gymnasium_solver.experiments import auto, experiment, pool
from gymnasium_solver.experiments.auto import budget as budgets
from gymnasium_solver.experiments.auto import solve as solving
from gymnasium_solver.experiments.auto.budget import (
    Budget,
    affordable_steps,
    run_config,
    stop_fields,
    time_text,
    why_no_race,
)
from gymnasium_solver.experiments.auto.checks import (
    REMEDIES,
    disagreement,
    is_above_random,
    judged,
    outlook,
    remedy,
)
from gymnasium_solver.experiments.auto.solve import Solve, create, load
from gymnasium_solver.experiments.pool import Pool, Task
from gymnasium_solver.registry import config_class
from gymnasium_solver.runs.alerts.rules import RULES
from gymnasium_solver.runs.query import RunSummary
from gymnasium_solver.runs.run import Run
from gymnasium_solver.training import choose as choosing
from gymnasium_solver.training.choose import (
    RECALLED,
    Candidate,
    by_length,
    choose,
    is_sparse,
    presets,
)
from gymnasium_solver.training.prepare import build_config, load_config


class Nan(gymnasium.Env[np.ndarray, np.int64]):
    """Pays NaN after some steps; `begins` None: normal noise, and no episode ends."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, begins: int | None = 0, **_: Any) -> None:
        self.begins, self.n_steps = begins, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, Any]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, Any]:
        self.n_steps += 1
        reward = float(self.np_random.normal())
        if self.begins is not None and self.n_steps > self.begins:
            reward = math.nan
        is_over = self.begins is not None and self.n_steps % 20 == 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), reward, is_over, False, {}


for name, begins in (("Nan", 0), ("Endless", None), ("LateNan", 1200)):
    gymnasium.register(f"{name}-v0", Nan, kwargs={"begins": begins})


@pytest.fixture(autouse=True)
def _trainings_take_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here they are real: asking all the time would take the processor from them."""
    monkeypatch.setattr(pool, "POLL_S", 0.05)


DENSE = Probe(
    env_id="x", observes="Box(3)", acts="Box(1)", sees="vector", moves="box", has_masks=False,
    has_goals=False, limit=200, horizon=200, threshold=None, episodes=40, random_mean=-1200.0,
    random_sd=200.0, reward_density=1.0, usual_reward=-1.0, terminated=0.0, ambiguous=None,
    history=None,
    hidden=0.0, step_us=50.0, many_step_us=5.0, engine="envpool", steps=8000, seconds=2.0,
)  # fmt: skip
CHOICES = dataclasses.replace(DENSE, acts="Discrete(2)", moves="discrete")


def names(p: Probe, **affordable: float) -> tuple[str, str]:
    found = choose(p, affordable or None)
    return found.first.name, found.contrast.name


# -- the table ------------------------------------------------------------------------------------


def test_every_preset_is_a_config() -> None:
    for name, fields in presets().items():
        assert set(fields) <= set(config_class(fields["algo_id"]).model_fields), name
        build_config({"env_id": "CartPole-v1", **fields})


@pytest.mark.parametrize(
    ("changes", "affordable", "expected"),
    [
        ({}, {}, ("sac_batch_norm", "ppo_box")),
        ({}, {"on": 1e6, "off": 1e4}, ("ppo_box", "sac_batch_norm")),
        ({}, {"on": 9e5, "off": 1e4}, ("sac_batch_norm", "ppo_box")),
        ({"reward_density": 0.001, "usual_reward": 0.0}, {}, ("sac_sphere", "ppo_box+rnd")),
        ({"by_action": 0.999}, {}, ("sac_sphere", "ppo_box+rnd")),
        ({"by_action": 0.95}, {}, ("sac_batch_norm", "ppo_box")),
        ({"by_action": 0.999, "terminated": 0.2}, {}, ("sac_batch_norm", "ppo_box")),
        ({"is_bounded": False}, {}, ("ppo_box", "ppo_box+rnd")),
        ({"is_bounded": False, "has_goals": True}, {}, ("ppo_box", "ppo_box+rnd")),
        ({"is_bounded": False, "by_action": 0.999}, {}, ("ppo_box+rnd", "ppo_box")),
        ({"hidden": 0.5}, {}, ("sac_batch_norm+stack", "ppo_box+gru")),
        ({"recalled": 0.6}, {}, ("ppo_box+gru", "ppo_box")),
        ({"has_goals": True}, {}, ("sac_goals", "td3_goals")),
    ],
)
def test_real_valued_actions(
    changes: dict[str, Any], affordable: dict[str, float], expected: tuple[str, str]
) -> None:
    assert names(dataclasses.replace(DENSE, **changes), **affordable) == expected


@pytest.mark.parametrize(
    ("changes", "affordable", "expected"),
    [
        ({}, {}, ("ppo_discrete", "dqn")),
        ({"sees": "discrete"}, {}, ("mbie", "ppo_discrete")),
        ({"sees": "discrete", "has_masks": True}, {}, ("mbie", "ppo_discrete")),
        (
            {"sees": "discrete", "reward_density": 0.0, "usual_reward": 0.0},
            {},
            ("mbie", "ppo_discrete+count"),
        ),
        (
            {"sees": "discrete", "reward_density": 0.0, "usual_reward": -1.0, "terminated": 1.0},
            {},
            ("mbie", "ppo_discrete"),
        ),
        ({"recalled": 0.3}, {}, ("ppo_discrete", "dqn")),
        ({"recalled": 0.6}, {}, ("ppo_discrete+gru", "ppo_discrete")),
        ({"reward_density": 0.0}, {}, ("ppo_discrete+count", "dqn")),
        ({"reward_density": 0.0, "terminated": 1.0}, {}, ("ppo_discrete", "dqn")),
        ({"reward_density": 0.003, "rewarded": 0.3}, {}, ("ppo_discrete", "dqn")),
        ({"reward_density": 0.003, "rewarded": 0.1}, {}, ("ppo_discrete+count", "dqn")),
        ({"ambiguous": 0.3, "history": 2}, {}, ("ppo_discrete+gru", "ppo_discrete")),
        ({"ambiguous": 0.3}, {}, ("ppo_discrete", "ppo_discrete+gru")),
        ({"has_masks": True}, {}, ("ppo_discrete", "ppo_discrete+count")),
        ({"sees": "image"}, {}, ("pqn_image", "ppo_image+rnd")),
        ({"moves": "product"}, {}, ("ppo_discrete", "ppo_discrete+count")),
    ],
)
def test_choices(
    changes: dict[str, Any], affordable: dict[str, float], expected: tuple[str, str]
) -> None:
    assert names(dataclasses.replace(CHOICES, **changes), **affordable) == expected


def test_a_constant_reward_is_no_sparse_one_where_episodes_end() -> None:
    constant = dataclasses.replace(CHOICES, reward_density=0.0, usual_reward=1.0)
    assert not is_sparse(dataclasses.replace(constant, terminated=1.0))
    assert is_sparse(dataclasses.replace(constant, terminated=0.0))
    assert is_sparse(dataclasses.replace(constant, terminated=1.0, usual_reward=0.0))


@pytest.mark.parametrize(("usual", "normalize"), [(-1.0, "size"), (-500.0, "size"), (0.0, True)])
def test_a_reward_that_is_always_the_same_is_no_scale_of_returns(
    usual: float, normalize: bool | str
) -> None:
    rare = dataclasses.replace(CHOICES, reward_density=0.0, usual_reward=usual)
    fields = choose(rare).first.fields
    assert fields["normalize_reward"] == normalize
    assert fields["intrinsic"]["coef"] == (1.0 if usual else 0.3)
    build_config({"env_id": "CartPole-v1", **fields})


@pytest.mark.parametrize(
    ("horizon", "gamma", "of_sac"), [(1000, 0.995, 0.99), (200, 0.975, 0.975), (10, 0.95, 0.95)]
)
def test_gamma_follows_from_the_length_of_an_episode(
    horizon: int, gamma: float, of_sac: float
) -> None:
    """The gamma of a preset is an upper limit: where it applies, the reasons say so."""
    found = choose(dataclasses.replace(DENSE, horizon=horizon))
    assert found.contrast.fields["gamma"] == pytest.approx(gamma)
    assert found.first.fields["gamma"] == pytest.approx(of_sac)
    limited = f"{found.first.name}: gamma 0.99, the most of this preset"
    assert (limited in found.reasons) is (of_sac < gamma)


@pytest.mark.parametrize(("horizon", "gae_lambda"), [(1000, 0.98), (500, 0.95)])
def test_rewards_reach_far_back_in_long_episodes(horizon: int, gae_lambda: float) -> None:
    assert (
        choose(dataclasses.replace(CHOICES, horizon=horizon)).first.fields["gae_lambda"]
        == gae_lambda
    )


def test_what_follows_from_the_length_of_a_run() -> None:
    """A bonus fades, so that the task counts in the end; short budgets have short rollouts."""
    fields = {**presets()["ppo_discrete"], "intrinsic": {"kind": "count", "coef": 0.1}}
    found = by_length(fields, 100_000)
    assert found["intrinsic"]["coef"] == {"start": 0.1, "end": 0.0, "to": 50_000}
    assert (found["n_steps"], found["batch_size"]) == (128, 256)
    short = by_length(fields, 10_000)
    assert (short["n_steps"], short["batch_size"]) == (32, 64)
    assert 10_000 // (8 * short["n_steps"]) >= 32
    middle = by_length(fields, 50_000)
    assert (middle["n_steps"], middle["batch_size"]) == (128, 128)
    build_config({"env_id": "CartPole-v1", **fields, **short})
    assert by_length(fields | {"recurrent": "gru"}, 10_000)["batch_size"] == 128


@pytest.mark.parametrize(("changes", "length"), [
    ({"recalled": 0.8}, 32), ({"ambiguous": 0.3, "history": 2, "recalled": 0.8}, None)
])  # fmt: skip
def test_what_is_long_ago_is_learnt_from_longer_sequences(
    changes: dict[str, Any], length: int | None
) -> None:
    fields = choose(dataclasses.replace(CHOICES, **changes)).first.fields
    assert (fields["recurrent"], fields.get("sequence_length")) == ("gru", length)


def test_a_training_stops_beyond_the_threshold() -> None:
    """One that stops just at it has a lower score than one that goes on."""
    p = dataclasses.replace(CHOICES, threshold=475.0, random_mean=25.0)
    assert choose(p).first.fields["early_stop_on_eval_threshold"] == 497.5
    assert "early_stop_on_eval_threshold" not in choose(CHOICES).first.fields
    goals = [stop_fields(choose(p).first, b) for b in (Budget(minutes=1.0), Budget(env_steps=1))]
    assert [goal["early_stop_on_eval_threshold"] for goal in goals] == [497.5, False]


def test_what_cannot_be_recognised_by_its_name() -> None:
    """No id of an environment in the code and the presets of `auto`."""
    shipped = [
        name for name, entry in gymnasium.registry.items()
        if str(entry.entry_point).startswith(("gymnasium.envs", "ale_py"))  # other tests add more
    ]  # fmt: skip
    configs = Path(choosing.__file__).parents[1].joinpath("configs").rglob("*-v*.yaml")
    ids = [name.rpartition("/")[2] for name in [*shipped, *(path.stem for path in configs)]]
    stems = {re.sub(r"-v\d+$", "", name).lower() for name in ids if len(name) > 6}
    folder = Path(auto.__file__).parent
    rooms = [*folder.glob("*.py"), *(Path(m.__file__ or "") for m in (probing, choosing))]
    rooms.append(Path(choosing.__file__).with_name("portfolio.yaml"))
    text = "".join(path.read_text() for path in rooms).lower()
    code = re.sub(r'""".*?"""', "", text, flags=re.DOTALL)
    assert [stem for stem in stems if re.search(rf"\b{re.escape(stem)}\b", code)] == []


# -- measurements ---------------------------------------------------------------------------------


def moving_points(sees_velocity: bool, n_rows: int = 400) -> Rollout:
    """Points that are pushed left or right, four at a time, and start anew after 50 steps."""
    rng = np.random.default_rng(0)
    actions = rng.integers(2, size=(n_rows, 4))
    place, speed = rng.normal(size=4), rng.normal(size=4)
    obs, resets = [], []
    for t, action in enumerate(actions):
        is_new = t % 50 == 0
        if is_new:
            place, speed = rng.normal(size=4), rng.normal(size=4)
        else:
            speed = 0.9 * speed + 0.2 * (2 * action - 1)
            place = place + 0.1 * speed
        obs.append(np.stack([place, speed] if sees_velocity else [place], axis=1))
        resets.append([is_new] * 4)
    is_reset = np.array(resets)
    over = np.roll(is_reset, -1, axis=0)
    zeros = np.zeros((n_rows, 4), np.float32)
    seen = np.array(obs, np.float32)
    return Rollout(
        seen[0], seen, actions, zeros, over, np.zeros_like(over), over, is_reset, [], [], []
    )


def test_missing_velocities_are_noticed() -> None:
    space = gymnasium.spaces.Discrete(2)
    assert hidden_share(space, moving_points(sees_velocity=True)) == pytest.approx(0.0, abs=0.02)
    assert (hidden_share(space, moving_points(sees_velocity=False)) or 0.0) > 0.5


def cues(lag: int | None, n_rows: int = 400) -> Rollout:
    """Noise in which a sign is shown, four at a time, in episodes of ten steps. The last step pays
    if the action is the sign of the first; with `lag` every step, that of so many steps before."""
    rng = np.random.default_rng(0)
    is_reset = np.tile((np.arange(n_rows) % 11 == 10)[:, None], 4)
    over = np.roll(is_reset, -1, axis=0)
    actions = rng.integers(2, size=(n_rows, 4))
    signs = rng.choice([-1.0, 1.0], size=(n_rows + 1, 4))  # seen before each row, and at last
    starts = np.arange(n_rows + 1) % 11 == 0
    shown = signs * (starts[:, None] if lag is None else 1.0)
    ends = np.arange(n_rows + 1) % 11 == 9
    seen = np.stack([shown, np.tile(ends[:, None], 4), rng.normal(size=shown.shape)], axis=2)
    told = np.zeros((n_rows, 4), np.float32)
    for row in range(n_rows):
        from_row = row - row % 11 if lag is None else row - lag
        if (ends[row] if lag is None else row % 11 >= lag) and not is_reset[row, 0]:
            told[row] = actions[row] == (signs[from_row] > 0)
    return Rollout(
        seen[0], seen[1:], actions, told, over, np.zeros_like(over), over, is_reset, [], [], []
    )


@pytest.mark.parametrize(("lag", "is_recalled"), [(None, True), (3, True), (0, False)])
def test_rewards_for_what_was_seen_before_are_noticed(lag: int | None, is_recalled: bool) -> None:
    found = probing.recalled_share(gymnasium.spaces.Discrete(2), cues(lag))
    assert found is not None
    assert (found > RECALLED) is is_recalled


def test_rewards_for_what_is_seen_recall_nothing() -> None:
    points, space = moving_points(sees_velocity=True), gymnasium.spaces.Discrete(2)
    before = np.concatenate([points.first_obs[None], points.obs[:-1]])
    for reward in (before[..., 0], -np.abs(before[..., 1]), before[..., 0] > 1.5):
        given = dataclasses.replace(points, reward=reward.astype(np.float32))
        assert (probing.recalled_share(space, given) or 0.0) < 0.1
    assert probing.recalled_share(space, points) is None, "all rewards are equal"
    whole = dataclasses.replace(
        points, first_obs=points.first_obs.astype(np.int64), obs=points.obs.astype(np.int64),
        reward=before[..., 0],
    )  # fmt: skip
    assert probing.recalled_share(space, whole) is None, "choices are no numbers"


@pytest.mark.parametrize(("steps", "expected"), [
    (60_000, "ppo_discrete+gru"), (30_000, "ppo_discrete"), (120_000, "ppo_discrete+gru"),
])  # fmt: skip
def test_a_short_probe_of_choices_goes_on_until_memory_is_told(
    steps: int, expected: str, tmp_path: Path
) -> None:
    """As long as this takes a tenth of the budget at most, or a fiftieth where a race follows: both
    together take at most 22 % of it."""
    solve = create("benchmarks.auto_tasks:TMaze-v0", Budget(env_steps=steps), tmp_path, seed=3)
    assert next(iter(solve.state["candidates"])) == expected
    assert solve.probe.steps <= (0.04 if len(solve.experiment.members) > 1 else 0.1) * steps


def test_a_training_that_learns_nothing_where_rewards_recall_gets_a_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The probe of a small budget is too short to tell; then it is measured again."""
    made = Solve.__new__(Solve)
    made.probe = dataclasses.replace(CHOICES, steps=1000)
    made.state = {"lines": [], "given": {}, "winner": {"name": "ppo_discrete"}, "spent_s": 0.0}
    made._told, made._tell, made._began_s = 0, lambda stage, text: None, time.monotonic()
    both = choose(CHOICES).first, choose(CHOICES).contrast
    made.state["candidates"] = {c.name: c.fields for c in both}
    monkeypatch.setattr(Solve, "_alerts", lambda self, run: [])
    found: list[float] = [0.1, 0.8]

    def again(p: Probe, fields: dict[str, Any]) -> Probe:
        return dataclasses.replace(p, recalled=found.pop(0))

    monkeypatch.setattr(solving, "recalled_again", again)
    assert made._replacement(Run(Path("a")), "it learns nothing")[0].name == "dqn"
    assert made._replacement(Run(Path("a")), "it learns nothing")[0].name == "ppo_discrete+gru"
    for known in ({"steps": 4000}, {"steps": 1000, "step_us": 1e4}):
        made.probe = dataclasses.replace(CHOICES, **known)
        assert made._replacement(Run(Path("a")), "it learns nothing")[0].name == "dqn"
    assert not found


def test_a_memory_that_learns_nothing_is_not_replaced_by_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where rewards recall earlier observations, the contrast without a memory cannot learn."""
    made = Solve.__new__(Solve)
    made.probe = dataclasses.replace(CHOICES, recalled=0.8, steps=4000)
    both = choose(made.probe).first, choose(made.probe).contrast
    made.state = {"candidates": {c.name: c.fields for c in both}, "winner": {"name": both[0].name}}
    made._began_s, made.state["spent_s"] = time.monotonic(), 0.0
    monkeypatch.setattr(Solve, "_alerts", lambda self, run: [])
    found, _ = made._replacement(Run(Path("a")), "it learns nothing")
    assert (found.name, found.fields["recurrent"]) == ("ppo_discrete+gru+entropy", "gru")
    assert found.fields["ent_coef"] == pytest.approx(3 * both[0].fields["ent_coef"])


def test_rewards_that_are_costs_of_actions_only_are_noticed() -> None:
    """Standing still would be learnt before anything else is found, whatever the unit."""
    points, rng = moving_points(sees_velocity=True), np.random.default_rng(0)
    box = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    actions = rng.uniform(-1.0, 1.0, (*points.reward.shape, 2))
    costs = -0.001 * np.square(actions).sum(2)

    def share(reward: np.ndarray, space: Any = box) -> float | None:
        given = dataclasses.replace(points, actions=actions, reward=reward.astype(np.float32))
        return probing.action_share(space, given)

    assert (share(costs) or 0.0) > probing.ONLY_ACTIONS
    assert (share(1e6 * costs + 500.0) or 0.0) > probing.ONLY_ACTIONS
    assert (share(costs + 0.001 * points.obs[..., 0]) or 0.0) < 0.9
    assert share(np.ones_like(costs)) is None
    assert share(costs, gymnasium.spaces.Discrete(2)) is None


@pytest.mark.parametrize(("horizon", "steps", "starts"), [
    (50, 50_000, 1_000), (999, 100_000, 4_995), (999, 30_000, 3_000), (5_000, 10**6, 5_000)
])  # fmt: skip
@pytest.mark.parametrize("by_action", [1.0, 0.0])
def test_some_episodes_are_random_before_an_actor_learns(
    horizon: int, steps: int, starts: int, by_action: float
) -> None:
    """Of one alone it learns what pays where that one came to, such as moving on its back."""
    p = dataclasses.replace(DENSE, horizon=horizon, by_action=by_action)
    assert by_length(choose(p).first.fields, steps)["learning_starts"] == starts
    short = dataclasses.replace(p, terminated=1.0, by_action=0.0)
    assert by_length(choose(short).first.fields, 10**6)["learning_starts"] == 1_000
    goals = dataclasses.replace(DENSE, has_goals=True)
    assert "learning_starts" not in by_length(choose(goals).first.fields, steps)


def test_an_episode_that_has_not_ended_has_a_return_too() -> None:
    """By the mean reward: without it every score would count as better than random."""
    points = moving_points(sees_velocity=True)
    costly = dataclasses.replace(points, reward=np.full_like(points.reward, -0.5))
    assert probing._returns(costly, 100)["random_mean"] == -50.0
    assert probing._returns(costly, 100)["random_sd"] == 0.0
    noisy = np.random.default_rng(0).standard_normal(points.reward.shape)
    found = probing._returns(dataclasses.replace(points, reward=noisy), 400)
    assert found["random_sd"] == pytest.approx(20.0, rel=0.05)


def test_a_probe_and_its_file() -> None:
    found = probe("CartPole-v1", examines=False)
    assert (found.sees, found.moves, found.limit, found.threshold) == (
        "vector",
        "discrete",
        500,
        475,
    )
    assert found.usual_reward == 1.0
    assert found.reward_density == 0.0
    assert found.terminated == 1.0
    assert 15 < (found.random_mean or 0.0) < 30
    assert found.hidden == pytest.approx(0.0, abs=0.02)
    assert from_dict(json.loads(json.dumps(dataclasses.asdict(found)))) == found


@pytest.mark.parametrize(("env_id", "rewarded"), [
    ("Memory/RepeatPreviousEasy-v0", 1.0),
    ("CartPole-v1", 0.0),  # each step pays the same
    ("MiniGrid-Empty-5x5-v0", 0.4),  # one in 300 steps
])  # fmt: skip
def test_how_many_random_episodes_meet_a_reward(env_id: str, rewarded: float) -> None:
    found = probe(env_id, costs=False, examines=False)
    assert found.rewarded == pytest.approx(rewarded, abs=0.2)


def test_rewards_that_are_not_numbers_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match=r"get a reward of nan\. Mend the environment"):
        probe(f"{__name__}:Nan-v0", examines=False)


def test_without_an_end_there_is_a_random_return_to_compare_with() -> None:
    found = probe(f"{__name__}:Endless-v0", costs=False, examines=False)
    assert found.random_mean == pytest.approx(0.0, abs=100.0)
    assert found.random_sd == pytest.approx(math.sqrt(probing.NO_LIMIT), rel=0.1)
    assert not is_above_random(20.0, 10.0, found)


def test_a_module_in_place_of_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A module in the working folder is found, and its ids are listed if none is given."""
    (tmp_path / "solve_envs.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('InFolder-v0', lambda **_: gymnasium.make('FrozenLake-v1'))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    assert main(["solve", "solve_envs", "--max-env-steps", "1"]) == 2
    assert "it registers solve_envs:InFolder-v0" in capsys.readouterr().err
    made = create("InFolder-v0", Budget(1), tmp_path, fields={"plugins": ["solve_envs"]})
    assert made.probe.acts == "Discrete(4)"


def test_what_solve_does_not_take_from_python(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="takes the id of an environment"):
        solving.solve(Nan, max_env_steps=1)  # type: ignore[arg-type]
    made = create(ENV, Budget(2000), tmp_path, seed=3, name="once", fields={"hidden_dims": (8,)})
    given: dict[str, Any] = {"hidden_dims": (8,), "runs_dir": tmp_path, "name": "once"}
    for changed in ({"max_env_steps": 3000}, {"gamma": 0.9}, {"env_kwargs": {"a": 1}}):
        with pytest.raises(RunError, match=r"once is a solve of .* give another name"):
            solving.solve(ENV, **{"max_env_steps": 2000, **given, **changed})
    assert made.state["given"] == solving._given(ENV, None, {"hidden_dims": (8,)})


# -- checks ---------------------------------------------------------------------------------------


def chosen(p: Probe) -> Candidate:
    return choose(p).first


@pytest.mark.parametrize(
    ("p", "alerts", "name", "changes"),
    [
        (CHOICES, ["constant_return"], "ppo_discrete+count",
         {"intrinsic": {"kind": "count", "coef": 0.3}, "gae_lambda": 0.98}),
        (CHOICES, ["q_diverging"], "ppo_discrete+low_lr", {"policy_lr": pytest.approx(7e-4 / 3)}),
        (CHOICES, ["memory_needed"], "ppo_discrete+gru",
         {"recurrent": "gru", "gamma": 0.975, "policy_lr": pytest.approx(21e-4)}),
        (CHOICES, ["short_horizon"], "ppo_discrete+far", {"gamma": 0.995}),
        (DENSE, ["no_signal", "kl_low"], "sac_sphere",
         {"noise_correlation": 0.95, "learning_starts": 1000, "gamma": 0.975}),
        (DENSE, ["alpha_high"], "sac_sphere+low_lr", {"policy_lr": pytest.approx(2e-4 / 3)}),
        (DENSE, ["all_truncated"], "sac_batch_norm+n_step", {"n_step": 3}),
        (dataclasses.replace(CHOICES, has_masks=True), ["entropy_collapse"],
         "ppo_discrete+entropy", {"ent_coef": pytest.approx(0.03)}),
    ],
)  # fmt: skip
def test_an_alert_has_its_remedy(
    p: Probe, alerts: list[str], name: str, changes: dict[str, Any]
) -> None:
    found = remedy(alerts, chosen(p), p)
    assert found is not None
    assert found[0].name == name
    assert {key: found[0].fields[key] for key in changes} == changes
    build_config({"env_id": "CartPole-v1", **found[0].fields})


def test_what_was_tried_or_has_no_answer_is_no_remedy() -> None:
    again, _ = remedy(["no_signal"], chosen(DENSE), DENSE) or (None, "")
    assert again is not None
    assert remedy(["no_signal"], again, DENSE) is None
    assert remedy(["throughput_falling", "entropy_collapse"], chosen(DENSE), DENSE) is None


def test_every_alert_with_a_remedy_exists() -> None:
    assert set(REMEDIES) <= set(RULES)


def points(*scores: float) -> list[tuple[int, float]]:
    return [(1000 * n, score) for n, score in enumerate(scores, start=1)]


def test_more_steps_are_worth_it_while_evaluations_rise() -> None:
    rising = [2.0 * n + (0.1 if n % 2 else -0.1) for n in range(1, 21)]
    found = outlook(points(*rising), threshold=100.0)
    assert found is not None
    assert found.more_steps == pytest.approx(30_000, rel=0.02)
    assert found.slope == pytest.approx(0.002, abs=2 * found.stderr)
    assert "to 100" in found.text
    free = outlook(points(*rising))
    assert free is not None
    assert free.more_steps == 10_000
    flat = outlook(points(*[5.0 + (1.0 if n % 3 else -1.0) for n in range(20)]))
    assert flat is not None
    assert flat.more_steps is None
    same = outlook(points(*[-200.0 + 1e-12 * n for n in range(20)]), threshold=8.0)
    assert same is not None
    assert same.more_steps is None, "rounding is no rise"
    assert outlook(points(*rising), threshold=30.0) is None  # reached
    assert outlook(points(1.0, 2.0)) is None  # too few


# -- verdicts -------------------------------------------------------------------------------------


def summary(mean: float, **changes: Any) -> RunSummary:
    fields: dict[str, Any] = dict.fromkeys(f.name for f in dataclasses.fields(RunSummary))
    test = {"mean": mean, "stderr": 5.0, "episodes": 100, "greedy": True}
    fields |= {"id": "a", "path": "a", "test": test, "env_steps": 10, "solved": None} | changes
    return RunSummary(**fields)


@pytest.mark.parametrize(
    ("mean", "changes", "kind"),
    [
        (-150.0, {"solved": True}, "solved"),
        (-150.0, {}, "learnt"),
        (-150.0, {"last_eval": {"score": -1300.0}}, "unstable"),
        (-1190.0, {}, "not better than random"),
    ],
)
def test_verdicts(
    mean: float, changes: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymnasium_solver.experiments.auto.checks._advice", lambda *facts: [])
    found = judged(summary(mean, **changes), DENSE)
    assert found["kind"] == kind
    assert found["text"].startswith(f"{kind}: ")
    assert found["low"] == pytest.approx(mean - 9.8)
    assert found["high"] == pytest.approx(mean + 9.8)


def test_trainings_that_disagree_are_unstable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymnasium_solver.experiments.auto.checks._advice", lambda *facts: [])
    apart = disagreement({"seed 1": -150.0, "seed 2": -1250.0}, DENSE)
    assert apart == "seed 1 has -150, seed 2 only -1,250"
    found = judged(summary(-150.0), DENSE, apart)
    assert (found["kind"], found["text"].endswith(apart)) == ("unstable", True)
    assert judged(summary(-150.0, solved=True), DENSE, apart)["kind"] == "solved"
    assert disagreement({"seed 1": -150.0, "seed 2": -600.0}, DENSE) is None  # both have learnt
    assert disagreement({"seed 1": -1100.0, "seed 2": -1250.0}, DENSE) is None  # hardly any
    assert disagreement({"seed 1": -150.0}, DENSE) is None


def test_advice_names_a_config_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    advice = "gsolve train X-v0:ppo_box+rnd --ent-coef 0.01"
    alert = SimpleNamespace(name="entropy_collapse", advice=advice, is_active=True)
    details = SimpleNamespace(alerts=[alert])
    monkeypatch.setattr("gymnasium_solver.experiments.auto.checks.get_details", lambda _: details)
    run = summary(-1190.0, env_id="X-v0", variant="ppo_box+rnd", path="runs/a")
    first = judged(run, DENSE)["next"][0]
    assert first == "entropy_collapse: gsolve train runs/a/config.yaml --ent-coef 0.01"


@pytest.mark.parametrize(("late", "winner"), [
    ((-1190.0, -1100.0), "contrast"),
    ((-1190.0, -1185.0), "first"),  # nothing learnt yet: what was measured decides
    ((-500.0, -495.0), "first"),  # no clear difference
    ((-500.0, -300.0), "contrast"),
    ((-300.0, -900.0), "first"),
])  # fmt: skip
def test_a_race_that_tells_nothing_is_won_by_the_first_choice(
    late: tuple[float, float], winner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = build_config({"env_id": "Pendulum-v1", "algo_id": "ppo"})
    made = Solve.__new__(Solve)
    made.experiment = experiment.create([(n, config) for n in ("first", "contrast")], [1], tmp_path)
    members = made.experiment.members
    probe_of_many = dataclasses.replace(DENSE, episodes=1_000, random_sd=500.0)  # standard error 16
    made.probe, made.budget, made._began_s = probe_of_many, Budget(env_steps=1_000), 0.0
    made.state = {"lines": [], "spent_s": 0.0}
    made.state["candidates"] = {name: {"algo_id": "ppo"} for name in ("first", "contrast")}
    told: list[str] = []
    monkeypatch.setattr(Solve, "_say", lambda self, stage, text: told.append(stage))
    monkeypatch.setattr(Solve, "_steps_spent", lambda self: 100)
    monkeypatch.setattr(solving, "get_run", lambda run: summary(0.0, wall_s=9.0))
    made._decide(dict(zip(members, late, strict=True)))
    assert made.state["winner"]["name"] == winner
    assert told == ["race", "time"] if winner == "contrast" else ["race"]
    assert made.state["race"]["first"]["env_steps"] == 10


def test_a_race_compares_policies_and_not_how_they_explore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Returns of a training with many random actions say little about what was learnt."""
    tests = {"greedy": -200.0, "random": -17.0, "cut off": None}
    groups = zip(tests, ("first", "contrast", "first"), strict=True)
    runs = {experiment.Member(n, group, 1, ""): Run(tmp_path / n) for n, group in groups}

    def found(run: Run) -> RunSummary:
        score = tests[run.path.name]
        return summary(0.0, test=None) if score is None else summary(score)

    monkeypatch.setattr(solving, "get_run", found)
    monkeypatch.setattr(solving, "late_score", lambda run: -500.0)
    assert {m.run: score for m, score in solving.race_scores(runs).items()} == tests
    tests["random"] = None  # a preset without a test: cut off before
    assert set(solving.race_scores(runs).values()) == {-500.0}


def test_a_score_counts_as_learnt_beyond_both_uncertainties() -> None:
    assert not is_above_random(-1140.0, None, DENSE)  # random: -1200, standard error 32
    assert is_above_random(-1130.0, None, DENSE)
    assert not is_above_random(-1130.0, 10.0, DENSE)


def test_whole_random_episodes_are_played_where_those_of_the_probe_leave_it_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight episodes of 0 or 1 in a short probe: 0.375 with a standard error of 0.18."""
    few = probe("CartPole-v1", costs=False, examines=False)
    few = dataclasses.replace(few, random_mean=30.0, random_sd=40.0, episodes=8)
    monkeypatch.setattr(Solve, "spent_s", 10.0)
    made = Solve.__new__(Solve)
    made.state = {"candidates": {"first": {"policy_lr": 1e-3}}, "given": {}, "lines": []}
    made._told, made._tell = 0, lambda stage, text: None
    made.probe = few
    assert made._is_above_random(70.0)
    assert not made._is_above_random(-10.0)
    assert made.probe is few  # both are clear
    assert made._is_above_random(40.0)
    assert made.probe.episodes == 20
    assert 15 < (made.probe.random_mean or 0.0) < 30
    assert from_dict(made.state["probe"]) == made.probe


@pytest.mark.parametrize(("env_id", "spent_s", "told"), [
    ("CartPole-v1", 1.0, ""),  # time for one episode: that has no deviation
    (f"{__name__}:Nan-v0", 1e6, "not a number"),
    (f"{__name__}:Gone-v0", 1e6, "Gone"),
])  # fmt: skip
def test_random_episodes_that_fail_cost_no_verdict(
    env_id: str, spent_s: float, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = dataclasses.replace(DENSE, env_id=env_id, horizon=100, episodes=0, step_us=150.0)
    monkeypatch.setattr(Solve, "spent_s", spent_s)
    made = Solve.__new__(Solve)
    made.state = {"candidates": {"first": {}}, "given": {}, "lines": []}
    made._told, made._tell = 0, lambda stage, text: None
    made.probe = few
    assert not made._is_above_random(-1200.0)
    assert made.probe is few
    assert told in str(made.state["lines"])


def test_a_config_in_place_of_an_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "CartPole-v1:ppo"]) == 2
    assert "gsolve train CartPole-v1:ppo" in capsys.readouterr().err


def test_a_budget_is_one_of_two() -> None:
    for wrong in (Budget, lambda: Budget(100, 1.0)):
        with pytest.raises(ConfigError, match="one budget"):
            wrong()


def test_what_minutes_afford_counts_steps_of_many_environments_for_on_policy() -> None:
    slow = dataclasses.replace(DENSE, step_us=1000.0, many_step_us=40.0)
    found = affordable_steps(slow, {}, Budget(minutes=2.0))
    assert found["on"] == pytest.approx(120e6 / 100.0)
    assert found["off"] == pytest.approx(120e6 / 13_000.0)


def test_many_steps_without_a_limit_of_time_have_fewer_updates() -> None:
    """A step of SAC costs 12 ms on a CPU: a million of them would take three hours."""
    few, many, most = (Budget(env_steps=n) for n in (50_000, 1_000_000, 100_000_000))
    assert affordable_steps(DENSE, {}, few) == {"on": 50_000, "off": 50_000}
    assert affordable_steps(DENSE, {}, many)["off"] == pytest.approx(1.8e9 / 12_050.0)
    assert choose(DENSE, affordable_steps(DENSE, {}, most)).first.name == "ppo_box"
    first = choose(DENSE, affordable_steps(DENSE, {}, many)).first
    given = {"env_id": "Pendulum-v1"}
    configs: list[Any] = [run_config(first, given, b, 1.0, b.env_steps or 0) for b in (few, many)]
    rates = [config.updates_per_step for config in configs]
    assert rates == [1.0, 0.15]
    assert time_text(first, DENSE, few, 50_000).startswith("about 10 min of training by sac_batch")
    assert "0.15 updates per step" in time_text(first, DENSE, many, 1_000_000)


@pytest.mark.parametrize(("budget", "has_race"), [
    (Budget(minutes=2.0), False), (Budget(minutes=5.0), True), (Budget(env_steps=1), True),
])  # fmt: skip
def test_a_race_needs_time(budget: Budget, has_race: bool) -> None:
    assert (why_no_race(DENSE, 100_000, budget) is None) is has_race
    equal = dataclasses.replace(DENSE, random_sd=0.0)
    assert "returns are equal" in str(why_no_race(equal, 100_000, budget))


def test_a_race_that_takes_too_long_is_told_once_to_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second signal would end a training without a checkpoint."""
    stopped: list[Task] = []

    class Stopping(Pool):
        def waiting_for(self, tasks: Any) -> Any:
            yield from range(3)

        def stop(self, task: Task) -> None:
            stopped.append(task)
            task.is_stopping = True

    configs = [(n, build_config({"env_id": "CartPole-v1", "algo_id": n})) for n in ("ppo", "dqn")]
    made = Solve.__new__(Solve)
    made.experiment = experiment.create(configs, [1, 2], tmp_path)
    made.budget, made.pool = Budget(minutes=4.0), Stopping()
    monkeypatch.setattr(Solve, "spent_s", 1e9)
    with pytest.raises(RunError, match="both presets failed"):
        list(made._race())
    assert len(stopped) == 4
    assert [task.label.rpartition(" ")[2] for task in stopped] == ["1", "1", "2", "2"]


def test_a_run_gets_exactly_the_minutes_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        solving, "request_edit", lambda run, fields, *how, **trust: asked.append(fields)
    )
    monkeypatch.setattr(solving, "get_run", lambda run: summary(0.0, env_steps=50, wall_s=30.0))
    monkeypatch.setattr(solving, "is_run", lambda folder: True)
    monkeypatch.setattr(Solve, "spent_s", 60.0)
    made = Solve.__new__(Solve)
    made.budget, made._timed = Budget(minutes=10.0), None
    task = Task(tmp_path, ())
    made._keep_to_time(task, began_at=50)  # it does not train yet
    assert asked == []
    for _ in range(2):
        made._keep_to_time(task, began_at=0)
    assert asked == [{"max_minutes": pytest.approx(0.5 + 9.5 - 1.0)}]


# -- the whole way --------------------------------------------------------------------------------


@pytest.fixture
def short_races(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "FEWEST_RACE_STEPS", 100)
    monkeypatch.setattr(budgets, "FEWEST_RACE_EPISODES", 1)


ENV = "Probe/ObsActionReward-v0"


def test_too_small_a_budget_has_no_race(tmp_path: Path) -> None:
    """Nor has it a threshold, so that the verdict is about random actions."""
    told: list[tuple[str, str]] = []
    solve = create(ENV, Budget(env_steps=3000), tmp_path, seed=3)
    found = solve.run(tell=lambda *line: told.append(line))
    assert [stage for stage, _ in told].count("race") == 0
    assert "too little for a race" in str(told)
    assert found["kind"] in ("solved", "learnt")
    assert len(solve.runs) == 1
    assert found["env_steps"] <= 3000 + 256  # the probe's steps count; rollouts are whole
    again = load(solve.path)
    assert again.run() == found == again.verdict
    assert again.best_run.path == solve.best_run.path
    winner = load_config(str(solve.path / solving.WINNER))
    assert winner.algo_id == solve.runs[0].algo_id
    assert winner.seed is None


def test_a_budget_below_the_probe_leaves_a_step(tmp_path: Path) -> None:
    made = create(ENV, Budget(env_steps=1), tmp_path, seed=3)
    config = made.path / "configs" / made.experiment.members[0].config
    assert "max_env_steps: 1\n" in config.read_text()


def test_a_race_and_what_goes_on(tmp_path: Path, short_races: None) -> None:
    solve = create(ENV, Budget(env_steps=6000), tmp_path, seed=3)
    found = solve.run()
    race, winner = solve.state["race"], solve.state["winner"]
    assert set(race) == set(solve.state["candidates"])
    assert len(solve.runs) == 4
    main = next(run for run in solve.runs if run.id == winner["run"])
    assert main.env_steps > 1000
    assert found["run"] == main.id
    assert found["kind"] != "unstable"
    assert sum(run.env_steps for run in solve.runs) + solve.probe.steps <= 6000 + 256
    assert load(solve.path).run() == found  # nothing is left to do


def test_a_killed_coordinator_goes_on(tmp_path: Path, short_races: None) -> None:
    solve = create(ENV, Budget(env_steps=6000), tmp_path, seed=3)

    def dies(now: Solve) -> None:
        if "main" in now.state:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve.run(on_poll=dies)
    with pytest.raises(RunError, match="no verdict yet"):
        _ = solve.verdict
    again = load(solve.path)
    assert again.state["winner"] == solve.state["winner"]
    assert again.run()["run"] == again.state["winner"]["run"]
    assert len(again.runs) == 4


def test_a_training_that_learns_nothing_is_replaced_once(
    tmp_path: Path, short_races: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Solve, "_early", lambda self, run: (self._other(), "it learns nothing"))
    solve = create(ENV, Budget(env_steps=20_000), tmp_path, seed=3)
    solve.run()
    assert len(solve.runs) == 5
    assert solve.state["restart"]["why"] == "it learns nothing"
    first, *_, last = solve.experiment.members
    assert last.group == f"{solve.state['restart']['name']} again"
    assert last.seed == first.seed + 2
    assert Run(solve.experiment.folder(last)).meta()["status"] == "finished"
    assert sum(run.env_steps for run in solve.runs) + solve.probe.steps <= 20_000 + 512


POOR = Candidate("poor", {**presets()["ppo_discrete"], "policy_lr": 1e-9})


def test_a_replaced_training_that_was_better_is_tested_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that was killed after it was replaced does not train it further."""
    monkeypatch.setattr(Solve, "_early", lambda self, run: (POOR, "it learns nothing"))
    solve = create("CartPole-v1", Budget(env_steps=40_000), tmp_path, seed=3)

    def dies(now: Solve) -> None:
        if len(now.runs) > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve.run(on_poll=dies)
    steps = solve.runs[0].env_steps
    again = load(solve.path)
    again.run()
    first, poor = again.runs
    assert first.env_steps == steps
    assert poor.variant == "poor"
    assert poor.test is not None
    assert (poor.best_score or 0.0) < (first.best_score or 0.0)
    assert again.verdict["run"] == first.id
    assert again.verdict["kind"] in ("solved", "learnt")
    assert "it is tested too" in str(again.state["lines"])


@pytest.mark.parametrize("scores", [(0.0, -1.0), (-1.0, 0.0), (2.0, 0.0)])
def test_the_run_with_the_best_validation_is_judged(
    scores: tuple[float, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A best score of 0 is one like any other."""
    runs = [dataclasses.replace(summary(s, best={"score": s}), id=str(s)) for s in scores]
    monkeypatch.setattr(Solve, "runs", runs)
    monkeypatch.setattr(Solve, "_is_above_random", lambda self, score, stderr: False)
    monkeypatch.setattr(Solve, "_steps_spent", lambda self: 0)
    judge = "gymnasium_solver.experiments.auto.checks._advice"
    monkeypatch.setattr(judge, lambda *facts: [])
    monkeypatch.setattr(solving, "get_config", lambda run: {"env_id": ENV, "algo_id": "ppo"})
    made = Solve.__new__(Solve)
    made.path, made.probe, made._began_s, made._told = tmp_path, DENSE, 0.0, 0
    made.state = {"lines": [], "spent_s": 0.0, "winner": {"name": "x"}}
    made._tell = lambda stage, text: None
    assert made._judge()["run"] == str(max(scores))


def test_what_the_environment_ends_is_not_tried_with_another_preset(tmp_path: Path) -> None:
    """And the error says what happened and how to go on."""
    solve = create(f"{__name__}:LateNan-v0", Budget(20_000), tmp_path, seed=3, name="late")
    with pytest.raises(RunError) as raised:
        solve.run()
    text = str(raised.value)
    assert "to a test: " in text
    assert "return of an episode is nan" in text
    assert text.endswith("logarithms. Once that is mended: gsolve solve --resume late")
    assert "restart" not in solve.state


@pytest.mark.parametrize(("best", "is_replaced"), [(-1150.0, True), (-1000.0, False)])
def test_the_best_of_several_evaluations_is_above_random_by_more_than_luck(
    best: float, is_replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standard error of a mean of 50 episodes is 28 here."""
    made = Solve.__new__(Solve)
    made.probe = dataclasses.replace(DENSE, random_sd=200.0, episodes=10_000)
    made.state = {"lines": [], "spent_s": 0.0}
    made._began_s = 0.0
    monkeypatch.setattr(Solve, "_replacement", lambda self, run, why: (POOR, why))
    monkeypatch.setattr(solving, "get_run", lambda run: summary(0.0, best={"score": best}))
    monkeypatch.setattr(solving, "late_score", lambda run: -1200.0)
    monkeypatch.setattr(solving, "curve", lambda run, name: points(-1200.0, -1190.0, -1200.0))
    assert (made._early(Run(Path("a"))) is not None) is is_replaced


@pytest.mark.parametrize(("spread", "is_replaced"), [(0.1, True), (0.0, False)])
def test_one_lucky_episode_is_not_above_random_actions(
    spread: float, is_replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All random returns were 0, so that their spread says nothing; that of the training does."""
    made = Solve.__new__(Solve)
    made.probe = dataclasses.replace(CHOICES, random_mean=0.0, random_sd=0.0, episodes=10_000)
    made.state = {"lines": [], "spent_s": 0.0}
    made._began_s = 0.0
    monkeypatch.setattr(Solve, "_replacement", lambda self, run, why: (POOR, why))
    monkeypatch.setattr(solving, "get_run", lambda run: summary(0.0, best={"score": 0.01}))
    monkeypatch.setattr(solving, "late_score", lambda run: 0.01)
    curves = {solving.SPREAD: points(spread), solving.VALIDATION: points(0.0, 0.01)}
    monkeypatch.setattr(solving, "curve", lambda run, name: curves[name])
    assert (made._early(Run(Path("a"))) is not None) is is_replaced


def test_a_training_that_rises_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is hardly better than random actions so far."""
    made = Solve.__new__(Solve)
    made.probe = DENSE
    monkeypatch.setattr(Solve, "_is_above_random", lambda self, score, stderr: False)
    monkeypatch.setattr(Solve, "_replacement", lambda self, run, why: (POOR, why))
    monkeypatch.setattr(solving, "get_run", lambda run: summary(0.0, best={"score": 0.68}))
    monkeypatch.setattr(solving, "late_score", lambda run: None)
    for scores, is_replaced in {
        (0.24, 0.42, 0.33, 0.45, 0.28, 0.31, 0.40, 0.56, 0.68, 0.62): False,
        (0.24, 0.42, 0.33, 0.45, 0.28, 0.31, 0.40, 0.22): True,
        (0.1, 0.2, 0.3): True,  # too few points for a line
    }.items():
        monkeypatch.setattr(solving, "curve", lambda run, name, found=scores: points(*found))
        found = made._early(Run(Path("a")))
        assert (found is not None) is is_replaced


@pytest.mark.parametrize(
    ("scores", "threshold", "recalled", "is_replaced"),
    [
        ((-0.9, -0.2, -0.1, -0.1, -0.1, -0.2, -0.1, -0.1), None, 0.8, True),
        ((-0.9, -0.2, -0.1, -0.1, -0.1, -0.2, -0.1, -0.1), None, 0.1, False),
        ((-0.9, -0.2, -0.1, -0.1, -0.1, -0.2, -0.1, -0.1), -0.1, 0.8, False),
        ((-0.9, -0.8, -0.7, -0.6, -0.5, -0.4, -0.3, -0.2), None, 0.8, False),
        ((), None, 0.8, False),
    ],
)
def test_one_that_stands_still_where_rewards_recall_gets_a_memory(
    scores: tuple[float, ...], threshold: float | None, recalled: float, is_replaced: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Though it is better than random actions."""
    made = Solve.__new__(Solve)
    made.probe = dataclasses.replace(CHOICES, threshold=threshold, recalled=recalled)
    first = choose(CHOICES).first
    made.state = {"winner": {"name": first.name}, "candidates": {first.name: first.fields}}
    best = {"score": max(scores)} if scores else None
    monkeypatch.setattr(Solve, "_alerts", lambda self, run: [])
    monkeypatch.setattr(solving, "get_run", lambda run: summary(0.0, best=best))
    monkeypatch.setattr(solving, "curve", lambda run, name: points(*scores))
    found = made._late(Run(Path("a")))
    assert (found is not None) is is_replaced
    assert found is None or found[0].name == "ppo_discrete+gru"


@pytest.mark.parametrize(("share", "at", "fields", "is_replaced"), [
    (0.84, 0.3, {}, True), (0.86, 0.3, {}, False),
    (0.84, 0.3, {"intrinsic": {}}, False), (0.84, 0.5, {"intrinsic": {}}, True),
    (0.84, 0.3, {"algo_id": "mbie"}, False), (0.84, 0.3, {"recurrent": "gru"}, False),
])  # fmt: skip
def test_no_restart_without_a_reserve_or_before_a_bonus_could_pay_off(
    share: float, at: float, fields: dict[str, Any], is_replaced: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A coordinator may come back late: then the training goes on as it is."""
    stopped: list[Task] = []

    class Stopping(Pool):
        def stop(self, task: Task) -> None:
            stopped.append(task)

    monkeypatch.setattr(Solve, "share_done", share)
    monkeypatch.setattr(Solve, "_early", lambda self, run: (chosen(CHOICES), "it learns nothing"))
    for name in ("_late", "_keep_to_time", "_save", "_look_ahead"):
        monkeypatch.setattr(Solve, name, lambda self, *facts: None)
    monkeypatch.setattr(Solve, "_share_of", lambda self, task: at)
    made = Solve.__new__(Solve)
    made.state = {"candidates": {"x": fields}, "winner": {"name": "x"}, "lines": []}
    made.pool = Stopping()
    made._told, made._tell = 0, lambda stage, text: None
    next(made._watch(Task(tmp_path, ())))
    assert ("restart" in made.state, len(stopped)) == (is_replaced, int(is_replaced))


@pytest.mark.parametrize(("algo_id", "share"), [("ppo", 0.3), ("sac", 0.0)])
def test_a_replay_preset_is_not_judged_before_it_could_learn(
    algo_id: str, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = "gymnasium_solver.experiments.auto.solve"
    run = SimpleNamespace(env_steps=6_000, max_env_steps=20_000)
    for name, found in {"is_run": True, "get_run": run, "get_config": {"algo_id": algo_id}}.items():
        monkeypatch.setattr(f"{room}.{name}", lambda _, found=found: found)
    made = Solve.__new__(Solve)
    made.budget = Budget(env_steps=20_000)
    assert made._share_of(Task(tmp_path, ())) == share


def test_a_strangers_folder_that_names_code_needs_trust(tmp_path: Path) -> None:
    """Also where the configs so far are harmless: another one is made of what auto.json holds."""
    config = build_config({"env_id": "CartPole-v1", "algo_id": "ppo"})
    made = Solve.__new__(Solve)
    made.experiment = experiment.create([("ppo", config)], [1], tmp_path)
    for given, candidate in (({"env_id": "strange:X-v0"}, {}), ({}, {"plugins": ["strange"]})):
        made.state = {"given": given, "candidates": {"ppo": candidate}}
        with pytest.raises(TrustError, match="strange"):
            made.run()


def test_all_algorithms_of_the_portfolio_are_known() -> None:
    assert {fields["algo_id"] for fields in presets().values()} <= set(algo_ids())
