"""The API: what the pages read and change."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")
from starlette.testclient import TestClient

from gymnasium_solver.backends import local
from gymnasium_solver.runs.query import get_run
from gymnasium_solver.runs.run import Run
from gymnasium_solver.serve.web import job_pages
from gymnasium_solver.serve.web.app import TOPICS, create_app
from gymnasium_solver.serve.web.security import Settings
from tests.serve.made_runs import made_run

TOKEN = {"x-gsolve-token": "secret"}
VAL = "val/roll/ep_rew/mean"


@pytest.fixture
def web(runs: Path) -> TestClient:
    app = create_app(Settings(root=runs, token="secret"))
    return TestClient(app, base_url="http://127.0.0.1:7070")


def rows_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]


def get(web: TestClient, path: str, **params: Any) -> Any:
    response = web.get(f"/api/{path}", params=params)
    assert response.status_code == 200, response.text
    return response.json()


def post(web: TestClient, path: str, **body: Any) -> Any:
    response = web.post(f"/api/{path}", json=body, headers=TOKEN)
    assert response.status_code == 200, response.text
    return response.json()


# --- the list


def test_the_list_and_what_changed_since(web: TestClient, runs: Path) -> None:
    first = get(web, "runs")
    assert len(first["rows"]) == 8
    assert first["reset"] is True
    row = next(r for r in rows_of(first) if r["id"] == "cart-0.001-2")
    assert (row["seed"], row["test"], row["solved"], row["best"]) == (2, 482.0, True, 482.0)
    time.sleep(0.35)
    assert get(web, "runs", cursor=first["cursor"])["rows"] == []
    made_run(runs, "new")
    post(web, "runs/tags", runs=["cart-0.001-2"], add=["paper"])
    time.sleep(0.35)
    later = get(web, "runs", cursor=first["cursor"])
    assert {r["id"] for r in rows_of(later)} == {"new", "cart-0.001-2"}
    assert later["reset"] is False
    post(web, "runs/archive", runs=["new"])
    time.sleep(0.35)
    last = get(web, "runs", cursor=later["cursor"])
    assert last["rows"] == []
    assert last["removed"] == [next(r["n"] for r in rows_of(later) if r["id"] == "new")]
    assert get(web, "runs", cursor="of-another-server")["reset"] is True


def test_archived_runs_are_listed_and_restored(web: TestClient, runs: Path) -> None:
    assert get(web, "archive")["rows"] == []
    post(web, "runs/archive", runs=["cart-0.001-2", "cart-0.001-3"])
    found = rows_of(get(web, "archive"))
    assert {(run["id"], run["test"]) for run in found} == {
        ("cart-0.001-2", 482.0),
        ("cart-0.001-3", 483.0),
    }
    assert len(get(web, "runs")["rows"]) == 6
    assert post(web, "runs/restore", runs=["cart-0.001-3"]) == {"restored": ["cart-0.001-3"]}
    assert (runs / "cart-0.001-3" / "meta.json").exists()
    assert [run["id"] for run in rows_of(get(web, "archive"))] == ["cart-0.001-2"]
    # Nothing but an id of the archive, and nothing on top of a run that exists.
    made_run(runs, "cart-0.001-2")
    for refs in (["cart-0.001-2"], ["cart-0.001-3"], ["../cart-0.001-3"], ["/etc"], []):
        response = web.post("/api/runs/restore", json={"runs": refs}, headers=TOKEN)
        assert response.status_code in (400, 404), (refs, response.text)
    assert web.post("/api/runs/restore", json={"runs": ["x"]}).status_code == 403


def test_filters_are_those_of_gsolve_runs(web: TestClient) -> None:
    names = {r["n"]: r["id"] for r in rows_of(get(web, "runs"))}

    def found(q: str, **more: Any) -> list[str]:
        return [names[n] for n in get(web, "select", q=q, **more)["order"]]

    assert len(found("policy_lr<0.0005")) == 4
    assert found("solved seed=3") == ["cart-0.001-3"]
    assert found("test>=302", sort="-test")[0] == "cart-0.0003-2"
    answer = get(web, "select", q="seed=0", columns="policy_lr,threshold")
    assert sorted(answer["columns"]["policy_lr"]) == [0.0003, 0.001]
    assert "policy_lr" in get(web, "select", fields="1")["fields"]
    assert found("note='two wor") == []  # a quote is open while typing


def test_errors_speak_of_the_page_not_of_flags(web: TestClient, runs: Path) -> None:
    for ref in ("nothing", "%2Fetc", "..%2Fx", "a%2Fb"):
        answer = web.get(f"/api/runs/{ref}")
        assert answer.status_code == 404
        assert not [word for word in ("--runs-dir", "gsolve", "meta.json") if word in answer.text]


# --- one run


def test_a_run_with_everything_but_curves(web: TestClient) -> None:
    run = get(web, "runs/cart-0.001-1")
    assert run["summary"]["test"]["mean"] == 481.0
    assert run["summary"]["path"] is None  # no paths of the server
    assert run["changed"] == {"policy_lr": [0.003, 0.001]}
    assert run["alerts"][0]["advice"] == "ent_coef: 0.01"
    assert [c["best"] for c in run["summary"]["checkpoints"]] == [False, True]
    assert len([e for e in run["evaluations"] if e["stage"] == "val"]) == 5
    assert VAL in [metric["name"] for metric in run["metrics"]]
    assert run["config"]["policy_lr"] == 0.001
    assert "epoch 2" in get(web, "runs/cart-0.001-1/log")["text"]


def test_returns_of_single_episodes(web: TestClient, runs: Path) -> None:
    run = Run(runs / "cart-0.001-1")
    nan = float("nan")
    for found in ([1.0, nan, 3.5], "<b>", [nan], None):
        run.log_event("eval", stage="test", env_steps=20_000, greedy=True, returns=found)
    run.close()
    known = {"stage": "test", "env_steps": 20_000, "greedy": True}
    assert get(web, f"runs/{run.id}/returns")["evaluations"] == [known | {"returns": [1.0, 3.5]}]


def test_series_by_three_clocks_and_smoothed(web: TestClient) -> None:
    def line(**params: Any) -> dict[str, Any]:
        return get(web, "series", runs="cart-0.001-0", metrics=VAL, **params)["series"][0]

    assert line()["x"] == [4000, 8000, 12000, 16000, 20000]
    assert line(x="wall_s")["x"] == [2, 4, 6, 8, 10]
    assert line(x="epoch")["x"] == [4, 8, 12, 16, 20]
    smooth = line(smooth="0.5")
    assert smooth["smooth"][0] == smooth["y"][0]  # debiased: the first point is itself
    assert smooth["smooth"][1] == pytest.approx((0.5 * 96 + 192) / 1.5)
    assert get(web, "series", runs="cart-0.001-0", metrics="nothing")["series"] == []
    test = get(web, "series", runs="cart-0.001-0", metrics="test/roll/ep_rew/mean", x="wall_s")
    assert test["series"][0]["x"] == [10]


def test_a_curve_says_where_it_becomes_nan(web: TestClient, runs: Path) -> None:
    run, name = Run(runs / "cart-0.001-0"), "train/opt/loss/value"
    for epoch, value in ((21, float("nan")), (22, 1.0), (23, float("inf")), (24, float("nan"))):
        run.log_metrics({"env_steps": 1000 * epoch, "epoch": epoch, "wall_s": 1.0, name: value})
    run.close()
    (line,) = get(web, "series", runs=run.id, metrics=name)["series"]
    assert line["bad"] == [21_000, 23_000]
    (group,) = get(web, "groups", runs=run.id, metrics=name)["curves"][name]
    assert group["lines"][0]["bad"] == [21_000, 23_000]


def test_csv_has_every_value(web: TestClient) -> None:
    response = web.get("/api/runs/cart-0.001-0/metrics.csv", params={"metrics": VAL})
    lines = response.text.strip().split("\n")
    assert lines[0] == f"env_steps,epoch,wall_s,{VAL}"
    assert len(lines) == 6
    assert "attachment" in response.headers["content-disposition"]


# --- comparing


def test_seeds_are_grouped_and_judged(web: TestClient, runs: Path) -> None:
    ids = ",".join(sorted(path.name for path in runs.iterdir() if path.name.startswith("cart")))
    answer = get(web, "groups", runs=ids)
    assert [group["n"] for group in answer["groups"]] == [4, 4]
    center = answer["curves"][VAL][0]["center"]
    assert len(center["x"]) == len(center["y"]) == len(center["n"])
    assert "lo" not in center  # the intervals take longer
    told = get(web, "bands", runs=ids, first="1", count="1")
    assert told["n"] == 2
    assert [len(told["bands"][0][end]) for end in ("lo", "hi")] == [len(center["x"])] * 2
    judged = get(web, "scores", runs=ids)
    verdict = judged["comparison"]["verdicts"][0]
    assert verdict["word"] in ("better", "worse")
    assert "pairs of seeds" in verdict["text"]
    assert list(judged["comparison"]["differences"]) == ["policy_lr"]
    assert len(get(web, "groups", runs=ids, ignore="policy_lr")["groups"]) == 1
    metrics = {m["name"]: m["label"] for m in get(web, "metrics", runs=ids)["metrics"]}
    assert metrics["train/opt/loss/value"]
    points = get(web, "scatter", runs=ids, x="policy_lr", y="train/opt/loss/value")["points"]
    assert points[0] == ["cart-0.0003-0", 0.0003, pytest.approx(0.05)]
    # The same figures as `gsolve compare`.
    from gymnasium_solver.experiments.compare import compare
    from gymnasium_solver.experiments.groups import group_runs

    expected = compare(group_runs(ids.split(","), runs))
    assert verdict["text"] == expected.verdicts[0].text
    wide = get(web, "scores", runs=ids, margin="1000")["comparison"]["verdicts"][0]
    assert (wide["word"], wide["margin"]) == ("equal", 1000)
    wrong = web.get("/api/scores", params={"runs": ids, "margin": "x"})
    assert wrong.status_code == 400
    assert "a score such as 5" in wrong.json()["error"]


def test_two_seeds_give_lines_but_no_band_and_no_verdict(web: TestClient) -> None:
    ids = "cart-0.001-0,cart-0.001-1,cart-0.0003-0,cart-0.0003-1"
    answer = get(web, "groups", runs=ids, x="wall_s", smooth="0.3")
    assert get(web, "bands", runs=ids, x="wall_s")["bands"] == [None, None]
    judged = get(web, "scores", runs=ids)["comparison"]
    assert judged["verdicts"][0]["word"] == "cannot tell"
    by_seed = get(web, "groups", runs=ids, by="seed")
    assert [group["label"] for group in by_seed["groups"]] == ["seed 0", "seed 1"]
    assert len(get(web, "groups", runs=ids, by="run")["groups"]) == 4
    hand = get(web, "groups", runs=ids, by="hand", **{"in": "1,-,0,0", "names": "old=a|<new>"})
    assert [(g["label"], g["n"]) for g in hand["groups"]] == [("old=a", 2), ("<new>", 1)]
    for bad in ("1,0", "0,0,0,2", "0,0,0,x", "0,0,0,-1"):
        wrong = {"runs": ids, "by": "hand", "in": bad, "names": "a|b"}
        assert web.get("/api/groups", params=wrong).status_code == 400
    post(web, "runs/tags", runs=ids.split(",")[:1], add=["paper", "b"])
    by_tag = get(web, "groups", runs=ids, by="tag")
    assert [(g["label"], g["n"]) for g in by_tag["groups"]] == [("b + paper", 1), ("no tag", 3)]
    reference = answer["groups"][1]["label"]
    other = get(web, "scores", runs=ids, ref=reference)
    assert other["comparison"]["verdicts"][0]["second"] == reference


def test_the_diff_puts_what_differs_first(web: TestClient) -> None:
    answer = get(web, "diff", runs="cart-0.001-0,cart-0.0003-1")
    assert [f["path"] for f in answer["fields"] if not f["same"]] == ["seed", "policy_lr"]
    assert answer["fields"][0]["same"] is False


# --- changes


def test_tags_and_notes(web: TestClient, runs: Path) -> None:
    post(web, "runs/tags", runs=["cart-0.001-0", "cart-0.001-1"], add=["a", "b"])
    post(web, "runs/tags", runs=["cart-0.001-0", "cart-0.0003-0"], remove=["a"])
    assert get_run("cart-0.001-0", runs).tags == ["b"]
    post(web, "runs/note", run="cart-0.001-0", note="look again")
    assert get_run("cart-0.001-0", runs).note == "look again"


def test_jobs_are_started_with_checked_arguments(
    web: TestClient, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program that would train is replaced by one that prints its arguments."""
    program = [sys.executable, "-c", "import sys; print(sys.argv[1:])"]
    monkeypatch.setattr(local, "gsolve", lambda *words: [*program, *words])
    job = post(web, "start", config="CartPole-v1:ppo", fields={"policy_lr": "1e-3"})
    folder = runs / job["run"]
    assert local.wait(folder, 20)
    printed = (folder / "job.log").read_text()
    assert "'train', 'CartPole-v1:ppo', '--run-dir'" in printed
    assert "'--set=policy_lr=1e-3'" in printed
    assert get(web, f"jobs/{job['job']['id']}")["job"]["is_running"] is False
    done = post(web, "runs/cart-0.001-0/evaluate", checkpoint="@best", episodes=5)["job"]
    assert local.wait(runs / ".jobs" / done["id"], 20)
    assert "cart-0.001-0/@best" in (runs / ".jobs" / done["id"] / "job.log").read_text()
    listed = {j["id"]: j for j in get(web, "jobs")["jobs"]}
    assert set(listed) == {done["id"], f"run:{job['run']}"}
    assert [listed[name]["kind"] for name in (done["id"], f"run:{job['run']}")] == ["eval", "train"]
    monkeypatch.setattr(job_pages, "KEPT_JOBS", 1)
    next_one = post(web, "runs/cart-0.001-0/evaluate", checkpoint="@best", episodes=5)["job"]
    assert local.wait(runs / ".jobs" / next_one["id"], 20)
    assert [path.name for path in (runs / ".jobs").iterdir()] == [next_one["id"]]


