"""Code that a stranger's run names comes in through no door: no route of the web app, no MCP tool.
An MCP client, which may have read anything, cannot name code either."""

import contextlib
import io
import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")
pytest.importorskip("mcp", reason="the extra mcp is not installed")
from starlette.testclient import TestClient

from gymnasium_solver.backends import local
from gymnasium_solver.cli import main as cli
from gymnasium_solver.config import code as code_of_configs
from gymnasium_solver.config.yaml_file import dump_yaml
from gymnasium_solver.errors import GsolveError, RunError, TrustError
from gymnasium_solver.media.inspect import Studio
from gymnasium_solver.media.inspect_worker import Worker, ask_of
from gymnasium_solver.runs.episodes import list_episodes
from gymnasium_solver.runs.run import Run
from gymnasium_solver.serve import commands
from gymnasium_solver.serve.mcp import allowed, play_process
from gymnasium_solver.serve.questions import parameters
from gymnasium_solver.serve.web import config_worker
from gymnasium_solver.serve.web.app import TOPICS, create_app
from gymnasium_solver.serve.web.helper import Helper
from gymnasium_solver.serve.web.security import Settings
from gymnasium_solver.training import loop
from gymnasium_solver.training.prepare import build_config
from tests.cli.test_cli_trust import IN_A_RUN, MODULE, TINY
from tests.serve.mcp_client import Caller, with_server

