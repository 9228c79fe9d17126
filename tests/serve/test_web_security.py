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
TOKEN = {"x-gsolve-token": "secret"}


def client(tmp_path: Path, **settings: Any) -> TestClient:
    app = create_app(Settings(root=tmp_path, token="secret", **settings))
    return TestClient(app, base_url=LOCAL)


def status(web: TestClient, path: str = "/api/session", **headers: str) -> int:
    return web.get(path, headers=headers).status_code


def test_a_foreign_host_is_refused(tmp_path: Path) -> None:
    """DNS rebinding: the name of a stranger points to this address."""
    web = client(tmp_path)
    for host in ("evil.example", "evil.example:7070", "127.0.0.1.evil.example", "",
                 "[127.0.0.1].evil.com", "[::1].evil.com:7070", "[::1", "evil.com@127.0.0.1",
                 "127.0.0.1:7070.evil.com", "127.0.0.1:x"):  # fmt: skip
        for path in ("/", "/api/session", "/static/app.js"):
            assert status(web, path, host=host) == 421, (host, path)
        assert web.post("/api/login", headers=TOKEN | {"host": host}).status_code == 421, host


def test_names_of_this_machine_are_served(tmp_path: Path) -> None:
    web = client(tmp_path)
    for host in ("localhost", "localhost:9", "127.0.0.1", "127.0.0.2:80", "[::1]:7070",
                 "LOCALHOST."):  # fmt: skip
        assert status(web, host=host) == 200, host


def test_an_allowed_host_is_served(tmp_path: Path) -> None:
    web = client(tmp_path, allowed_hosts=("proxy.lab",))
    assert status(web, "/", host="proxy.lab:443") == 200
    assert status(web, "/", host="other.lab") == 421


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 403),
        ({"x-gsolve-token": "wrong"}, 403),
        ({"x-gsolve-token": "sécret"}, 403),
        (TOKEN, 200),
        (TOKEN | {"origin": LOCAL, "sec-fetch-site": "same-origin"}, 200),
        (TOKEN | {"origin": "http://evil.example"}, 403),
        (TOKEN | {"origin": "http://127.0.0.1:8888"}, 403),
        (TOKEN | {"origin": "null"}, 403),
        (TOKEN | {"sec-fetch-site": "cross-site"}, 403),
        (TOKEN | {"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_a_change_needs_the_token_and_the_same_origin(
    tmp_path: Path, headers: dict[str, str], expected: int
) -> None:
    encoded = {name.encode(): value.encode() for name, value in headers.items()}
    assert client(tmp_path).post("/api/login", headers=encoded).status_code == expected


def test_read_only_refuses_changes(tmp_path: Path) -> None:
    web = client(tmp_path, read_only=True)
    response = web.post("/api/runs/tags", headers=TOKEN)
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
    assert status(web) == 401
    assert status(web, cookie="gsolve-7070=wrong") == 401
    login = web.post("/api/login", headers=TOKEN)
    cookie = login.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert web.get("/api/session").json()["token"] == "secret"  # the client keeps the cookie


def test_a_public_address_accepts_numbers_but_no_strange_names(tmp_path: Path) -> None:
    web = client(tmp_path, host="0.0.0.0")
    assert status(web, host="192.168.1.7:7070", **TOKEN) == 200
    assert status(web, host="evil.example", **TOKEN) == 421


def test_the_token_is_in_the_fragment_of_the_address(tmp_path: Path) -> None:
    url = Settings(root=tmp_path, host="0.0.0.0", token="t").url
    assert url == "http://127.0.0.1:7070/#token=t"
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


def test_static_files_stay_in_their_folder(tmp_path: Path) -> None:
    web = client(tmp_path)
    for path in ("../app.py", "%2e%2e/app.py", "..%2fapp.py", "/etc/passwd"):
        text = web.get(f"/static/{path}").text
        assert "create_app" not in text
        assert "root:" not in text


def test_the_base_path_is_stripped_and_told_to_the_page(tmp_path: Path) -> None:
    web = client(tmp_path, base_path="/solver")
    assert '<base href="/solver/">' in web.get("/solver/runs/x").text
    assert status(web, "/solver/api/session") == 200
    assert status(web) == 200  # the proxy stripped it


def test_base_paths() -> None:
    for given, clean in (("", ""), ("/", ""), ("solver/", "/solver"), ("/a/b", "/a/b")):
        assert clean_base_path(given) == clean
    for given in ('"><script>', "/a b", "/../x", "a//b"):
        with pytest.raises(GsolveError, match="base-path"):
            clean_base_path(given)
