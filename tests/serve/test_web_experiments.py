"""Experiments and sweeps in the web app: what the pages ask, and the pages in a browser."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")
pytest.importorskip("optuna")
from starlette.testclient import TestClient

from gymnasium_solver.backends import local
from gymnasium_solver.config.yaml_file import dump_yaml, read_file
from gymnasium_solver.experiments import pool
from gymnasium_solver.experiments.experiment import Experiment, create
from gymnasium_solver.experiments.search import sweep_report
from gymnasium_solver.experiments.search.plan import prepare, read_plan
from gymnasium_solver.experiments.search.run import search_of
from gymnasium_solver.experiments.search.sweep_folder import create_sweep
from gymnasium_solver.runs import machine
from gymnasium_solver.runs.files import locked
from gymnasium_solver.serve import trainings
from gymnasium_solver.serve.web.app import create_app
from gymnasium_solver.serve.web.security import Settings
from gymnasium_solver.training.prepare import load_config
from tests.experiments.fake_runs import FakeBackend
from tests.serve.made_runs import made_run, made_solve
from tests.serve.test_web_api import TOKEN, get, post
from tests.serve.test_web_browser import Open, expect

LRS = (0.001, 0.0003)


def made_experiment(root: Path) -> Experiment:
    """Two configs, four seeds each; the last seed of the second one failed, the third waits."""
    configs = [(f"lr {lr}", load_config("CartPole-v1:ppo", overrides={"policy_lr": lr}))
               for lr in LRS]  # fmt: skip
    made = create(configs, [1, 2, 3, 4], root, name="rates", command=["gsolve", "train", "x"])
    for member in made.members:
        lr = LRS[member.group != "lr 0.001"]
        score = (480.0 if lr == LRS[0] else 300.0) + member.seed
        if (lr, member.seed) == (LRS[1], 3):
            continue
        run = made_run(root, member.run, seed=member.seed, lr=lr, score=score)
        command = ["gsolve", "train", str(made.path / "configs" / member.config)]
        run.update_meta(command=command)
        if (lr, member.seed) == (LRS[1], 4):
            run.update_meta(status="failed", stop_reason="error", stop_detail="out of memory",
                            test=None, solved=False)  # fmt: skip
    return made


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "POLL_S", 0.0)
        patch.setattr(machine, "git_state", lambda _: (None, b""))
        patch.setattr(sweep_report, "draw_all", lambda *_: [])
        made_experiment(root)
        plan = {
            "config": "CartPole-v1:ppo", "trials": 10, "sampler": "random", "name": "search",
            "params": {"policy_lr": "log:1e-5..1e-1", "n_epochs": "4,10,20"},
            "metric": {"name": "score"}, "final": {"top": 2, "choose": 2, "seeds": 3},
        }  # fmt: skip
        search_of(create_sweep(prepare(read_plan(plan, "test")), root), backend=FakeBackend()).run()
        yield root


@pytest.fixture
def web(root: Path) -> TestClient:
    app = create_app(Settings(root=root, token="secret"))
    return TestClient(app, base_url="http://127.0.0.1:7070")


def test_an_experiment_has_every_seed_and_the_verdicts_of_gsolve_compare(web: TestClient) -> None:
    listed = get(web, "experiments")
    (one,), (sweep,) = listed["experiments"], listed["sweeps"]
    assert (one["id"], one["status"], one["n_runs"], one["n_solved"]) == (
        "rates",
        "incomplete",
        8,
        4,
    )
    assert one["counts"] == "6 of 8 finished, 1 failed"
    assert (sweep["id"], sweep["status"], sweep["done"]) == ("search", "finished", 10)
    found = get(web, "experiments/rates")
    assert [row["status"] for row in found["rows"]].count("waiting") == 1
    failed = next(row for row in found["rows"] if row["status"] == "failed")
    assert (failed["seed"], failed["why"]) == (4, "an error ended it (out of memory)")
    groups = found["comparison"]["groups"]
    assert [(g["label"], len(g["scores"])) for g in groups] == [("lr 0.001", 4), ("lr 0.0003", 3)]
    assert found["comparison"]["verdicts"][0]["word"] in ("better", "worse")
    assert get(web, "experiments/rat")["id"] == "rates"  # a part of the id is enough
    answer = web.get("/api/experiments/nothing")
    assert (answer.status_code, "Experiments: rates" in answer.json()["error"]) == (404, True)
    rows = get(web, "select", q="experiment=rates", fold="1")
    assert [len(group["runs"]) for group in rows["groups"]] == [3, 4]
    assert {group["solved"] for group in rows["groups"]} == {0, 4}


def test_a_sweep_has_trials_importance_and_the_final(web: TestClient, root: Path) -> None:
    found = get(web, "sweeps/search")
    assert found["scales"] == {"policy_lr": "log", "n_epochs": "choice"}
    assert len(found["rows"]) == 10
    assert {len(row["values"]) for row in found["result"]["final"]} == {3}
    best = found["rows"][0]
    assert best["value"] == max(row["value"] for row in found["rows"])
    assert "path" not in best
    run = get(web, f"runs/{best['runs'][0]}")
    assert run["summary"]["id"] == f"search/trials/{best['number']:04d}/seed0"
    assert get(web, f"runs/{best['runs'][0]}/log")["text"] is not None
    assert sum(share for _, share, _, _ in found["importances"]) == pytest.approx(1.0)
    page = web.get("/api/sweeps/search/report.html")
    assert "sandbox" in page.headers["content-security-policy"]
    assert web.get("/api/sweeps/search/base.yaml").status_code == 404


def test_what_is_started_stopped_resumed_and_kept(
    web: TestClient, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The program that would train is replaced by one that prints its arguments."""
    program = [sys.executable, "-c", "import sys; print(sys.argv[1:])"]
    monkeypatch.setattr(local, "gsolve", lambda *words: [*program, *words])

    def console(told: dict[str, Any]) -> str:
        folder = root / ".jobs" / told["job"]["id"]
        assert local.wait(folder, 20)
        return (folder / "job.log").read_text()

    made = post(web, "start", config="CartPole-v1:ppo", seeds=3, at_once=2, name="mine")
    assert made["experiment"] == "mine"
    assert "'--seeds', '3', '--experiment', 'mine'" in console(made)
    search = {"policy_lr": "log:1e-5..1e-2", "gamma": ""}
    made = post(web, "start", config="CartPole-v1:ppo", search=search, trials=7, name="tuned",
                fields={"n_envs": "4"})  # fmt: skip
    printed = console(made)
    assert made["sweep"] == "tuned"
    for words in ("'--param', 'policy_lr=log:1e-5..1e-2', '--param', 'gamma', '--trials', '7'",
                  "'--name', 'tuned'", "'--set=n_envs=4'"):  # fmt: skip
        assert words in printed
    assert "'--resume', 'rates'" in console(post(web, "experiments/rates/resume"))
    assert "'--trials', '20'" in console(post(web, "sweeps/search/resume", trials=20))
    wrong: Any = (("start", {"config": "CartPole-v1:ppo", "search": {"a b": "1"}}, "a b"),
             ("start", {"config": "CartPole-v1:ppo", "seeds": 2, "name": "rates"}, "exists"),
             ("experiments/rates/stop", {}, "not running"),
             ("sweeps/search/keep", {"variant": "../x"}, "not a variant"))  # fmt: skip
    for path, body, word in wrong:
        answer = web.post(f"/api/{path}", json=body, headers=TOKEN)
        assert answer.status_code in (400, 404)
        assert word in answer.json()["error"]
    monkeypatch.undo()
    monkeypatch.setenv("GSOLVE_CONFIGS", str(tmp_path))
    kept = post(web, "sweeps/search/keep", variant="ppo_tuned", trial=1)
    assert kept["config"] == "CartPole-v1:ppo_tuned"
    assert "trial 1 of 10" in (tmp_path / "CartPole-v1.yaml").read_text()