@pytest.mark.parametrize(
    ("path", "given", "word"),
    [
        ("GET select", {"q": "test>high"}, "number"),
        ("GET select", {"q": "seed="}, "value"),
        ("GET series", {"runs": "cart-0.001-0", "metrics": VAL, "smooth": "1"}, "smooth"),
        ("GET series", {"runs": "cart-0.001-0", "metrics": VAL, "smooth": "x"}, "smooth"),
        ("GET series", {"runs": "cart-0.001-0", "metrics": VAL, "points": "many"}, "points"),
        ("GET series", {"metrics": VAL}, "runs"),
        ("POST runs/tags", b"[", "JSON"),
        ("POST runs/tags", b"[]", "JSON object"),
        ("POST runs/tags", {"runs": 1}, "list"),
        ("POST runs/tags", {"runs": []}, "runs"),
        ("POST runs/tags", {}, "runs"),
        ("POST runs/tags", {"runs": ["cart-0.001-0"], "more": 1}, "unknown: more"),
        ("POST runs/tags", {"runs": ["cart-0.001-0"], "add": ["<b>"]}, "not a tag"),
        ("POST runs/cart-0.001-0/stop", {}, "not running"),
        ("POST start", {"config": "/etc/passwd"}, "passwd"),
        ("POST start", {"config": "../secret.yaml"}, "secret"),
        ("POST start", {"config": "--help"}, "help"),
        ("POST start", {"config": "own.yaml"}, "own"),
        ("POST start", {"config": "run:../x"}, "not a run"),
        ("POST start", {"config": "CartPole-v1:ppo", "fields": {"a b": "1"}}, "a b"),
        ("POST start", {"config": "CartPole-v1:ppo", "fields": {"seed": 1}}, "seed"),
        ("POST start", {"config": "CartPole-v1:ppo", "name": "../up"}, "up"),
        ("POST start", {"config": "CartPole-v1:ppo", "name": "cart-0.001-0"}, "exists"),
        ("POST runs/cart-0.001-0/evaluate", {"checkpoint": "../../x"}, "checkpoint"),
        ("POST runs/cart-0.001-0/evaluate", {"checkpoint": "123"}, "123"),
        ("POST runs/cart-0.001-0/record", {"episodes": 1_000}, "1 to 16"),
        ("POST config", {"config": "../../x.yaml"}, "x.yaml"),
    ],
)
def test_what_is_wrong_is_refused_and_explained(
    web: TestClient, path: str, given: Any, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "start", lambda *_, **__: pytest.fail("it was started"))
    method, _, name = path.partition(" ")
    body = given if isinstance(given, bytes) else json.dumps(given).encode()
    more: dict[str, Any] = {"params": given} if method == "GET" else {"content": body}
    response = web.request(method, f"/api/{name}", headers=TOKEN, **more)
    assert response.status_code in (400, 404)
    assert word in response.json()["error"]


