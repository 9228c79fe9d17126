"""Episodes recorded for the inspector: what is in them, branches, other checkpoints, the verb."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gymnasium_solver as gs
from gymnasium_solver.algos.ops import gae
from gymnasium_solver.cli.main import main
from gymnasium_solver.envs.make import make_vector_env
from gymnasium_solver.errors import ConfigError, EnvError
from gymnasium_solver.media.inspect import Ask, Branch, Studio, parse_action
from gymnasium_solver.media.inspect_worker import Reasons
from gymnasium_solver.runs.episode_tables import first_difference, reward_parts
from gymnasium_solver.training.prepare import build_config
from tests.media.counting import SMALL, count_in
from tests.small import WORLD_MODELS

TINY = {**SMALL, "max_epochs": 1, "test_episodes": 1, "n_steps": 8, "batch_size": 8}


def probe_run(env: str, algo_id: str = "ppo", unused: Any = (), **fields: Any) -> gs.Run:
    base = {"env_id": f"Probe/{env}-v0", "algo_id": algo_id}
    kept = {name: value for name, value in TINY.items() if name not in unused}
    return gs.train(build_config({**base, **kept, **fields}))


@pytest.fixture(scope="module")
def studio(shared_run: gs.Run) -> Any:
    one = Studio(shared_run.path.parent)
    yield one
    one.close()


def played(run: gs.Run, **ask: Any) -> Any:
    """One episode, without keeping anything open."""
    studio = Studio(run.path.parent)
    try:
        return studio.play(Ask(run.id, **ask))
    finally:
        studio.close()


def picture(episode: Any, t: int) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(episode.frame("render", t))))


def test_the_frame_of_a_step_is_the_state_before_its_action(
    studio: Studio, shared_run: gs.Run
) -> None:
    episode = studio.play(Ask(shared_run.id, seed=3))
    n = len(episode.actions())
    assert n >= 3
    assert episode.n_rows == n + 1 == episode.n_frames("render")
    assert [count_in(picture(episode, t)) for t in range(n + 1)] == list(range(n + 1))
    columns = episode.columns()
    assert columns["obs"][:, 0].tolist() == list(range(n + 1))
    assert columns["reward"][:-1].tolist() == list(range(1, n + 1))  # of the action in this state
    assert columns["return"].tolist() == [t * (t + 1) / 2 for t in range(n + 1)]
    assert episode.result["ended"] == "terminated"
    assert columns["terminated"][n - 1] == 1
    assert episode.facts["action"]["names"] == ["go_left", "go_right"]
    assert episode.facts["features"][0] == {"name": "count", "low": 0, "high": 10, "unit": ""}
    assert [row["info"]["n"] for row in episode.info()[:-1]] == list(range(1, n + 1))


def test_an_episode_tells_its_environment_and_its_model(studio: Studio, shared_run: gs.Run) -> None:
    facts = studio.play(Ask(shared_run.id, seed=3, most_steps=1)).facts
    told, model = facts["environment"], facts["model"]
    assert told["actions"] == "Discrete(2)"
    assert told["action labels"] == "go_left, go_right"
    assert told["engine"] == facts["engine"]["played"]
    assert (model["algorithm"], model["here on"]) == ("ppo", "cpu")
    assert model["layers"][-1]["output"], "the shape of what it computes"


def test_the_advantage_is_that_of_the_learner(studio: Studio, shared_run: gs.Run) -> None:
    episode = studio.play(Ask(shared_run.id, seed=3, greedy=False))
    columns, facts = episode.columns(), episode.facts
    value = np.nan_to_num(columns["value"])
    reward, done = columns["learner_reward"][:-1, None], columns["terminated"][:-1, None] == 1
    wanted = gae(
        reward, value[:, None], done, np.zeros_like(done), np.ones_like(done),
        facts["gamma"], facts["gae_lambda"],
    )  # fmt: skip
    np.testing.assert_allclose(columns["advantage"][:-1], wanted[:, 0], rtol=1e-5)
    p = columns["probabilities"][:-1]
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(columns["entropy"][:-1], -(p * np.log(p)).sum(1), rtol=1e-4)


def test_the_same_seed_repeats_the_episode_and_a_branch_its_beginning(
    studio: Studio, shared_run: gs.Run
) -> None:
    first = studio.play(Ask(shared_run.id, seed=3, greedy=False))
    again = studio.play(Ask(shared_run.id, seed=3, greedy=False))
    assert first.rows() == again.rows()
    assert first.digests() == again.digests()
    other = 1 - int(first.actions()[1])
    branch = studio.play(Ask(shared_run.id, branch=Branch(first.id, 1, other)))
    assert first_difference(first, branch) == {"step": 1, "what": "action", "same_start": True}
    assert branch.columns()["forced"][:3].tolist()[:2] == [0, 1]
    assert branch.facts["parent"]["episode"] == first.id
    assert branch.facts["greedy"] is False
    on = studio.play(Ask(shared_run.id, branch=Branch(first.id, 2)))  # the agent goes on
    assert on.rows() == first.rows(), "the random stream goes on as in the first episode"


def test_another_checkpoint_goes_on_from_a_step(shared_run: gs.Run, studio: Studio) -> None:
    steps = sorted(int(p.name) for p in shared_run.checkpoints_dir.iterdir() if p.name.isdecimal())
    assert len(steps) > 1
    ids = [f"{shared_run.id}/{steps[0]}", f"{shared_run.id}/{steps[-1]}"]
    episode = studio.play(Ask(ids[0], seed=3, greedy=False))
    on = studio.play(Ask(ids[1], branch=Branch(episode.id, 2)))
    assert on.facts["env_steps"] == steps[-1]
    assert on.facts["parent"]["env_steps"] == steps[0]
    assert on.actions()[:2].tolist() == episode.actions()[:2].tolist()
    assert not np.array_equal(on.columns()["value"][:2], episode.columns()["value"][:2])


def test_a_branch_of_an_episode_that_cannot_be_repeated_is_refused(
    studio: Studio, shared_run: gs.Run
) -> None:
    episode = studio.play(Ask(shared_run.id, seed=3))
    path = episode.path / "digests.bin"
    path.write_bytes(bytes(8) + path.read_bytes()[8:])
    with pytest.raises(EnvError, match="not deterministic"):
        studio.play(Ask(shared_run.id, branch=Branch(episode.id, 1, 0)))
    with pytest.raises(ConfigError, match="has steps 0 to"):
        studio.play(Ask(shared_run.id, branch=Branch(episode.id, 99, 0)))
    episode.delete()


def test_an_episode_that_is_cut_is_bootstrapped(studio: Studio, shared_run: gs.Run) -> None:
    episode = studio.play(Ask(shared_run.id, seed=3, most_steps=2))
    columns = episode.columns()
    assert episode.result["ended"] == "cut"
    assert np.isfinite(columns["value"]).all()
    gamma = episode.facts["gamma"]
    wanted = columns["learner_reward"][1] + gamma * columns["value"][2] - columns["value"][1]
    assert columns["td_error"][1] == pytest.approx(wanted, rel=1e-5)


DREAMER = WORLD_MODELS["dreamerv3"] | {
    "learning_starts": 4, "buffer_size": 64, "updates_per_step": 0.25
}  # fmt: skip
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "multi_discrete": ("MultiDiscrete", "ppo", {}),
    "multi_binary": ("MultiBinary", "ppo", {}),
    "product": ("DictAction", "ppo", {}),
    "box": ("ObsActionRewardContinuous", "ppo", {}),
    "dict observations": ("DictObs", "ppo", {}),
    "masked": ("Masked", "ppo", {}),
    "recurrent": ("Memory", "ppo", {"recurrent": "gru"}),
    "q": ("ObsActionReward", "dqn", {"learning_starts": 8, "buffer_size": 64}),
    "sac": ("ObsActionRewardContinuous", "sac", {"learning_starts": 8, "buffer_size": 64}),
    "reinforce": ("ObsActionReward", "reinforce", {}),
    "world model": ("Memory", "dreamerv3", DREAMER),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_agent_is_recorded(name: str) -> None:
    env, algo_id, fields = KINDS[name]
    own = {"reinforce": "batch_size", "dqn": "n_steps", "sac": "n_steps"}.get(algo_id)
    unused = {"ppo": (), "dreamerv3": ("n_epochs", "hidden_dims")}
    run = probe_run(env, algo_id, unused.get(algo_id, ("n_epochs", own)), **fields)
    episode = played(run, seed=1, greedy=False)
    columns, facts = episode.columns(), episode.facts
    n = len(episode.actions())
    assert n >= 1
    assert np.isfinite(columns["action"][:n]).all()
    assert columns["is_greedy"][0] in (0, 1)
    assert facts["no_frames"]
    if name in ("multi_discrete", "multi_binary", "masked", "reinforce"):
        labels = next(c for c in facts["columns"] if c["name"] == "probabilities")["labels"]
        assert len(labels) == columns["probabilities"].shape[1]
        assert np.isfinite(columns["entropy"][0])
    if name in ("box", "sac"):
        assert np.isfinite(columns["mean"][0]).all()
        assert np.isfinite(columns["std"][0]).all()
    if name == "q":
        q, a = columns["q_values"][0], int(columns["action"][0])
        assert columns["advantage"][0] == pytest.approx(q[a] - q.max(), abs=1e-6)
    if name == "recurrent":
        assert columns["carry core"].shape[1] > 1
        assert (columns["carry core"][0] == 0).all()
        assert (columns["carry core"][1] != 0).any()
    if name == "world model":
        true, again, ahead = (columns[kind] for kind in ("seen", "reconstructed", "imagined"))
        assert true.shape == again.shape == ahead.shape
        assert ahead[0] == again[0]  # nothing is imagined before the first observation
        assert (ahead[1:n] != again[1:n]).all()
        assert np.isfinite(ahead[:n]).all()
    if name == "masked":
        assert set(np.unique(columns["legal"][:n])) == {0.0, 1.0}
    model = facts["model"]
    assert sum(layer["parameters"] for layer in model["layers"]) == model["parameters"] > 0
    assert facts["environment"]["id"] == f"Probe/{env}-v0"
    other = played(run, branch=Branch(episode.id, 0))
    assert other.actions().tolist() == episode.actions().tolist()


def test_images_are_shown_as_the_network_gets_them() -> None:
    run = probe_run("Image", unused=["hidden_dims"], cnn_channels=[4, 4, 4], cnn_hidden_dims=[8])
    studio = Studio(run.path.parent)
    episode = studio.play(Ask(run.id, seed=1))
    tiles = episode.facts["frames"]["net"]["tiles"]
    seen = np.asarray(Image.open(io.BytesIO(episode.frame("net", 0))))
    assert seen.shape[:2] == (tiles[0]["h"], tiles[-1]["x"] + tiles[-1]["w"])
    reasons = Reasons(studio)
    for method in ("gradcam", "occlusion", "gradient"):
        told = reasons.at(episode, Ask(run.id), 0, method)
        heat = np.asarray(Image.open(io.BytesIO(told["png"])))
        assert heat.shape == seen.shape
    with pytest.raises(ConfigError, match="has decisions at"):
        reasons.at(episode, Ask(run.id), 500)
    reasons.close()
    studio.close()


def test_a_world_model_shows_images_and_their_video(capsys: pytest.CaptureFixture[str]) -> None:
    """The first of the three images side by side is what the network gets."""
    unused = ("n_epochs", "hidden_dims")
    run = probe_run("Image", "dreamerv3", unused, **DREAMER, env_kwargs={"shape": [3, 48, 48]})
    episode = played(run, seed=1)
    tiles = episode.facts["frames"]["model"]["tiles"]
    assert [tile["label"] for tile in tiles] == ["true", "reconstructed", "imagined"]
    model, net = (
        np.asarray(Image.open(io.BytesIO(episode.frame(view, 0)))) for view in ("model", "net")
    )
    panels = [model[:, tile["x"] : tile["x"] + tile["w"]] for tile in tiles]
    np.testing.assert_array_equal(panels[0], net)
    assert (panels[1] != panels[0]).any()
    np.testing.assert_array_equal(panels[2], panels[1])  # at the first step
    video = ["video", run.id, "--open-loop", "--out", "a.gif", "--no-overlay", "--json"]
    assert main([*video, "--runs-dir", str(run.path.parent)]) == 0
    told = json.loads(capsys.readouterr().out)
    scale = 7  # of a side of 48 to at least 320
    assert (told["width"], told["height"]) == (scale * model.shape[1], scale * model.shape[0])


def test_a_video_of_imagination_needs_a_model(
    shared_run: gs.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = ["--runs-dir", str(shared_run.path.parent)]
    assert main(["video", "@last", "--open-loop", *runs, "--out", "a.gif"]) != 0
    assert "needs a model that reconstructs images" in capsys.readouterr().err
    assert main(["video", "@last", "--open-loop", "--grid", "1x2", *runs]) != 0
    assert "remove --grid" in capsys.readouterr().err


def test_contributions_name_the_components(studio: Studio, shared_run: gs.Run) -> None:
    episode = studio.play(Ask(shared_run.id, seed=3))
    reasons = Reasons(studio)
    told = reasons.at(episode, Ask(shared_run.id), 2, "gradient", "value")
    assert [name for name, _ in told["contributions"]] == ["count", "luck"]
    reasons.close()


def test_actions_given_by_a_person() -> None:
    from gymnasium import spaces

    discrete = spaces.Discrete(3, start=5)
    assert parse_action(discrete, ["a", "b", "c"], "b") == 6
    assert parse_action(discrete, [], 7) == 7
    box = spaces.Box(-1.0, 1.0, (2,), np.float32)
    assert parse_action(box, [], "0.5, -1").tolist() == [0.5, -1.0]
    for space, given in ((discrete, 9), (discrete, "d"), (discrete, 5.5), (box, [1.0]), (box, "x")):
        with pytest.raises(EnvError):
            parse_action(space, [], given)


def test_parts_of_a_reward_are_found(studio: Studio, shared_run: gs.Run) -> None:
    episode = studio.play(Ask(shared_run.id, seed=3))
    path = episode.path / "info.jsonl"
    rows = [{"info": {"reward_ctrl": -0.5, "x": 1}}, {"info": {"reward_ctrl": -1.0}}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert reward_parts(episode) == {"reward_ctrl": [-0.5, -1.0]}
    episode.delete()


# -- the verb ---------------------------------------------------------------------------------


def test_the_verb_records_lists_and_exports(
    counting_run: Callable[..., gs.Run], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = counting_run()
    assert main(["inspect", run.id, "--episodes", "2", "--seed", "5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["episodes"]
    assert [one["seed"] for one in told] == [5, 6]
    assert told[0]["ended"] == "terminated"
    assert main(["inspect", run.id, "--list"]) == 0
    assert told[0]["id"] in capsys.readouterr().out
    branch = f"{told[0]['id']}:1:go_left"
    assert (
        main(["inspect", run.id, "--branch", branch, "--csv", "out.csv", "--html", "e.html"]) == 0
    )
    out = capsys.readouterr().out
    assert "branch of" in out
    assert "changed action" in out
    assert "go_left" in Path("out.csv").read_text()
    assert "gsolve-episode" in Path("e.html").read_text()
    assert main(["inspect", run.id, "--remove", told[1]["id"]]) == 0
    assert main(["inspect", run.id, "--compare", "@last", "--seed", "5"]) == 0
    assert "difference" in capsys.readouterr().out


def test_the_verb_opens_the_page_of_an_episode(
    shared_run: gs.Run, studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("starlette")
    from gymnasium_solver.cli import serve as serving

    asked: list[Any] = []

    def serve(settings: Any, **how: Any) -> int:
        asked.append((settings, how))
        return 0

    monkeypatch.setattr(serving, "serve", serve)
    episode = studio.play(Ask(shared_run.id, seed=3))
    assert main(["inspect", str(shared_run.path), "--episode", episode.id, "--ui"]) == 0
    settings, how = asked[0]
    assert settings.root == shared_run.path.parent
    assert how["page"] == f"inspect/{shared_run.id}?episode={episode.id}"


def test_an_episode_of_another_engine_says_so_and_is_the_same_task() -> None:
    """CliffWalking has one start and no chance, so both engines must agree in every step."""
    small = {**TINY, "vectorization_mode": "envpool", "max_episode_steps": 30}
    run = gs.train("CliffWalking-v1:ppo", **small)
    episode = played(run, seed=3, greedy=False, most_steps=25)
    engine = episode.facts["engine"]
    assert (engine["trained"], engine["played"]) == ("envpool", "sync")
    assert "single episodes differ" in engine["text"]
    assert engine["text"].startswith("Shown in Gymnasium's CliffWalking-v1, trained in EnvPool's")
    pool = make_vector_env("CliffWalking-v1", 1, vectorization_mode="envpool")
    pool.reset(99)
    rewards = [float(pool.step(np.asarray(a)[None]).reward[0]) for a in episode.actions()]
    pool.close()
    assert rewards == episode.columns()["reward"][: len(rewards)].tolist()
    same = gs.train("CliffWalking-v1:ppo", **{**small, "vectorization_mode": "sync"})
    text = played(same, seed=3, most_steps=2).facts["engine"]["text"]
    assert text == "Played in Gymnasium's CliffWalking-v1, as in training."
