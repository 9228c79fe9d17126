"""Publishing and pulling runs, with the real client against a Hub served here."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("huggingface_hub")

import gymnasium_solver as gs
from gymnasium_solver.cli.main import main
from gymnasium_solver.errors import GsolveError, RunError, TrustError
from gymnasium_solver.media.inspect import FrameEncoder
from gymnasium_solver.runs.episodes import EpisodeWriter
from gymnasium_solver.share.hub.package import Scrub
from gymnasium_solver.share.hub.publish import Options, Publication, plan_publication, send
from gymnasium_solver.share.hub.pull import pull_run
from tests.share.fake_hub import TOKEN, FakeHub
from tests.share.kinds import train_kind

REPO = "ann/ppo-probe"
SECRET = "s3cr3t-value-of-a-token"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with FakeHub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


@pytest.fixture(scope="module")
def plan(run: gs.Run) -> Publication:
    return plan_publication(str(run.path), run.path.parent, REPO, Options(video=False))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> gs.Run:
    root = tmp_path_factory.mktemp("runs")
    for seed in (2, 3):
        train_kind("ppo-discrete", root, seed=seed)
    return train_kind("ppo-discrete", root)


def hashes(run: gs.Run) -> dict[str, str]:
    files = (run.checkpoints_dir / "best").resolve()
    if not files.is_dir():
        files = run.checkpoints_dir / (run.checkpoints_dir / "best").read_text()
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files.glob("*.safe*")}


def test_publish_pull_evaluate(hub: FakeHub, run: gs.Run, tmp_path: Path) -> None:
    """The same weights and the same score, private, in one commit after the creation."""
    plan = plan_publication(str(run.path), run.path.parent, REPO)
    assert not hub.repos, "planning sends nothing"
    address = send(plan)
    assert address == f"{hub.url}/{REPO}"
    repo = hub.repos[f"models/{REPO}"]
    assert repo.private
    assert len(repo.commits) == 2
    pulled = pull_run(REPO, tmp_path)
    assert hashes(pulled) == hashes(run)
    assert pulled.meta()["pulled"] == {"hub": REPO, "revision": repo.sha}
    before, after = (gs.evaluate(each, 20) for each in (run, pulled))
    assert (before.mean, before.std, before.seed) == (after.mean, after.std, after.seed)
    assert not list(tmp_path.glob(".pull*"))


def test_the_video_is_a_kept_episode_where_there_is_one(tmp_path: Path) -> None:
    """It needs neither torch nor an environment."""
    pytest.importorskip("imageio_ffmpeg", reason="the extra video is not installed")
    run = train_kind("ppo-discrete", tmp_path)
    frames = [np.full((32, 32, 3), 8 * t, np.uint8) for t in range(12)]
    facts = {
        "env_id": "x", "env_steps": int((run.checkpoints_dir / "best").resolve().name),
        "seed": 1, "greedy": True, "fps": 30.0, "parent": None, "changed": {},
        "columns": [{"name": "reward", "width": 1}, {"name": "return", "width": 1}],
    }  # fmt: skip
    encoder = FrameEncoder()
    bodies = [encoder(frame) for frame in frames]
    writer = EpisodeWriter.create(run, facts | {"frames": {"render": encoder.facts()}})
    for t, body in enumerate(bodies):
        writer.add_frame("render", body)
        writer.add(np.array([1.0, t], np.float32), None, bytes(8), {})
    writer.finish(None, {"steps": 11, "return": 11.0, "ended": "truncated"})
    made = plan_publication(str(run.path), tmp_path, REPO, Options())
    [note] = [note for note in made.notes if "kept episode" in note]
    assert "-seed1-greedy-" in note
    assert b"ftyp" in made.package.files["replay.mp4"][:32]


def test_the_card_is_read_by_the_hub(plan: Publication) -> None:
    from huggingface_hub import ModelCard

    text = plan.package.files["README.md"].decode()
    data: Any = ModelCard(text, ignore_metadata_errors=False).data
    assert data.library_name == "gymnasium-solver"
    assert data.license == "mit"
    assert data.pipeline_tag == "reinforcement-learning"
    assert {"Probe/ObsActionReward-v0", "ppo", "deep-reinforcement-learning"} <= set(data.tags)
    [result] = data.eval_results
    assert result.metric_type == "mean_reward"
    assert result.metric_value == plan.results.text
    assert plan.results.seeds is not None
    assert plan.results.seeds["n"] == 3
    assert "Over 3 seeds" in text
    for told in ("| hardware |", "| time |", "## Limits"):
        assert told in text
    assert {"curves.png", "results.json", "config.yaml"} <= plan.package.files.keys()
    assert "git.diff" not in plan.package.files


def test_nothing_of_this_machine_leaves(tmp_path: Path) -> None:
    """Host and user names, folders, tokens in the command, the config and the environment."""
    secret_run = train_kind("ppo-box", tmp_path / "home" / "carla", description="by carla at box77")
    secret_run.update_meta(
        command=["gsolve", "train", "--runs-dir", "/home/carla/runs", "--token", SECRET],
        machine={"hostname": "box77.lan", "platform": "Linux-6.1-x86_64", "cpu": "Fast CPU"},
    )
    secret_run.log_event("note", text=f"see /home/carla/notes.txt, hf_{'a' * 30} and {SECRET}")
    scrub = Scrub({"carla", "box77"}, {SECRET}, {str(tmp_path), "/home/carla"})
    plan = plan_publication(
        str(secret_run.path), secret_run.path.parent, "ann/x", Options(video=False), scrub
    )
    everything = b"\n".join(plan.package.files.values())
    for word in (b"carla", b"box77", SECRET.encode(), b"hf_aaa", str(tmp_path).encode(), b"/home"):
        assert word not in everything, word
    meta = json.loads(plan.package.files["meta.json"])
    assert not {"pid", "signature", "hostname"} & (meta.keys() | meta["machine"].keys())
    assert meta["machine"] == {"cpu": "Fast CPU", "platform": "Linux"}
    assert meta["command"][:2] == ["gsolve", "train"]


def test_a_leak_in_a_checkpoint_stops_the_publication(run: gs.Run) -> None:
    state = (run.checkpoints_dir / "best").resolve() / "state.json"
    word = json.loads(state.read_text())["agent"]["action_space"]["kind"]  # stands for a secret
    with pytest.raises(RunError, match=r"state\.json still has a token or password"):
        plan_publication(
            str(run.path), run.path.parent, REPO, Options(video=False), Scrub((), {word}, ())
        )


@pytest.mark.parametrize(
    ("given", "cleaned"),
    [
        ("--runs-dir /home/ann/runs --seed 1", "--runs-dir <path> --seed 1"),
        ("C:\\Users\\ann\\x.yaml", "<path>"),
        ("~/work/config.yaml:ppo", "<path>:ppo"),
        ("see https://gymnasium.farama.org/environments/toy_text/", None),
        ("ALE/Pong-v5 at 10 m/s, and/or 1 / 2", None),
        ("Probe/DictObs-v0", None),
        ("{'path': '/srv/data/x'}", "{'path': '<path>'}"),
        ("key AKIA" + "A" * 16, "key <removed>"),
    ],
)
def test_scrubbed_text(given: str, cleaned: str | None) -> None:
    assert Scrub((), (), ()).text(given) == (given if cleaned is None else cleaned)


def test_fields_named_as_secrets_lose_their_value() -> None:
    scrub = Scrub((), (), ())
    given = {"env_kwargs": {"api_key": "abc", "monkey": "abc", "token_count": 3, "password": ""}}
    cleaned = scrub.value(given)["env_kwargs"]
    assert cleaned == {"api_key": "<removed>", "monkey": "abc", "token_count": 3, "password": ""}


# -- pulling from strangers -------------------------------------------------------------------


def published(hub: FakeHub, plan: Publication) -> dict[str, bytes]:
    """The files of a publication in the Hub's memory, to be changed by a test."""
    send(plan)
    return hub.repos[f"models/{REPO}"].files


