"""The server as a Flower app trains, and resumes a run that has begun."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfl.cli import flower_app


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_that_has_begun_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    calls: list[Any] = []
    experiment = SimpleNamespace(serve=lambda *words: calls.append(words) or "a result")
    terms = SimpleNamespace(deadline=3.0)
    monkeypatch.setattr(flower_app, "load", lambda path: experiment)
    monkeypatch.setattr(flower_app, "terms_of", lambda asked: (terms, {}))
    monkeypatch.setattr(flower_app, "GridTransport", lambda *words: words)
    monkeypatch.setattr(flower_app.RunFolder, "begun", lambda folder: begun)
    printed: list[Any] = []
    monkeypatch.setattr(flower_app, "print_outcome", lambda result, console: printed.append(result))
    settings = {"experiment": "experiment.toml", "out": str(tmp_path / "run")}
    context: Any = SimpleNamespace(run_config=settings)
    flower_app.main("grid", context)
    ((transport, own_terms, out, resume, _),) = calls
    assert (transport[0], transport[2]) == ("grid", 3.0)
    assert (own_terms, out, resume) == (terms, tmp_path / "run", begun)
    assert printed == ["a result"]
