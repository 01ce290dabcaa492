"""What is asked from elsewhere, without a token, too long, or for what lies elsewhere is refused,
and costs nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from dpfl.cli.app import app
from dpfl.errors import DpflError
from dpfl.web.auth import AccessKeys, AuthMiddleware, own_names
from dpfl.web.run_index import RunIndex
from dpfl.web.serve import new_token, serve
from tests.conftest import PATIENCE
from tests.web.conftest import HOSTILE, Site

pytestmark = pytest.mark.xdist_group("web")

OUTSIDE = [
    "../secret",
    "..",
    ".",
    "/etc",
    "a/../../b",
    "plain/../plain",
    ".starting",
    "x\0y",
    "a\\b",
    "a/b/c",
    "plain/ledger/..",
    "%2e%2e",
]


@pytest.fixture(scope="module")
def client(site: Site):
    with httpx.Client(base_url=site.address, timeout=PATIENCE) as found:
        yield found


def writing(client: httpx.Client) -> dict[str, str]:
    return {"x-dpfl-write": client.get("/api/session").json()["write"]}


def test_every_answer_says_what_the_page_may_do(client: httpx.Client) -> None:
    for path in ("/", "/run?name=plain", "/api/runs", "/static/app.js", "/nowhere"):
        answer = client.get(path)
        assert "script-src 'self'; style-src 'self'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:8642", ""]
)
def test_another_name_for_this_machine_is_not_answered(client: httpx.Client, host: str) -> None:
    assert client.get("/api/runs", headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-dpfl-write": "guessed"},
        {"x-dpfl-write": "right", "origin": "https://evil.example"},
        {"x-dpfl-write": "right", "origin": "null"},
        {"x-dpfl-write": "right", "sec-fetch-site": "cross-site"},
        {"x-dpfl-write": "right", "sec-fetch-site": "same-site"},
    ],
)
def test_nothing_is_started_or_stopped_from_elsewhere(
    client: httpx.Client, site: Site, headers: dict[str, str]
) -> None:
    if headers.get("x-dpfl-write") == "right":
        headers = headers | writing(client)
    wanted = {"epsilon": 1.0, "rounds": 1, "name": "from-elsewhere"}
    for path in ("/api/start", "/api/run/stop?name=plain", "/api/verify?name=plain"):
        assert client.post(path, json=wanted, headers=headers).status_code == 403
    assert not (site.runs / "from-elsewhere").exists()
    assert not (site.runs / ".starting" / "from-elsewhere.toml").exists()


def test_other_sites_get_no_numbers(client: httpx.Client) -> None:
    assert client.get("/api/runs", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert "access-control-allow-origin" not in client.get("/api/runs").headers


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_name_leads_out_of_the_folder(client: httpx.Client, site: Site, name: str) -> None:
    for path in (
        "/api/run",
        "/api/events",
        "/api/ledgers",
        "/api/compare",
        "/report",
        "/certificate",
    ):
        answer = client.get(path, params={"name": name})
        assert answer.status_code == 400, (path, answer.text)
        assert "root:" not in answer.text
    with pytest.raises(DpflError):
        RunIndex(site.runs).open(name)


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/../../etc/passwd"],
)
def test_no_file_beside_the_page_is_served(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "make_app" not in answer.text


def test_links_out_of_the_folder_are_not_followed(runs: Path, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    (root / "away").symlink_to(runs / "plain")
    shutil.copytree(runs / "plain", root / "odd")
    (root / "odd" / "statement.json").unlink()
    (root / "odd" / "statement.json").symlink_to("/etc/passwd")
    shutil.copytree(runs / "private-seed0", root / "books")
    (root / "books" / "ledger" / "extra.sqlite").symlink_to(
        runs / "private-seed1" / "ledger" / "client-00000.sqlite"
    )
    index = RunIndex(root)
    for name in ("away", "odd", "books"):
        with pytest.raises(DpflError, match="outside the folder of runs"):
            index.open(name)
    assert {line["name"]: line["state"] for line in index.lines()} == {
        "odd": "unreadable",
        "books": "unreadable",
    }


def test_what_is_too_much_is_refused(client: httpx.Client) -> None:
    assert client.get("/api/run", params={"name": "x" * 5000}).status_code == 414
    assert (
        client.get("/api/compare", params=[("name", str(place)) for place in range(40)]).status_code
        == 422
    )
    assert (
        client.post("/api/start", content=b"x" * 100_000, headers=writing(client)).status_code
        == 413
    )
    assert client.request("DELETE", "/api/runs").status_code == 405
    for bad in (
        {"epsilon": "inf", "rounds": 1},
        {"epsilon": -1, "rounds": 1},
        {"epsilon": 1, "rounds": 10**9},
        {"rounds": 1},
    ):
        assert client.get("/api/plan", params=bad).status_code == 422
    huge = {"epsilon": 1.0, "rounds": 1, "clients": 10**6}
    assert client.get("/api/plan", params=huge).status_code == 422


def test_only_what_the_planner_knows_can_be_started(client: httpx.Client, site: Site) -> None:
    wanted = {"epsilon": 1.0, "rounds": 1, "name": "ok"}
    odd = [
        {"name": "../up"},
        {"name": "-c"},
        {"name": "a b"},
        {"name": "plain"},
        {"model": "os:system"},
        {"data": "/etc/passwd"},
        {"algorithm": "x"},
    ]
    for change in odd:
        answer = client.post("/api/start", json=wanted | change, headers=writing(client))
        assert answer.status_code in (400, 422), (change, answer.text)
        assert answer.json()["error"].endswith(".")
    assert not (site.runs / ".starting" / "ok.toml").exists()
    assert client.get("/api/system", params={"name": "os:system"}).status_code == 400


def test_hostile_names_travel_as_data(client: httpx.Client) -> None:
    found = client.get("/api/run", params={"name": HOSTILE})
    assert found.headers["content-type"] == "application/json"
    assert found.json()["line"]["name"] == HOSTILE
    assert HOSTILE not in client.get("/report", params={"name": HOSTILE}).text


def test_other_addresses_need_a_token(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = CliRunner().invoke(app, ["ui", "--runs", str(runs), "--host", "0.0.0.0"])
    assert isinstance(said.exception, DpflError)
    assert "--token" in str(said.exception)
    with pytest.raises(DpflError, match="12 characters"):
        raise CliRunner().invoke(app, ["ui", "--token", "short"]).exception
    assert own_names("0.0.0.0", 1) == frozenset()
    apps, addresses = list[Any](), list[str]()
    monkeypatch.setattr("uvicorn.Server.run", lambda server, **_: apps.append(server.config.app))
    serve(runs, "127.0.0.1", 0, new_token(), addresses.append)
    origin, _, token = addresses[0].partition("?token=")
    client = TestClient(apps[0], base_url=origin, follow_redirects=False)
    assert client.get("/api/runs").status_code == 401
    assert client.get("/").status_code == 401
    assert client.get("/?token=guessed").status_code == 401
    headers = {"authorization": f"Bearer {token}"}
    assert client.get("/api/runs", headers=headers).status_code == 200
    entered = client.get(f"/run?name=plain&token={token}")
    assert (entered.status_code, entered.headers["location"]) == (303, "/run?name=plain")
    assert "HttpOnly" in entered.headers["set-cookie"]
    assert client.get("/api/runs").status_code == 200


@pytest.mark.parametrize("mode", ["no-cors", "cors", ""])
def test_other_sites_have_no_report_drawn(mode: str) -> None:
    gate = AuthMiddleware(lambda *_: None, AccessKeys(frozenset()))  # type: ignore[arg-type, return-value]
    scope = {"type": "http", "method": "GET", "path": "/report", "query_string": b"name=x"}
    refused = gate.refusal(scope, {"sec-fetch-site": "cross-site", "sec-fetch-mode": mode})
    assert refused is not None
    assert refused[0] == 403
    assert (
        gate.refusal(scope, {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}) is None
    )


@pytest.mark.parametrize("cookie", ['{"a":1}', "a@b=c", "x"])
def test_cookies_of_others_on_this_machine_do_not_hide_ours(cookie: str) -> None:
    token = "long-enough-token"
    keys = AccessKeys(frozenset(), token)
    gate = AuthMiddleware(lambda *_: None, keys)  # type: ignore[arg-type, return-value]
    assert gate._has_token({"cookie": f"{cookie}; {keys.cookie}={token}"})
    assert gate._has_token({"cookie": f"{keys.cookie}={token}; {cookie}"})
    assert not gate._has_token({"cookie": f"{cookie}; {keys.cookie}=other"})


def test_two_pages_on_one_machine_keep_their_cookies_apart() -> None:
    """A browser sends the cookies of a host to all of its ports."""
    one, other = (
        AccessKeys(frozenset(), "the-first-token"),
        AccessKeys(frozenset(), "another-token"),
    )
    assert one.cookie != other.cookie
    both = {"cookie": "; ".join(f"{keys.cookie}={keys.token}" for keys in (one, other))}
    assert all(AuthMiddleware(lambda *_: None, keys)._has_token(both) for keys in (one, other))  # type: ignore[arg-type, return-value]