def test_a_changed_file_is_refused(hub: FakeHub, plan: Publication, tmp_path: Path) -> None:
    files = published(hub, plan)
    model = next(each for each in files if each.endswith("model.safetensors"))
    for name in ("config.yaml", "meta.json", model):
        before = files[name]
        files[name] = before.replace(b"0", b"1")
        with pytest.raises(RunError, match="checksum differs"):
            pull_run(REPO, tmp_path)
        files[name] = before
        assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_pickles_and_other_files_are_not_downloaded(
    hub: FakeHub, plan: Publication, tmp_path: Path
) -> None:
    files = published(hub, plan)
    files |= {"model.pkl": b"x", "checkpoints/1/evil.py": b"x", "../escape.json": b"{}"}
    pulled = pull_run(REPO, tmp_path)
    names = {path.name for path in tmp_path.rglob("*")}
    assert not names & {"model.pkl", "evil.py", "escape.json"}
    assert not any("model.pkl" in request for request in hub.requests)
    assert pulled.meta()["signature"] is None


def test_a_repository_of_another_library_is_refused(hub: FakeHub, tmp_path: Path) -> None:
    from gymnasium_solver.share.hub.client import commit

    commit("ann/sb3", {"ppo-CartPole-v1.zip": b"PK"}, "x", private=False, kind="model")
    with pytest.raises(RunError, match=r"not a run of gymnasium-solver.*import-sb3"):
        pull_run("ann/sb3", tmp_path)