def test_a_limit_on_running_jobs(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = [sys.executable, "-c", "import sys; sys.stdin.readline(); import time; time.sleep(60)"]
    monkeypatch.setattr(local, "gsolve", lambda *words: [*waits, *words])
    monkeypatch.setattr(local, "_children", {})
    app = create_app(Settings(root=runs, token="secret", max_jobs=2))
    web = TestClient(app, base_url="http://127.0.0.1:7070")
    started = [post(web, "start", config="CartPole-v1:ppo")["job"]["id"] for _ in range(2)]
    for path, body in (("start", {"config": "CartPole-v1:ppo"}), ("runs/cart-0.001-0/resume", {}),
                       ("runs/cart-0.001-0/evaluate", {})):  # fmt: skip
        refused = web.post(f"/api/{path}", json=body, headers=TOKEN)
        assert refused.status_code == 429
        assert "2 jobs of this page are running" in refused.json()["error"]
    children: list[Any] = list(local._children.values())
    for job in started:
        post(web, f"jobs/{job}/stop")
        assert local.wait(runs / job.removeprefix("run:"), 20)
    deadline = time.monotonic() + 20
    while any(child.returncode is None for child in children) and time.monotonic() < deadline:
        time.sleep(0.01)  # nothing asks for the jobs: a thread has waited for them
    assert all(child.returncode is not None for child in children)
    assert local.n_running() == 0


@pytest.mark.parametrize("depth", [600, 50_000])
def test_json_that_is_nested_deep_is_refused(web: TestClient, depth: int) -> None:
    for path in ("start", "config", "runs/cart-0.001-0/evaluate", "runs/cart-0.001-0/resume",
                 "runs/cart-0.001-0/tags", "runs/cart-0.001-0/note", "login"):  # fmt: skip
        for body in (
            '{"fields": ' + "[" * depth + "]" * depth + "}",
            '{"a": ' * depth + "1" + "}" * depth,
        ):
            found = web.post(f"/api/{path}", content=body, headers=TOKEN).status_code
            assert found in (400, 404, 405, 200 if path == "login" else 400), (path, found)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_log_that_is_a_link_or_a_pipe_is_not_read(web: TestClient, runs: Path) -> None:
    log, secret = runs / "cart-0.001-1" / "run.log", runs.parent / "secret"
    secret.write_text("of this machine\n")
    log.unlink()
    log.symlink_to(secret)
    assert get(web, "runs/cart-0.001-1/log")["text"] == ""
    log.unlink()
    os.mkfifo(log)
    assert get(web, "runs/cart-0.001-1/log")["text"] == ""


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_no_route_reads_a_link_or_a_pipe(web: TestClient, runs: Path, kind: str) -> None:
    """One that follows a link shows a file of this machine; one that opens a pipe hangs, and so
    does this test."""
    secret = runs.parent / "secret"
    secret.write_text("secret_key: 1\n")
    run, where = runs / "cart-0.001-1", {"run": "cart-0.001-1", "metrics": "val/roll/ep_rew/mean"}
    (run / "report.md").write_text("text")
    places = (place.split() for topic in TOPICS for place in topic.QUESTIONS)
    paths = {path for method, path in places if method == "GET" and path.count("{") <= 1}
    paths = {path.replace("{run}", run.name) for path in paths if "run" in path}
    asked = ("series", "groups", "bands", "scores", "metrics", "scatter", "diff", "report.html")
    paths |= {f"/api/{name}" for name in asked}
    where |= {"x": "epoch", "y": "test"}
    for name in sorted(path.name for path in run.iterdir() if path.is_file()):
        (run / name).rename(runs.parent / "kept")
        (run / name).symlink_to(secret) if kind == "link" else os.mkfifo(run / name)
        for path in sorted(paths):
            answer = web.get(path, params=where | {"runs": run.name}, headers=TOKEN)
            assert answer.status_code < 500, (path, name)
            assert "secret_key" not in answer.text, (path, name)
        (run / name).unlink()
        (runs.parent / "kept").rename(run / name)


def test_configs_are_listed(web: TestClient) -> None:
    names = [c["name"] for c in get(web, "configs", q="cartpole")["configs"]]
    assert "CartPole-v1:ppo" in names


# --- damage and malice


def test_ids_never_leave_the_folder(web: TestClient) -> None:
    for ref in ("%2e%2e", "%2e%2e/%2e%2e/etc", "..%2f..%2fetc", "/etc", "%2fetc%2fpasswd",
                "@nothing", "no-such"):  # fmt: skip
        for path in (f"runs/{ref}", f"runs/{ref}/log", f"runs/{ref}/metrics.csv"):
            assert web.get(f"/api/{path}").status_code in (404, 400), path
        query = {"runs": ref, "metrics": "x"}
        assert web.get("/api/series", params=query).status_code in (404, 400), ref


def test_unnormalised_paths_never_leave_the_folder(web: TestClient) -> None:
    """A browser removes `..` from a path before it asks; another program need not."""

    async def ask(path: str) -> int:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        async def send(message: Any) -> None:
            sent.append(message)

        host = [(b"host", b"127.0.0.1:7070")]
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(),
                 "query_string": b"", "headers": host, "root_path": ""}  # fmt: skip
        await web.app(scope, receive, send)
        return int(sent[0]["status"])

    for path in ("/api/runs/..", "/api/runs/../log", "/api/runs/../../etc/passwd/log",
                 "/api/runs/cart-0.001-0/videos/..", "/api/runs/cart-0.001-0/videos/../meta.json",
                 "/static/../app.py", "/static/../../../pyproject.toml"):  # fmt: skip
        assert asyncio.run(ask(path)) == 404, path


