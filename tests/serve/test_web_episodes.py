"""The API of the inspector: playing, reading, branches, refusals, and a worker that is killed."""

import io
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
from gymnasium_solver.runs.episodes import CHUNK, get_episode, offsets_of
from tests.media.counting import count_in
from tests.serve.inspect_site import LENGTH, Site, open_site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("site")) as one:
        yield one


@pytest.fixture(scope="module")
def name(site: Site) -> str:
    """The id of a whole episode."""
    found: str = site.post(seed=3, greedy=False)[1]["episode"]
    assert site.wait(found)["status"] == "done"
    return found


def pid_of(site: Site) -> int:
    return int(site.app.state.web.player.process.pid)


def test_an_episode_is_played_and_read(site: Site) -> None:
    status, started = site.post(seed=3, greedy=False)
    assert status == 202, started
    name = started["episode"]
    facts = site.wait(name)
    assert facts["status"] == "done"
    assert facts["result"]["steps"] == LENGTH
    assert facts["notable"][-1]["step"] == LENGTH - 1
    width = sum(column["width"] for column in facts["columns"])
    status, rows = site.get(f"/{name}/columns")
    assert len(rows) == 4 * width * (LENGTH + 1)
    _, rest = site.get(f"/{name}/columns?from=80")
    assert rest == rows[80 * 4 * width :]
    _, derived = site.get(f"/{name}/derived")
    assert np.frombuffer(derived, "<f4").size == 3 * (LENGTH + 1)
    _, pack = site.get(f"/{name}/frames/render/1")
    assert len(offsets_of(pack)) == LENGTH + 1 - CHUNK + 1
    _, listed = site.get()
    assert [one["id"] for one in listed["episodes"]] == [name]
    assert len(listed["checkpoints"]) > 1
    _, told = site.get(f"/{name}/info?from=89")
    assert [row.get("action") for row in told][-1] is None
    _, text = site.get(f"/{name}/csv")
    assert text.decode().count("\n") == LENGTH + 2


def test_the_index_and_the_worst_of_some_seeds(site: Site, name: str) -> None:
    _, row = site.read("api/inspect")
    (run,) = row["runs"]
    assert (run["id"], run["n_episodes"]) == (site.run.id, len(site.get()[1]["episodes"]))
    assert run["episode"]
    assert run["n_frames"] == LENGTH + 1
    status, started = site.post(seed=5, greedy=False, worst_of=3)
    assert status == 202, started
    facts = site.wait(started["episode"])
    assert facts["seed"] in (5, 6, 7)
    returns = []
    for seed in (5, 6, 7):
        one = site.wait(site.post(seed=seed, greedy=False)[1]["episode"])
        returns.append(one["result"]["return"])
    assert facts["result"]["return"] == min(returns)
    assert site.read("api/player")[1] == {"phase": ""}
    for played in site.get()[1]["episodes"]:
        if played["id"] != name:
            site.post(f"/{played['id']}/delete")


def test_one_image_is_the_step_that_was_asked_for(site: Site, name: str) -> None:
    for t in (0, 63, 64, LENGTH):
        _, body = site.get(f"/{name}/frame/render/{t}")
        assert count_in(np.asarray(Image.open(io.BytesIO(body)))) == t
    assert site.get(f"/{name}/frame/render/{LENGTH + 1}")[0] == 404
    assert site.get(f"/{name}/frame/nothing/0")[0] == 404


def test_a_branch_differs_from_its_parent_at_the_step(site: Site, name: str) -> None:
    parent = get_episode(site.run, name)
    other = 1 - int(parent.actions()[70])
    status, started = site.post(branch={"of": name, "at": 70, "action": other})
    assert status == 202
    site.wait(started["episode"])
    _, found = site.get(f"/{name}/difference?with={started['episode']}")
    assert found == {"step": 70, "what": "action", "same_start": True}


def test_why_names_the_components(site: Site, name: str) -> None:
    status, why = site.post(f"/{name}/saliency", t=5, target="value")
    assert status == 200
    assert [label for label, _ in why["contributions"]] == ["count", "luck"]
    assert site.post(f"/{name}/saliency", t=5, method="nonsense")[0] == 400


