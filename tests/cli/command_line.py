"""Calls the command line as a user does."""

from __future__ import annotations

import sys

import pytest

from dpfl.cli import main

SMALL = [
    "--set",
    "model.name=mlp",
    "--set",
    "model.hidden=16",
    "--set",
    "algorithm.name=fedavg-dp",
    "--set",
    "algorithm.noise_multiplier=1.0",
    "--set",
    "data.clients=4",
    "--workers",
    "1",
    "--quiet",
]


def dpfl(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one call."""
    before, sys.argv = sys.argv, ["dpfl", *map(str, words)]
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        sys.argv = before
    out, err = capsys.readouterr()
    code = ended.value.code
    return (code if isinstance(code, int) else 0), out, err


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The sentence on standard error; anything but exit code 2, one line and no traceback fails."""
    code, out, err = dpfl(capsys, *words)
    assert code == 2, (code, out, err)
    assert "Traceback" not in err
    assert err.startswith("dpfl: ")
    assert len(err.strip().splitlines()) == 1, err
    return err
