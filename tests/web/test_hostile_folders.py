"""Folders that somebody else wrote: none spoils the list, is read beyond the folder of runs, or
ends what is no run.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfl.errors import DpflError
from dpfl.privacy.ledger.client_ledgers import ledger_path
from dpfl.run.folder import RunFolder
from dpfl.web import event_stream
from dpfl.web.app import make_app
from dpfl.web.auth import AccessKeys, AuthMiddleware
from dpfl.web.control import RunControl
from dpfl.web.event_stream import EventStream
from dpfl.web.run_index import RunIndex
from dpfl.web.run_views import run_page

pytestmark = pytest.mark.xdist_group("web")


def _record(text: str) -> Callable[[Path], object]:
    return lambda run: (run / "experiment.toml").write_text(f'[run]\nid = "a"\n{text}\n[hashes]\n')


def _result(run: Path) -> None:
    folder = RunFolder(run)
    folder.write_json("result.json", folder.json("result.json") | {"metrics": [1]})


ODD: dict[str, Callable[[Path], object]] = {
    "algorithm": _record('[resolved]\nalgorithm = "x"'),
    "budget": _record("[resolved]\nbudget = [1]"),
    "date": _record("started = 2020-01-01\n[resolved]"),
    "experiment": _record("[resolved]\n[experiment]\ndata = 1"),
    "metrics": _result,
    "bytes": lambda run: os.rename(run, os.fsencode(run) + b"\xff"),
}


@pytest.mark.parametrize("what", ODD)
def test_one_odd_run_leaves_the_list_of_the_others(runs: Path, tmp_path: Path, what: str) -> None:
    for name in ("good", "odd"):
        shutil.copytree(runs / "plain", tmp_path / name)
    ODD[what](tmp_path / "odd")
    found = {line["name"]: line["state"] for line in RunIndex(tmp_path).lines()}
    assert found["good"] == "finished"
    json.dumps(found, ensure_ascii=False).encode()


@pytest.mark.parametrize("what", ["algorithm", "budget", "metrics"])
def test_an_odd_run_is_a_sentence(runs: Path, tmp_path: Path, what: str) -> None:
    from starlette.testclient import TestClient

    shutil.copytree(runs / "plain", tmp_path / "odd")
    ODD[what](tmp_path / "odd")
    with TestClient(
        make_app(tmp_path, AccessKeys(frozenset())), raise_server_exceptions=False
    ) as client:
        for path in ("/api/run", "/api/compare", "/report"):
            answer = client.get(path, params={"name": "odd"})
            assert answer.status_code in (200, 400), path
            assert answer.status_code == 200 or answer.json()["error"].endswith(".")


def test_no_node_is_named_out_of_its_run(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "plain", tmp_path / "runs" / "x")
    (tmp_path / "runs" / "x" / "nodes").mkdir()
    (tmp_path / "secret.json").write_text('{"statement": {"proven": 7.25}}')
    RunFolder(tmp_path / "runs" / "x").write_json("nodes.json", {"../../../secret": {"size": 1}})
    (node,) = run_page(RunFolder(tmp_path / "runs" / "x"), "x")["nodes"]
    assert node["proven"] is None


@pytest.mark.parametrize("how", ["settings", "owner"])
def test_limits_are_read_from_ledgers_within_the_folder_alone(
    runs: Path, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(runs / "private-seed0", tmp_path / "runs" / "x")
    shutil.copytree(runs / "private-seed0" / "ledger", tmp_path / "elsewhere")
    folder = RunFolder(tmp_path / "runs" / "x")
    if how == "settings":
        text = folder.file("experiment.toml").read_text()
        folder.file("experiment.toml").write_text(
            text.replace("[resolved]\n", f"[resolved]\nledger = '{tmp_path}/elsewhere'\n")
        )
    else:
        stated = folder.json("statement.json")
        stated["per_client"] = {"../../../elsewhere/client-00000": 1.0}
        folder.write_json("statement.json", stated)
    assert ledger_path(tmp_path / "elsewhere", "client-00000").is_file()
    own = RunIndex(tmp_path / "runs")
    assert run_page(own.open("x"), "x", own.root)["limits"] == {}


@pytest.mark.parametrize("number", ["-1", "0", "1", "-9", "x", ""])
def test_only_a_process_is_stopped(
    runs: Path, tmp_path: Path, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may write a run's folder may not choose that everything of whoever looks at it is
    ended.
    """
    shutil.copytree(runs / "plain", tmp_path / "x")
    (tmp_path / "x" / "run.lock").write_text(number)
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a signal was sent"))
    with (tmp_path / "x" / "run.lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(DpflError, match="No process"):
            RunControl(RunIndex(tmp_path)).stop("x")


def test_a_name_that_is_being_started_keeps_its_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process reads the file seconds after it began."""
    control = RunControl(RunIndex(tmp_path))
    monkeypatch.setattr("dpfl.web.control.PROGRAM", "import time; time.sleep(3600)")
    monkeypatch.setattr("dpfl.web.control.PATIENCE", 0.1)
    control.start("twice", {"budget": {"epsilon": 1.0}})
    try:
        with pytest.raises(DpflError, match="being started"):
            control.start("twice", {"budget": {"epsilon": 100.0}})
        assert "epsilon = 1.0" in (tmp_path / ".starting" / "twice.toml").read_text()
    finally:
        control._processes["twice"].kill()
        control._processes["twice"].wait()


def test_a_run_that_was_stopped_is_waited_for_before_it_goes_on(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: on a busy machine a process that had let go of its run took more than three seconds to
    end, and the run that was to go on was said to be starting."""
    control, waits = RunControl(RunIndex(tmp_path)), list[float]()

    class Process:
        pid, returncode = os.getpid(), 130

        def poll(self) -> None: ...

        def wait(self, seconds: float) -> None:
            waits.append(seconds)

    monkeypatch.setattr("dpfl.web.control.subprocess.Popen", lambda *_, **__: Process())
    monkeypatch.setattr("dpfl.web.control._send", lambda *_: None)
    control.start("x", {})
    shutil.copytree(runs / "plain", tmp_path / "x")
    (tmp_path / "x" / "result.json").unlink()
    with RunFolder(tmp_path / "x").locked():
        control.stop("x")
    control.resume("x")
    control.resume("x")
    assert waits == [60.0, 3.0], "what was started again is as new"


def test_too_many_viewers_are_told(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.testclient import TestClient

    monkeypatch.setattr(event_stream, "MOST_WATCHERS", 0)
    with TestClient(make_app(runs, AccessKeys(frozenset()))) as client:
        answer = client.get("/api/events", params={"name": "plain"})
    assert (answer.status_code, answer.json()["error"]) == (
        400,
        "0 pages already watch runs. Close some of them.",
    )


def test_a_watched_run_that_becomes_odd_ends_the_watch(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "plain", tmp_path / "x")
    text = (tmp_path / "x" / "experiment.toml").read_text()
    (tmp_path / "x" / "experiment.toml").write_text(
        text.replace("\nclients = 4\n", '\nclients = "many"\n')
    )
    assert "many" in (tmp_path / "x" / "experiment.toml").read_text()

    async def first() -> str:
        return await anext(EventStream(RunIndex(tmp_path), lambda name: False).watch("x", 0))

    assert '"gone": true' in asyncio.run(first())


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
    assert gate._known({"cookie": f"{cookie}; {keys.cookie}={token}"})
    assert gate._known({"cookie": f"{keys.cookie}={token}; {cookie}"})
    assert not gate._known({"cookie": f"{cookie}; {keys.cookie}=other"})


def test_two_pages_on_one_machine_keep_their_cookies_apart() -> None:
    """A browser sends the cookies of a host to all of its ports."""
    one, other = (
        AccessKeys(frozenset(), "the-first-token"),
        AccessKeys(frozenset(), "another-token"),
    )
    assert one.cookie != other.cookie
    both = {"cookie": "; ".join(f"{keys.cookie}={keys.token}" for keys in (one, other))}
    assert all(AuthMiddleware(lambda *_: None, keys)._known(both) for keys in (one, other))  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    "token",
    ["with a space in it", "semi;colon-and-more", "ein-längeres-wort", "line\nbreak-and-more"],
)
def test_a_token_that_no_cookie_can_carry_is_refused(token: str) -> None:
    from typer.testing import CliRunner

    from dpfl.cli.app import app

    with pytest.raises(DpflError, match="letters, digits"):
        raise CliRunner().invoke(app, ["ui", "--host", "300.0.0.1", "--token", token]).exception
