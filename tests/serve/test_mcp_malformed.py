"""Malformed calls: a clear error each time, nothing changed, nothing outside the runs reached."""

import hashlib
import json
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gymnasium_solver.backends import local
from tests.serve.guarded_mcp import BREACH, refuse_command, refuse_start
from tests.serve.mcp_client import (
    TOKEN,
    Caller,
    http_server,
    over_http,
    over_stdio,
    tiny_run,
    with_server,
)

pytest.importorskip("mcp", reason="the extra mcp is not installed")

CALLS = 500
GUARDED = (sys.executable, "-m", "tests.serve.guarded_mcp")
NAMES = [
    *("", " ", ".", "..", "/", "//", "~", "@", "@best", "@last/../..", "../secret", "..\\secret"),
    *("/etc/passwd", "file:///etc/passwd", "{secret}", "{secret}/config.yaml", "runs/../../x"),
    *("nothing", "a" * 400, "\0", "a\nb", "\udc80", "é" * 10, "%2e%2e%2f", "$(id)", "; rm -rf /"),
    *("CartPole-v1:ppo:ppo", "os:system", "CartPole-v1:../x", "{secret}.yaml:ppo", "--help"),
    *("--runs-dir=/", "-h", "CartPole-v1:ppo --trust", "None", "null", "0", "1e999"),
]
VALUES: list[Any] = [
    *(None, True, -1, 0, 10**30, 1.5, float("inf"), "text", "", [], [1], ["", None], {}, {"a": {}}),
    *([[]], [{"a": []}], ["x"] * 500, {"plugins": ["os"]}, {"env_id": "os:Env-v0"}),
    *({"env_wrappers": ["os.path.join"]}, {"init_from_run": "/etc"}, {"init_from_run": "../x"}),
    *({"env_kwargs": {"xml_file": "/etc/passwd"}}, {"--trust": ""}, {"a b": 1}, {"seed": "x"}),
    *({"max_env_steps": -5}, {"run_dir": "/tmp/x"}, {"policy_lr": {"a": {"b": {}}}}),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bad") / "runs"
    tiny_run(root, seed=1)
    secret = root.parent / "secret"
    secret.mkdir()
    (secret / "config.yaml").write_text("swordfish: [\n")
    (secret / "meta.json").write_text('{"id": "swordfish"}')
    return root


def digest(root: Path) -> dict[str, str]:
    """The content of all files of the runs; the index is rebuilt when it is read."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.parent.rglob("*"))
        if path.is_file() and path.name[0] != "." and path.parent.parent.name != ".mcp-jobs"
    }


def arguments(rng: random.Random, schema: dict[str, Any], secret: str) -> dict[str, Any]:
    """A mixture of right, wrong, missing and unknown arguments."""
    given: dict[str, Any] = {}
    for name, field in schema.get("properties", {}).items():
        roll = rng.random()
        if roll < 0.25 and name not in schema.get("required", ()):
            continue
        kind = field.get("type")
        bad_name = rng.choice(NAMES).replace("{secret}", secret)
        if roll < 0.55:
            given[name] = rng.choice(VALUES)
        elif kind == "array":
            given[name] = [bad_name] * rng.choice([1, 2, 30])
        elif kind in ("integer", "number"):
            given[name] = rng.choice([-1, 0, 2, 10**20, -(10**20), 1.5, "3", "x"])
        elif kind == "object":
            given[name] = rng.choice([v for v in VALUES if isinstance(v, dict)])
        else:
            given[name] = bad_name
    if rng.random() < 0.1:
        given[rng.choice(["path", "root", "self", "ctx", "token", "__class__"])] = secret
    return given


def sendable(given: dict[str, Any]) -> bool:
    """A client cannot send half a surrogate pair."""
    try:
        json.dumps(given, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def malformed(
    n: int, secret: str, seen: dict[str, int], seed: int = 17, *, is_wired: bool = False
) -> Callable[[Caller], Awaitable[None]]:
    """A story of `n` wrong calls, the same for one seed; `seen` counts errors and answers."""
    rng = random.Random(seed)
    seen |= {"errors": 0, "answers": 0, "starts": 0}

    async def story(call: Caller) -> None:
        tools = (await call.client.list_tools()).tools
        for _ in range(n):
            tool = rng.choice(tools)
            if rng.random() < 0.02:
                assert "no tool" in await call.error(tool.name + "x")
                continue
            given = arguments(rng, tool.input_schema, secret)
            if tool.name == "wait_for":
                given["seconds"] = 0
            if tool.name == "edit_run":
                given.pop("note", None)
                given["run"] = rng.choice(NAMES)
            if is_wired and not sendable(given):
                continue
            result = await call.result(tool.name, **given)
            text = result.content[0].text
            seen["errors" if result.is_error else "answers"] += 1
            seen["starts"] += "refused by the test" in text and tool.name.startswith("start")
            assert "swordfish" not in text, (tool.name, given)
            assert BREACH not in text, (tool.name, given)
            if result.is_error:
                assert 0 < len(text.strip()) < 4_000, (tool.name, given)
                assert "Traceback" not in text
                assert not text.startswith("Error executing tool"), (tool.name, given, text)
        assert (await call.data("list_runs"))["runs"], "the server still works"

    return story


@pytest.mark.parametrize("transport", ["none", "stdio", "http"])
def test_hundreds_of_malformed_calls(
    root: Path, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, and over the wire; whatever would start a process is refused."""
    before, seen = digest(root), dict[str, int]()
    wired = transport != "none"
    story = malformed(CALLS, str(root.parent / "secret"), seen, 17 + wired, is_wired=wired)
    if transport == "none":
        monkeypatch.setattr(local, "start", refuse_start)
        monkeypatch.setattr("gymnasium_solver.serve.commands.Command", refuse_command)
        with_server(root, story)
    elif transport == "stdio":
        over_stdio(root, story, program=GUARDED)
    else:
        with http_server(root, "--allow-write", program=GUARDED) as address:
            over_http(address, story, TOKEN)
    assert digest(root) == before, "no file was changed"
    assert seen["errors"] > CALLS / 2, seen
    assert seen["starts"] < CALLS / 10, "gsolve itself refuses the rest"


HELLO = {
    "jsonrpc": "2.0", "id": 7, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {},
               "clientInfo": {"name": "test", "version": "1"}},
}  # fmt: skip