def test_errors_of_the_hub_are_one_line(
    hub: FakeHub, plan: Publication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunError, match="no repository ann/nothing"):
        pull_run("ann/nothing", tmp_path)
    with pytest.raises(RunError, match="403"):
        send(dataclasses.replace(plan, repo_id="eve/x"))
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises(RunError, match=r"hf auth login"):
        send(plan)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(RunError, match=r"cannot be reached|Connection|refused"):
        pull_run(REPO, tmp_path)
    for wrong in ("noslash", "a/b/c", "../x", "a/.."):
        with pytest.raises(GsolveError):
            pull_run(wrong, tmp_path)


def test_a_pulled_config_that_names_code_asks_first(
    hub: FakeHub, plan: Publication, tmp_path: Path
) -> None:
    files = published(hub, plan)
    files["config.yaml"] = files["config.yaml"].replace(b"plugins: []", b"plugins: [evil_code]")
    manifest = json.loads(files["manifest.json"])
    digest = hashlib.sha256(files["config.yaml"]).hexdigest()
    manifest["files"]["config.yaml"]["sha256"] = digest
    files["manifest.json"] = json.dumps(manifest).encode()
    pulled = pull_run(REPO, tmp_path)
    with pytest.raises(TrustError, match="evil_code"):
        gs.load(pulled)


# -- hub: in place of a run -------------------------------------------------------------------


def test_hub_references_load_and_initialise(
    hub: FakeHub, plan: Publication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(hub, plan)
    monkeypatch.setenv("GSOLVE_RUNS", str(tmp_path))
    agent = gs.load(f"hub:{REPO}")
    assert agent.act([1.0]) in (0, 1)
    n_requests = len(hub.requests)
    assert gs.evaluate(f"hub:{REPO}/@best", 4).episodes == 4
    assert len(hub.requests) == n_requests, "pulled once"
    env = gs.make_env(f"hub:{REPO}")
    env.close()
    still: dict[str, Any] = {"policy_lr": 1e-12, "seed": 9, "max_env_steps": 64}
    started = train_kind("ppo-discrete", tmp_path, init_from_run=f"hub:{REPO}", **still)
    weights = [each.net.get_parameter("actor_head.weight") for each in (agent, gs.load(started))]
    assert (weights[0] - weights[1]).abs().max() < 1e-6


def test_the_verbs(
    hub: FakeHub,
    run: gs.Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GSOLVE_RUNS", str(run.path.parent))
    assert main(["publish", run.id, "--repo", REPO, "--dry-run", "--no-video"]) == 0
    shown = capsys.readouterr().out
    assert "nothing was sent" in shown
    assert "model.safetensors" in shown
    assert not hub.repos
    assert main(["publish", run.id, "--repo", REPO, "--no-video", "--public", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["url"] == f"{hub.url}/{REPO}"
    assert not hub.repos[f"models/{REPO}"].private
    assert main(["pull", REPO, "--runs-dir", str(tmp_path), "--name", "mine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == "mine"
    assert main(["pull", REPO, "--runs-dir", str(tmp_path), "--name", "mine"]) == 2


def test_datasets_of_runs(
    hub: FakeHub,
    run: gs.Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = run.path.parent
    ids = [each.id for each in gs.list_runs(runs_dir=root)]
    monkeypatch.setenv("GSOLVE_HUB_DATASET", "ann/study")
    assert main(["hub", "push", *ids[:2], "--runs-dir", str(root)]) == 0
    assert main(["hub", "push", ids[2], "--runs-dir", str(root)]) == 0
    assert hub.repos["datasets/ann/study"].private
    capsys.readouterr()
    assert main(["hub", "list", "--scores", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {each["id"] for each in listed} == set(ids)
    assert all("mean_reward" in each["results"] for each in listed)
    assert main(["hub", "pull", "*", "--runs-dir", str(tmp_path)]) == 0
    assert {each.id for each in gs.list_runs(runs_dir=tmp_path)} == set(ids)
    assert hashes(gs.open_run(run.id, tmp_path)) == hashes(run)
    assert main(["hub", "pull", ids[0], "--runs-dir", str(tmp_path)]) == 0
    assert "already here" in capsys.readouterr().out
    assert main(["hub", "pull", "nothing-like-it", "--runs-dir", str(tmp_path)]) == 2


@pytest.mark.services
def test_in_a_fresh_process(hub: FakeHub, plan: Publication, tmp_path: Path) -> None:
    """As a user: HF_ENDPOINT and HF_HUB_DISABLE_XET in the environment before the import."""
    published(hub, plan)
    command = [sys.executable, "-m", "gymnasium_solver", "eval", f"hub:{REPO}", "--episodes", "4"]
    env = os.environ | {"GSOLVE_RUNS": str(tmp_path), "HF_HOME": str(tmp_path / "hf")}
    done = subprocess.run(
        [*command, "--greedy", "--json"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["run"] == "ann--ppo-probe"
