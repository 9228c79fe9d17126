"""Who may read and change what: Host, origin, token, read-only, headers, paths."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")
from starlette.testclient import TestClient

from gymnasium_solver.errors import GsolveError
from gymnasium_solver.serve.web.app import create_app
from gymnasium_solver.serve.web.security import Settings, clean_base_path

LOCAL = "http://127.0.0.1:7070"


def client(tmp_path: Path, **settings: Any) -> TestClient:
    app = create_app(Settings(root=tmp_path, token="secret", **settings))
    return TestClient(app, base_url=LOCAL)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7070", "127.0.0.1.evil.example", ""]
)
def test_a_foreign_host_is_refused(tmp_path: Path, host: str) -> None:
    """DNS rebinding: the name of a stranger points to this address."""
    web = client(tmp_path)
    for path in ("/", "/api/session", "/static/app.js"):
        assert web.get(path, headers={"host": host}).status_code == 421
    assert (
        web.post("/api/login", headers={"host": host, "x-gsolve-token": "secret"}).status_code
        == 421
    )


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9", "127.0.0.1", "127.0.0.2:80", "[::1]:7070", "LOCALHOST."]
)
def test_names_of_this_machine_are_served(tmp_path: Path, host: str) -> None:
    assert client(tmp_path).get("/api/session", headers={"host": host}).status_code == 200


def test_an_allowed_host_is_served(tmp_path: Path) -> None:
    web = client(tmp_path, allowed_hosts=("proxy.lab",))
    assert web.get("/", headers={"host": "proxy.lab:443"}).status_code == 200
    assert web.get("/", headers={"host": "other.lab"}).status_code == 421


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"x-gsolve-token": "wrong"}, 403),
        ({"x-gsolve-token": "sécret"}, 403),
        ({"x-gsolve-token": "secret"}, 200),
        ({"x-gsolve-token": "secret", "origin": LOCAL, "sec-fetch-site": "same-origin"}, 200),
        ({"x-gsolve-token": "secret", "origin": "http://evil.example"}, 403),
        ({"x-gsolve-token": "secret", "origin": "http://127.0.0.1:8888"}, 403),
        ({"x-gsolve-token": "secret", "origin": "null"}, 403),
        ({"x-gsolve-token": "secret", "sec-fetch-site": "cross-site"}, 403),
        ({"x-gsolve-token": "secret", "sec-fetch-site": "same-site"}, 403),
    ],
)
def test_a_change_needs_the_token_and_the_same_origin(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    encoded = {name.encode(): value.encode() for name, value in headers.items()}
    assert client(tmp_path).post("/api/login", headers=encoded).status_code == status


def test_read_only_refuses_changes(tmp_path: Path) -> None:
    web = client(tmp_path, read_only=True)
    response = web.post("/api/runs/tags", headers={"x-gsolve-token": "secret"})
    assert response.status_code == 403
    assert "--read-only" in response.json()["error"]
    assert web.get("/api/session").json()["read_only"] is True


@pytest.mark.parametrize("settings", [{"host": "0.0.0.0"}, {"require_token": True}])
def test_reading_needs_the_token_if_others_can_connect(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    web = client(tmp_path, **settings)
    assert web.get("/").status_code == 200  # the program of the page, without data
    assert "secret" not in web.get("/").text
    assert web.get("/api/session").status_code == 401
    assert web.get("/api/session", headers={"cookie": "gsolve-7070=wrong"}).status_code == 401
    login = web.post("/api/login", headers={"x-gsolve-token": "secret"})
    cookie = login.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert web.get("/api/session").json()["token"] == "secret"  # the client keeps the cookie


def test_a_public_address_accepts_numbers_but_no_strange_names(tmp_path: Path) -> None:
    web = client(tmp_path, host="0.0.0.0")
    headers = {"x-gsolve-token": "secret"}
    assert (
        web.get("/api/session", headers=headers | {"host": "192.168.1.7:7070"}).status_code == 200
    )
    assert web.get("/api/session", headers=headers | {"host": "evil.example"}).status_code == 421


def test_the_token_is_in_the_fragment_of_the_address(tmp_path: Path) -> None:
    assert (
        Settings(root=tmp_path, host="0.0.0.0", token="t").url == "http://127.0.0.1:7070/#token=t"
    )
    assert Settings(root=tmp_path, host="::1", base_path="/a").url == "http://[::1]:7070/a/"


def test_every_answer_has_the_headers(tmp_path: Path) -> None:
    web = client(tmp_path)
    for path in ("/", "/runs/x", "/api/session", "/api/nothing", "/static/app.js", "/static/none"):
        headers = web.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'self'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
    assert web.get("/", headers={"host": "evil.example"}).headers["x-content-type-options"]


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"],
)
def test_static_files_stay_in_their_folder(tmp_path: Path, path: str) -> None:
    response = client(tmp_path).get(path)
    assert "create_app" not in response.text
    assert "root:" not in response.text


def test_the_base_path_is_stripped_and_told_to_the_page(tmp_path: Path) -> None:
    web = client(tmp_path, base_path="/solver")
    assert '<base href="/solver/">' in web.get("/solver/runs/x").text
    assert web.get("/solver/api/session").status_code == 200
    assert web.get("/api/session").status_code == 200  # the proxy stripped it


@pytest.mark.parametrize(
    ("given", "clean"), [("", ""), ("/", ""), ("solver/", "/solver"), ("/a/b", "/a/b")]
)
def test_base_paths(given: str, clean: str) -> None:
    assert clean_base_path(given) == clean


@pytest.mark.parametrize("given", ['"><script>', "/a b", "/../x", "a//b"])
def test_bad_base_paths_are_refused(given: str) -> None:
    with pytest.raises(GsolveError, match="base-path"):
        clean_base_path(given)