def test_the_program_is_served_once(web: TestClient) -> None:
    page = web.get("/static/lib/chart.js", headers={"accept-encoding": "gzip"})
    assert page.headers["content-encoding"] == "gzip"
    assert page.headers["content-type"].startswith("text/javascript")
    plain = web.get("/static/lib/chart.js", headers={"accept-encoding": "identity"})
    assert (plain.text, "content-encoding" in plain.headers) == (page.text, False)
    known = {"if-none-match": page.headers["etag"]}
    assert web.get("/static/lib/chart.js", headers=known).status_code == 304
    assert web.get("/static/lib/none.js").status_code == 404


def test_videos_are_served_by_name_from_their_folder_alone(web: TestClient, runs: Path) -> None:
    run = Run(runs / "cart-0.001-0")
    (run.videos_dir / "a.mp4").write_bytes(b"0123456789")
    (run.videos_dir / "evil.html").write_text("<script>")
    (run.videos_dir / "link.mp4").symlink_to(run.meta_path)
    base = f"/api/runs/{run.id}/videos"
    whole = web.get(f"{base}/a.mp4")
    assert whole.headers["content-type"] == "video/mp4"
    part = web.get(f"{base}/a.mp4", headers={"range": "bytes=2-4"})
    assert (part.status_code, part.content) == (206, b"234")
    for name in ("evil.html", "link.mp4", "..%2fmeta.json", "%2e%2e%2fconfig.yaml"):
        assert web.get(f"{base}/{name}").status_code == 404, name