def test_ids_with_paths_reach_no_file(site: Site) -> None:
    for name in ("..%2F..%2Fmeta.json", "%2e%2e", "1-seed1-greedy-abcd%2F..",
                 "1-seed1-greedy-abcd", "x" * 300, "%00"):  # fmt: skip
        for rest in ("", "/columns", "/frames/render/0", "/csv", "/page"):
            assert site.get(f"/{name}{rest}")[0] == 404, name
        assert site.post(f"/{name}/delete")[0] in (404, 405), name


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"seed": -1}, "seed"),
        ({"seed": "abc"}, "seed"),
        ({"seed": True}, "seed"),
        ({"checkpoint": "../x"}, "checkpoint"),
        ({"greedy": "yes"}, "greedy"),
        ({"max_steps": 0}, "max_steps"),
        ({"max_steps": 10**9}, "max_steps"),
        ({"branch": {"of": "../x", "at": 1}}, "branch"),
        ({"branch": {"of": "1-seed1-greedy-abcd", "at": "1"}}, "at"),
        ({"branch": {"of": "1-seed1-greedy-abcd", "at": 1, "action": {"a": 1}}}, "action"),
        ({"path": "/etc"}, "unknown"),
    ],
)
def test_bad_questions_are_refused_before_the_worker(
    site: Site, body: dict[str, Any], word: str
) -> None:
    status, answer = site.post(**body)
    assert status == 400
    assert word in answer["error"]


def test_a_change_needs_the_token(site: Site) -> None:
    site.token, kept = "wrong", site.token
    try:
        assert site.post(seed=1)[0] == 403
    finally:
        site.token = kept


def test_the_worker_may_be_killed_at_any_moment(site: Site) -> None:
    """In the midst of an episode: its record stays, and the question that waits is answered by the
    next worker."""
    pause = Path(os.environ["GSOLVE_TEST_PAUSE"])
    pause.touch()
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(site.post(seed=11)))
    try:
        _, started = site.post(seed=8)
        first, name = pid_of(site), started["episode"]
        deadline = time.monotonic() + 30
        while site.get(f"/{name}")[1]["n_rows"] < 3:  # it can be read meanwhile
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert site.post(f"/{name}/delete")[0] == 404  # it is being played
        waiting.start()
        time.sleep(0.3)
        os.kill(first, signal.SIGKILL)
        facts = site.wait(name)
    finally:
        pause.unlink()
    assert facts["status"] == "interrupted"
    assert facts["n_rows"] >= 3
    assert site.get(f"/{name}/frame/render/2")[0] == 200
    waiting.join(60)
    status, again = answers[0]
    assert status == 202
    assert pid_of(site) != first
    assert site.wait(again["episode"])["result"]["steps"] == LENGTH
    assert site.post(f"/{name}/delete")[1] == {"deleted": name}


def test_an_episode_can_be_stopped(site: Site) -> None:
    pause = Path(os.environ["GSOLVE_TEST_PAUSE"])
    pause.touch()
    try:
        _, started = site.post(seed=9)
        assert site.post(f"/{started['episode']}/stop")[1] == {"stopped": True}
        facts = site.wait(started["episode"])
    finally:
        pause.unlink()
    assert facts["result"]["ended"] == "stopped"
    assert facts["result"]["steps"] < LENGTH


def test_an_environment_that_ends_the_process_is_an_error(site: Site) -> None:
    pause = Path(os.environ["GSOLVE_TEST_PAUSE"])
    pause.write_text("die")
    try:
        _, listed = site.get()
        name = next(one["id"] for one in listed["episodes"] if one.get("steps") == LENGTH)
        site.app.state.web.player.end()  # so that the episode is played again for the answer
        status, answer = site.post(f"/{name}/saliency", t=5)
    finally:
        pause.unlink()
    assert status == 503, answer
    assert "process ended with code 9" in answer["error"]


def test_code_of_a_stranger_is_imported_only_with_consent(site: Site) -> None:
    """The same run as if it came from elsewhere: its signature is not ours."""
    other = site.run.path.with_name("from-elsewhere")
    shutil.copytree(site.run.path, other)
    text = (other / "meta.json").read_text()
    (other / "meta.json").write_text(text.replace('"signature": "', '"signature": "0'))
    base, site.base = site.base, "api/runs/from-elsewhere/episodes"
    try:
        status, answer = site.post(seed=1)
        assert status == 409
        assert answer["needs_trust"] is True
        assert "tests.serve.pausing_env" in answer["error"]
        assert site.post(seed=1, trust=True)[0] == 202
    finally:
        site.base = base


def test_a_recorded_episode_becomes_one_page(site: Site) -> None:
    _, listed = site.get()
    name = next(one["id"] for one in listed["episodes"] if one["status"] == "done")
    status, page = site.get(f"/{name}/page")
    text = page.decode()
    assert status == 200
    assert name in text
    for word in ("import {", "src=", "fetch(", "http://", "https://"):
        assert word not in text
    site.base, kept = f"api/report.html?runs={site.run.id}", site.base
    try:
        status, report = site.get(f"&episodes={name}")
        assert status == 200
        assert b"gsolve-episode" in report
        assert b"EpisodeView" in report
        assert site.get("&episodes=../x")[0] == 404
    finally:
        site.base = kept