@pytest.mark.parametrize("kind", ["experiments/rates", "sweeps/search"])
def test_a_strangers_code_is_imported_only_if_the_user_agrees(
    root: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []

    def start(argv: list[str], folder: Path) -> None:
        started.append(argv)
        raise trainings.RunError("refused by the test")

    monkeypatch.setattr(local, "start", start)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    folder = Path(shutil.copytree(root / kind, tmp_path / "runs" / kind, symlinks=True))
    for file in (*folder.glob("configs/*.yaml"), *folder.glob("base.yaml")):
        file.write_text(dump_yaml(dict(read_file(file)[0]) | {"plugins": ["strange"]}))
    app = create_app(Settings(root=tmp_path / "runs", token="secret"))
    web = TestClient(app, base_url="http://127.0.0.1:7070")
    answer = web.post(f"/api/{kind}/resume", json={}, headers=TOKEN)
    assert (answer.status_code, started) == (409, []), answer.text
    assert answer.json()["needs_trust"] is True
    web.post(f"/api/{kind}/resume", json={"trust": True}, headers=TOKEN)
    assert "--trust" in started.pop()


def test_the_story_of_a_solve_is_told_and_goes_on_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, ...]] = []

    def begin(web: Any, kind: str, *words: str) -> dict[str, Any]:
        started.append(words)
        return {}

    for page in ("experiment_pages", "job_pages"):
        monkeypatch.setattr(f"gymnasium_solver.serve.web.{page}.begin_job", begin)
    made_solve(tmp_path)
    app = create_app(Settings(root=tmp_path, token="secret"))
    web = TestClient(app, base_url="http://127.0.0.1:7070")
    told = get(web, "experiments/solved")["solve"]
    assert [stage for stage, _ in told["lines"]] == ["probe", "choice", "race", "check", "verdict"]
    assert (told["verdict"]["kind"], told["candidates"]) == ("solved", ["dqn", "ppo_discrete"])
    post(web, "experiments/solved/resume")
    assert started.pop()[:3] == ("solve", "--resume", "solved")
    assert post(web, "start", config="Acrobot-v1", solve=True, budget="20min", name="mine") == {
        "job": {}, "experiment": "mine",
    }  # fmt: skip
    assert started.pop()[:4] == ("solve", "Acrobot-v1", "--name", "mine")
    wrong = {"config": "Acrobot-v1", "solve": True, "budget": "soon"}
    answer = web.post("/api/start", json=wrong, headers=TOKEN)
    assert (answer.status_code, "20min" in answer.json()["error"]) == (400, True)


