"""What is told of each algorithm: its page, its fields in `--help`, its panels in `gsolve plot`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from docs import make_tables
from gymnasium_solver.algos import ALGOS, algo_class
from gymnasium_solver.config.field_groups import OWN_GROUPS, field_groups
from gymnasium_solver.data.episode_file import Episode, write_episodes
from gymnasium_solver.data.replay import Replay
from gymnasium_solver.data.rollout import Rollout
from gymnasium_solver.runs import query
from gymnasium_solver.runs.metrics import METRICS, PANELS, describe
from gymnasium_solver.runs.plots import RETURNS, Curves, choose_panels
from gymnasium_solver.spaces.actions import action_kind
from gymnasium_solver.training import loop
from gymnasium_solver.training.prepare import build_config
from tests.small import WORLD_MODELS

CONTINUOUS = ("td3", "ddpg", "tdmpc2")
WITH_A_REPLAY = ("dqn", "sac", "crossq", "dreamerv3", *CONTINUOUS)


def page_of(algo_id: str) -> Path:
    """The page that has the algorithm's fields."""
    mark = f"<!-- generated: fields_{algo_id} "
    (page,) = (page for page in make_tables.PAGES if mark in page.read_text(encoding="utf-8"))
    return page


@pytest.mark.sample(5)
@pytest.mark.parametrize("algo_id", [name for name in ALGOS if name != "random"])
def test_the_page_explains_what_an_update_logs(
    algo_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kind = "Continuous" if algo_id in CONTINUOUS else ""
    fields: dict[str, Any] = {
        "env_id": f"Probe/ObsActionReward{kind}-v0",
        "algo_id": algo_id,
        "n_envs": 2,
        "n_steps": 16,
        "max_epochs": 2,
        "hidden_dims": [4],
        "eval_freq_epochs": None,
    }
    if algo_id in WITH_A_REPLAY:
        fields |= {"learning_starts": 4, "batch_size": 4, "buffer_size": 50}
    if algo_id in WORLD_MODELS:
        del fields["hidden_dims"]
        fields |= WORLD_MODELS[algo_id]
    if algo_id == "crossq":
        fields["critic_hidden_dims"] = [4]
    if algo_id == "mbie":
        del fields["hidden_dims"]
        fields["env_id"] = "FrozenLake-v1"
    if algo_id == "bc":
        one = np.ones(2, bool)
        rows = [Episode(np.zeros((3, 1)), np.zeros(2, int), one, one, ~one)] * 3
        write_episodes(tmp_path / "a.npz", rows, {})
        fields["dataset"] = str(tmp_path / "a.npz")
    run = loop.train(build_config(fields), runs_root=tmp_path / "runs")
    logged = query.get_metrics(run, ["train/opt/*"])
    assert logged
    page = page_of(algo_id)
    text = page.read_text(encoding="utf-8")
    # Details, such as the gradient norm of a part, are explained in metrics.md, by pattern.
    missing = [
        name
        for name in logged
        if f"`{name.removeprefix('train/')}`" not in text and not describe(name).description
    ]
    assert not missing, f"neither {page.name} nor metrics.md explains {missing}"


@pytest.mark.parametrize("algo_id", ALGOS)
def test_help_shows_every_field_once(algo_id: str) -> None:
    config = algo_class(algo_id).Config
    shown = [name for names in field_groups(config).values() for name in names]
    assert sorted(shown) == sorted(config.model_fields)


def test_help_groups_no_field_that_is_gone() -> None:
    known = {name for algo_id in ALGOS for name in algo_class(algo_id).Config.model_fields}
    assert {name for names in OWN_GROUPS.values() for name in names.split()} <= known


def test_help_lists_fields_by_block() -> None:
    assert "ent_coef" in field_groups(algo_class("sac").Config)["entropy"]
    ppo = field_groups(algo_class("ppo").Config)
    assert "ent_coef" in ppo["actor and critic"]
    assert "ent_coef" not in ppo.get("entropy", ())
    assert next(iter(ppo)) == ""
    assert "clip_range" in ppo[""]
    assert "batch_size" in ppo["minibatches"]


def panels(**series: list[float]) -> list[str]:
    """Of a run that logged these, with `_` for `/`."""
    named = {name.replace("_", "/"): list(enumerate(values)) for name, values in series.items()}
    return choose_panels([Curves("id", "title", None, named)], None)


def test_plot_draws_what_a_run_logged_and_leaves_out_flat_lines() -> None:
    drawn = panels(
        train_opt_q_mean=[1.0, 2.0],
        train_opt_loss_td=[2.0, 1.0],
        train_opt_loss_value=[0.0, 0.0],
        train_opt_loss_critic=[3.0],
        train_opt_unknown=[1.0, 2.0],
    )
    expected = ["train/opt/loss/critic", "train/opt/loss/td", "train/opt/q/mean"]
    assert drawn == [RETURNS, *expected]


def test_plot_knows_the_metrics_it_draws() -> None:
    assert set(PANELS) <= set(METRICS)


# -- the worked example of docs/replay.md ---------------------------------------------------------


def worked_example() -> Iterator[list[str]]:
    """The cells of the table, row by row."""
    text = (make_tables.ROOT / "docs" / "replay.md").read_text(encoding="utf-8")
    for line in re.findall(r"^\| \d \|.*\|$", text, re.MULTILINE):
        yield [cell.strip() for cell in line.strip("|").split("|")][1:]


def written_targets(ending: str, n_rows: int) -> list[str]:
    """The targets of a four-step episode with rewards 1 to 4, as the table writes them."""
    observations, actions = spaces.Box(0, 9, (1,), np.float32), action_kind(spaces.Discrete(2))
    rollout = Rollout.allocate(5, 1, observations, actions)
    # the fifth row is a reset row
    rollout.obs = np.array([0, 1, 2, 3, 4, 0], np.float32)[:, None, None]
    rollout.reward[:4, 0] = [1, 2, 3, 4]
    rollout.valid[:4] = True
    getattr(rollout, ending)[3] = True
    replay = Replay(10, 1, observations, actions)
    replay.add(rollout.first(n_rows))
    index = np.flatnonzero(replay.is_valid(np.arange(replay.n_rows)))
    found = replay.transitions(index, n_step=3, gamma=0.9)
    assert isinstance(found.next_obs, np.ndarray)
    return [
        f"{reward:.4g}" + (f" + {discount:.4g} V(s{state:.0f})" if discount else "")
        for reward, discount, state in zip(
            found.reward, found.discount, found.next_obs[:, 0], strict=True
        )
    ]


def test_the_worked_example_of_n_step_returns_is_what_the_replay_gives() -> None:
    columns = [[cell for cell in column if cell] for column in zip(*worked_example(), strict=True)]
    assert columns == [
        written_targets("terminated", 5),
        written_targets("truncated", 5),
        written_targets("terminated", 2),
    ]
