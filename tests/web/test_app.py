"""Addresses of the web app: what each answers, and one sentence for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfl.web import event_stream
from dpfl.web.app import PAGES, make_app
from dpfl.web.auth import AccessKeys

pytestmark = pytest.mark.xdist_group("web")


def test_too_many_viewers_are_told(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.testclient import TestClient

    monkeypatch.setattr(event_stream, "MOST_WATCHERS", 0)
    with TestClient(make_app(runs, AccessKeys(frozenset()))) as client:
        answer = client.get("/api/events", params={"name": "plain"})
    assert (answer.status_code, answer.json()["error"]) == (
        400,
        "0 pages already watch runs. Close some of them.",
    )


@pytest.mark.parametrize(
    ("method", "address", "status", "said"),
    [
        ("GET", "/api/run?name=none", 400, "There is no run 'none'"),
        ("POST", "/api/run/erase?name=none", 400, "There is no action 'erase'; "),
        ("GET", "/api/compare", 422, "name"),
        ("GET", "/api/compare?name=a&name=a", 400, "named twice"),
        ("GET", "/api/plan?epsilon=0&rounds=1", 422, "epsilon"),
        ("GET", "/api/system?name=os:getcwd", 400, "only systems of the catalogue"),
        ("GET", "/certificate?name=none", 400, "There is no run"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence(
    tmp_path: Path, method: str, address: str, status: int, said: str
) -> None:
    from starlette.testclient import TestClient

    client = TestClient(make_app(tmp_path, AccessKeys(frozenset())))
    answer = client.request(method, address)
    assert answer.status_code == status
    assert said in answer.json()["error"]


def test_every_page_is_served_and_another_address_is_not_found(tmp_path: Path) -> None:
    from starlette.testclient import TestClient

    client = TestClient(make_app(tmp_path, AccessKeys(frozenset())))
    for page in PAGES:
        assert client.get(f"/{page}").status_code == 200
    assert client.get("/elsewhere").status_code == 404
    assert client.get("/api/runs").json() == {"runs": [], "starting": [], "failed": {}}