def test_a_damaged_run_does_not_hide_the_others(web: TestClient, runs: Path) -> None:
    (runs / "cart-0.001-0" / "meta.json").write_text("{")
    (runs / "cart-0.001-1" / "metrics.jsonl").write_text('{"env_steps": 1, "a": 1}\n[]\n')
    (runs / "cart-0.001-2" / "config.yaml").write_text("a: [")
    listed = {r["id"]: r["status"] for r in rows_of(get(web, "runs"))}
    assert len(listed) == 8
    assert listed["cart-0.001-0"] == "broken"
    assert len(get(web, "select", q="policy_lr=0.001")["order"]) == 3  # 2's config is unreadable
    assert web.get("/api/runs/cart-0.001-0").status_code == 404
    bad = web.get("/api/runs/cart-0.001-1")
    assert bad.status_code == 404
    assert "line 2" in bad.json()["error"]


def test_html_in_a_run_stays_text_in_json(web: TestClient, runs: Path) -> None:
    script = "<script>alert(1)</script>"
    run = Run(runs / "cart-0.001-0")
    run.log_metrics({"env_steps": 50_000, script: 1.0})
    run.update_meta(env_id=script)
    run.close()
    response = web.get("/api/runs/cart-0.001-0")
    assert response.headers["content-type"] == "application/json"
    assert script in json.dumps(response.json())
    report = web.get("/api/report.html", params={"runs": "cart-0.001-0"})
    assert script not in report.text
    assert "attachment" in report.headers["content-disposition"]
    assert report.headers["content-security-policy"].startswith("sandbox")


