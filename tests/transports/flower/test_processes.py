"""Flower's processes and their environment."""

from __future__ import annotations

import os

import pytest

from dpfl.node.policy import SEED
from dpfl.transports.flower.processes import select_variables


def test_flower_s_processes_know_nothing_of_what_else_is_in_our_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secrets = {"DATABASE_PASSWORD", "AWS_SECRET_ACCESS_KEY", SEED, "HOMEPAGE", "XPATH"}
    for name in secrets:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HTTPS_PROXY", "proxy:1")
    found = select_variables(os.environ)
    assert found["HTTPS_PROXY"] == "proxy:1"
    assert found["PATH"] == os.environ["PATH"]
    assert not secrets & found.keys()
