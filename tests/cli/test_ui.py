"""`dpfl ui` refuses what would open the pages to others, before it serves anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfl.errors import DpflError
from tests.cli.command_line import refused


@pytest.mark.parametrize(
    "token",
    ["with a space in it", "semi;colon-and-more", "ein-längeres-wort", "line\nbreak-and-more"],
)
def test_a_token_that_no_cookie_can_carry_is_refused(token: str) -> None:
    from typer.testing import CliRunner

    from dpfl.cli.app import app

    with pytest.raises(DpflError, match="letters, digits"):
        raise CliRunner().invoke(app, ["ui", "--host", "300.0.0.1", "--token", token]).exception


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "Give --token"),
        (["--token", "short"], "at least 12 characters"),
        (["--runs", "file"], "file is not a folder"),
    ],
)
def test_what_would_open_the_pages_to_others_is_refused(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert said in refused(capsys, "ui", *words)