def test_the_page_of_a_solve(serve: Open, tmp_path: Path, open_page: Open) -> None:
    made_solve(tmp_path)
    server = serve(tmp_path)
    page = open_page(url=f"{server.settings.url}experiments/solved")
    expect(page.locator(".decisions tr")).to_have_count(5)
    expect(page.locator(".solve .status")).to_have_text("solved")
    page.get_by_text("What was measured").click()
    expect(page.get_by_role("row", name="horizon")).to_be_visible()
    page.get_by_role("link", name="The run that was judged").click()
    expect(page.locator(".run-page")).to_be_visible()


def test_a_coordinator_is_stopped_whoever_started_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(trainings.os, "kill", lambda pid, number: killed.append(pid))
    folder = root / "experiments" / "rates"
    with locked(folder):
        monkeypatch.setattr(trainings, "is_gsolve", lambda pid: False)
        with pytest.raises(trainings.RunError, match="not run by a process of this machine"):
            trainings.stop_coordinator(folder)
        monkeypatch.setattr(trainings, "is_gsolve", lambda pid: True)
        trainings.stop_coordinator(folder)
    assert len(killed) == 1


def test_the_pages(serve: Open, root: Path, open_page: Open) -> None:
    from axe_playwright_python.sync_playwright import Axe

    server = serve(root)
    page = open_page(url=f"{server.settings.url}experiments", color_scheme="dark")

    def check_access() -> None:
        found = Axe().run(page).response["violations"]
        assert [(v["id"], [n["html"][:150] for n in v["nodes"][:3]]) for v in found] == []

    expect(page.get_by_role("progressbar").first).to_be_visible()
    check_access()
    page.get_by_role("link", name="rates", exact=True).click()
    expect(page.locator(".cells .cell")).to_have_count(8)
    expect(page.locator(".cells .cell.good")).to_have_count(4)
    expect(page.get_by_text("out of memory")).to_be_visible()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    expect(page.get_by_label("Scores of the seeds in CartPole-v1")).to_have_attribute(
        "data-points", "7"
    )
    expect(page.locator(".verdicts li")).to_have_count(1)
    check_access()
    page.goto(f"{server.settings.url}sweeps/search")
    expect(page.get_by_label("Parallel coordinates")).to_have_attribute("data-lines", "10")
    expect(page.get_by_label("Score of each trial")).to_have_attribute("data-points", "16")
    expect(page.locator(".bars-list li")).to_have_count(2)
    page.locator(".trials tbody tr").first.click()
    expect(page.locator(".trials tr.chosen")).to_have_count(1)
    assert "trial=" in page.url
    page.get_by_label("field").select_option("n_epochs")
    expect(page.get_by_label("Score against n_epochs")).to_have_attribute("data-points", "10")
    check_access()
    page.set_viewport_size({"width": 390, "height": 800})
    expect(page.get_by_label("Parallel coordinates")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator(".trials tbody tr").first.get_by_role("link").click()
    expect(page.locator(".run-page")).to_be_visible()