def test_the_server_imports_nothing_heavy() -> None:
    import subprocess

    code = (
        "import sys; from pathlib import Path; import gymnasium_solver.serve.web.app as a;"
        "from gymnasium_solver.serve.web.security import Settings;"
        "a.create_app(Settings(root=Path('.')));"
        "names = ('torch', 'gymnasium', 'envpool', 'matplotlib', 'pydantic')\n"
        "print([m for m in names if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_run_is_renamed_and_deleted_and_its_fields_are_checked(
    web: TestClient, runs: Path
) -> None:
    files = get(web, "runs/cart-0.001-0/files")
    assert files["bytes"] > sum(files["parts"].values()) > 0
    assert "policy_lr: 0.001" in files["config"]
    assert "epoch 2" in web.get("/api/runs/cart-0.001-0/log.txt").text
    assert post(web, "runs/cart-0.001-0/rename", name="mine") == {"run": "mine"}
    for call, body, why in (
        ("runs/mine/rename", {"name": "../x"}, "cannot name a run"),
        ("runs/mine/rename", {"name": "cart-0.001-1"}, "exists already"),
        ("runs/mine/set", {"fields": {}}, "no field"),
        ("runs/mine/set", {"fields": {"--trust": "1"}}, "not a field"),
        ("runs/delete", {"runs": []}, "no run"),
    ):
        answer = web.post(f"/api/{call}", json=body, headers=TOKEN)
        assert answer.status_code in (400, 404), call
        assert why in answer.json()["error"]
    assert post(web, "runs/delete", runs=["mine"]) == {"deleted": ["mine"]}
    assert not (runs / "mine").exists()