def junk(n: int) -> list[bytes]:
    """Lines that are no messages: cut, of the wrong shape, not text."""
    rng = random.Random(3)
    whole = json.dumps(HELLO).encode()
    odd = [
        *(b"", b"{}", b"[]", b"null", b"7", b'"x"', b"{", b"\xff\xfe", b"GET / HTTP/1.1", b"\0\0"),
        *(b'{"jsonrpc":"1.0","id":1,"method":"x"}', b'{"jsonrpc":"2.0","id":{},"method":[]}'),
        *(b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":7}}', b"[" * 5000),
        *(b'{"jsonrpc":"2.0","id":1,"method":"' + b"a" * 100_000 + b'"}',),
    ]
    return [
        rng.choice(odd) if rng.random() < 0.7 else whole[: rng.randrange(1, len(whole))]
        for _ in range(n)
    ]


@pytest.mark.slow
def test_what_is_no_message_does_not_end_a_server_on_stdio(root: Path) -> None:
    words = [*GUARDED, "mcp", "--runs-dir", str(root)]
    text = b"\n".join([*junk(500), json.dumps(HELLO).encode(), b""])
    done = subprocess.run(words, input=text, capture_output=True, timeout=60)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    hello = [one for one in answers if one.get("id") == 7 and "result" in one]
    assert hello, done.stdout[-500:]
    assert hello[0]["result"]["serverInfo"]["name"] == "gymnasium-solver"
    assert b"swordfish" not in done.stdout


@pytest.mark.slow
def test_what_is_no_message_does_not_end_a_server_on_http(root: Path) -> None:
    import httpx

    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    with http_server(root, program=GUARDED) as address, httpx.Client(headers=headers) as client:
        for body in junk(500):
            answer = client.post(address, content=body, timeout=20)
            assert answer.status_code in (200, 202, 400, 404, 413), (body[:80], answer.status_code)
            assert "Traceback" not in answer.text
        assert client.post(address, json=HELLO, timeout=20).status_code == 200