TOKEN = {"x-gsolve-token": "secret"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that names no code and has an episode."""
    root = tmp_path_factory.mktemp("template") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root.parent)
        run = loop.train(build_config(TINY), runs_root=root)
        studio = Studio(root)
        studio.play(ask_of({"run": run.id}))
        studio.close()
    return root


@pytest.fixture
def run(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """The run beside a module; the file `imported` tells that it was imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    (tmp_path / f"{MODULE}.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    root = Path(shutil.copytree(template, tmp_path / "runs", symlinks=True))
    yield next(Run(path.parent) for path in root.glob("[!@]*/meta.json"))
    sys.modules.pop(MODULE, None)


def is_imported() -> bool:
    return Path("imported").exists() or MODULE in sys.modules


def printed(words: Sequence[str]) -> tuple[int, str, str]:
    """A gsolve command in this process, as one that has read no config yet."""
    out, err = io.StringIO(), io.StringIO()
    code_of_configs._strange.clear()
    code_of_configs._own.clear()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(list(words))
    return code, out.getvalue(), err.getvalue()


# -- the web app ----------------------------------------------------------------------------------


async def answered(helper: Helper, question: dict[str, Any]) -> dict[str, Any]:
    """What a helper process answers, in this process."""
    code_of_configs._strange.clear()
    code_of_configs._own.clear()
    if "op" not in question:
        return config_worker.reply_to(question)
    out = io.StringIO()
    worker = Worker(Path(helper.argv[-1]), out)
    for job in (question, None):
        worker.jobs.put(job)
    worker.run()
    worker.studio.close()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    told = next(line for line in lines if {"started", "done", "error"} & set(line))
    if "error" in told:
        raise {"TrustError": TrustError}.get(told["kind"], GsolveError)(told["error"])
    return dict(told.get("started") or told["done"])


def routes(run: Run) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every route that takes a run or a config, with this one: method, path and arguments."""
    values: dict[str, Any] = {
        "run": run.id, "runs": [run.id], "config": f"run:{run.id}", "configs": [f"run:{run.id}"],
        "episode": list_episodes(run)[0].id, "metrics": ["val/roll/ep_rew/mean"], "view": "net",
        "chunk": 0, "t": 0, "note": "x", "name": "x",
    }  # fmt: skip
    values["with"] = values["episode"]
    for place, question in ((p, q) for topic in TOPICS for p, q in topic.QUESTIONS.items()):
        method, path = place.split()
        given = {one.word: values[one.word] for one in parameters(question) if one.word in values}
        if not {"run", "runs", "config", "configs"} & set(given) or path.endswith("/delete"):
            continue
        for name in re.findall(r"\{(.*?)\}", path):
            value = given.pop(name.partition(":")[0], "none")
            path = path.replace(f"{{{name}}}", str(value))
        yield method, path, given


RUNNING = re.compile(r"/(start|resume|evaluate|record|episodes|saliency|config)$")
"""Routes that would run what the config names."""


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", IN_A_RUN)
def test_no_route_imports_what_a_stranger_names(
    run: Run, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.config_path.write_text(dump_yaml({**TINY, **IN_A_RUN[kind]}))
    started: list[list[str]] = []

    def start(argv: list[str], folder: Path, **_: Any) -> None:
        started.append(argv)
        raise RunError("refused by the test")

    monkeypatch.setattr(local, "start", start)
    monkeypatch.setattr(Helper, "ask", answered)
    app = create_app(Settings(root=run.path.parent, token="secret"))
    web = TestClient(app, base_url="http://127.0.0.1:7070")
    seen = set()
    for method, path, given in routes(run):
        if path.endswith(("/archive", "/restore", "/rename", "/remove")):
            continue  # the run would be gone
        more: dict[str, Any] = {"json": given} if method == "POST" else {"params": _query(given)}
        answer = web.request(method, path, headers=TOKEN, **more)
        assert answer.status_code < 500, (path, answer.text)
        assert not is_imported(), path
        assert started == [], path
        if method == "POST" and (found := RUNNING.search(path)):
            told = answer.json()
            assert told["needs_trust"] is True, path
            assert "--trust" in told["error"], path
            seen.add(found[1])
            if found[1] in ("start", "resume", "evaluate", "record"):
                web.post(path, json=given | {"trust": True}, headers=TOKEN)
                assert "--trust" in started.pop(), path
    assert len(seen) == 7


def _query(given: dict[str, Any]) -> dict[str, str]:
    texts = {name: ",".join(v) if isinstance(v, list) else str(v) for name, v in given.items()}
    return {name: text for name, text in texts.items() if name != "name"}


# -- MCP ------------------------------------------------------------------------------------------


class InThisProcess:
    """In place of the processes that tools start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(local, "start", self.start)
        monkeypatch.setattr(commands, "Command", self.command)

    def run(self, argv: Sequence[str]) -> tuple[int, str, str]:
        assert "--trust" not in argv
        module, *words = argv[2:]
        if module.endswith("play_process"):
            wanted, told = json.loads(words[0]), list[str]()
            make = play_process.kept if wanted["keep"] or wanted["episode"] else play_process.played
            code_of_configs._strange.clear()
            code_of_configs._own.clear()
            try:
                told.append(json.dumps(make(wanted, lambda value: None), default=str))
            except GsolveError as error:
                return 2, "", str(error)
            return 0, told[0], ""
        return printed(words[1:] if module.endswith("timed") else words)

    def command(self, argv: Sequence[str]) -> Any:
        code, out, err = self.run(argv)

        def lines() -> list[str]:
            if code == 0 or (code == 1 and out.startswith("{")):
                return out.splitlines()
            raise RunError(err)

        return SimpleNamespace(wait=lambda seconds: True, lines=lines)

    def start(self, argv: Sequence[str], folder: Path, **_: Any) -> local.Job:
        code, _out, err = self.run([word for word in argv if word != "--no-keys"])
        raise RunError(err or f"it ended with {code}")


def calls(run: Run) -> list[tuple[str, dict[str, Any]]]:
    """Every tool that takes a run or a config and may run what it names."""
    search = {"policy_lr": "log:1e-5..1e-2"}
    return [
        ("start_training", {"config": f"run:{run.id}"}),
        ("start_training", {"config": "@last", "overrides": {"seed": 3}}),
        ("start_training", {"resume": run.id, "max_env_steps": 200}),
        ("start_experiment", {"configs": [f"run:{run.id}"], "seeds": 1}),
        ("start_experiment", {"configs": [f"run:{run.id}"], "search": search, "trials": 1}),
        ("get_config", {"config": f"run:{run.id}", "all": True}),
        ("evaluate", {"target": run.id, "episodes": 1}),
        ("play", {"target": run.id, "frames": 0}),
        ("play", {"target": run.id, "keep": True}),
        ("play", {"target": f"run:{run.id}", "mode": "random"}),
        ("export", {"target": run.id, "format": "torch"}),
        ("edit_run", {"run": run.id, "set": {"policy_lr": 1e-4}}),
        ("publish_run", {"run": run.id}),
    ]


READING: dict[str, dict[str, Any]] = {
    "get_run": {}, "get_logs": {}, "diagnose": {}, "get_metrics": {}, "wait_for": {"seconds": 0},
    "compare_runs": {}, "plot": {}, "list_runs": {}, "get_experiment": {}, "stop_training": {},
    "query": {"sql": "select * from runs"}, "list_configs": {},
}  # fmt: skip
NAMED = {"compare_runs": "runs", "plot": "runs", "list_runs": "", "get_experiment": "", "query": ""}


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", IN_A_RUN)
def test_no_tool_imports_what_a_stranger_names(
    run: Run, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.config_path.write_text(dump_yaml({**TINY, **IN_A_RUN[kind]}))
    InThisProcess(monkeypatch)

    async def story(call: Caller) -> None:
        tools = {tool.name for tool in (await call.client.list_tools()).tools}
        asked = {"open_ui", "save_config"}  # a page; what a search has found
        for name, given in calls(run):
            result = await call.result(name, **given)
            text = result.content[0].text
            assert not is_imported(), (name, given)
            is_shown = name in ("get_config", "publish_run", "edit_run")  # which import nothing
            assert is_shown or "--trust" in text, (name, given, text)
            asked.add(name)
        for name, more in READING.items():
            word = NAMED.get(name, "run")
            value: Any = [run.id] if word == "runs" else run.id
            await call.result(name, **more, **({word: value} if word and name in tools else {}))
            assert not is_imported(), name
            asked.add(name)
        assert tools <= asked

    with_server(run.path.parent, story, allow_publish=True)


NAMES = (
    MODULE, f"{MODULE}:Env-v0", f"{MODULE}:Env", f"{MODULE}:ppo", f"Gymnax/{MODULE}:Env",
    f"./{MODULE}.py", f"{MODULE}.py",
)  # fmt: skip
FIELDS: tuple[dict[str, Any], ...] = (
    *IN_A_RUN.values(), {"plugins": MODULE}, {"plugins": f"[{MODULE}]"}, {"plugins.0": MODULE},
    {"env_id": MODULE}, {"env_wrappers.0.id": f"{MODULE}.Wrap"},
    {"env_wrappers.0.id": f"{MODULE}:Wrap"}, {"tasks.0": f"{MODULE}:A-v0"},
    {"curriculum.stages.0.env_id": f"{MODULE}:A-v0"}, {"algo_id": MODULE}, {"policy": MODULE},
    {"observers": [MODULE]}, {"optimizer": f"{MODULE}.Adam"}, {"optimizer": f"{MODULE}:Adam"},
)  # fmt: skip


def test_a_client_cannot_name_code(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    InThisProcess(monkeypatch)
    shaped = "CartPole-v1:ppo_rewardshaped"  # it has a wrapper to change

    async def story(call: Caller) -> None:
        async def refused(name: str, /, **given: Any) -> None:
            text = await call.error(name, **given)
            assert not is_imported(), (name, given, text)

        for name in NAMES:
            await refused("get_config", config=name)
            await refused("start_training", config=name)
            await refused("start_experiment", configs=[name], seeds=1)
            await refused("play", target=name, mode="random")
        quick = {"n_envs": 2, "n_steps": 16, "max_env_steps": 32, "test_episodes": 1}
        for fields in FIELDS:
            await refused("start_training", config=shaped, overrides=quick | fields)
            await refused("edit_run", run=run.id, set=fields)
            await refused("evaluate", target=run.id, env_kwargs=fields)
            for field, value in fields.items():
                texts = value if isinstance(value, str) else json.dumps(value)
                search = {field: f"[{texts}, {texts}x]"}
                await refused("start_experiment", configs=[shaped], search=search, trials=1)

    with_server(run.path.parent, story)


@pytest.mark.parametrize(
    "name",
    ["mine.c", "c:mine.c", "c:./mine.c", "c:/tmp/mine.c", "folder/mine.c:ppo", "c", "mine.C"],
)
def test_a_client_cannot_name_a_c_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(GsolveError, match=r"paths are not accepted|may be a module"):
        allowed.checked_config(name, tmp_path)
    assert allowed.checked_config("c:snake:ppo", tmp_path) == "c:snake:ppo"
