"""A run killed with -9 and resumed is the run that was never stopped, and its ledgers forget
nothing.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dpfl.privacy import Ledger
from tests.conftest import PATIENCE, wait_until

ROUNDS, TAU, CLIENTS = 24, 2, 3
SETTINGS = [
    f"budget.rounds={ROUNDS}",
    "algorithm.name=fedavg-dp",
    f"algorithm.tau={TAU}",
    f"data.clients={CLIENTS}",
    "algorithm.noise_multiplier=1.0",
    "algorithm.sampling_rate=0.1",
    "model.name=mlp",
    "model.hidden=32",
    "budget.epsilon=40",
    "privacy.accountant=rdp",
]
FORKING = """
import json, os, signal, sys
import dpfl.cli.run, dpfl.run.train, torch, dp_accounting
from dpfl.cli import main
from dpfl.lazy_import import special

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background may have it ignored
for line in sys.stdin:
    if child := os.fork():
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    else:
        words, *places = json.loads(line)
        for number, place in enumerate(places, 1):
            os.dup2(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv = ["dpfl", "run", "--quiet", "--json", *words]
        ended = 1
        try:
            main()
        except SystemExit as end:
            ended = end.code
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(ended or 0)
"""  # noqa: E501
"""A process that has imported what a run needs, and is forked for each command: to start another
takes seconds.
"""


class Commands:
    """Commands one after another, each in a process of its own, which can be killed."""

    def __init__(self, folder: Path) -> None:
        self._said = [folder / "out", folder / "err"]
        self._server = subprocess.Popen(
            [sys.executable, "-c", FORKING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, *words: object) -> int:
        self._server.stdin.write(json.dumps([list(map(str, words)), *map(str, self._said)]) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def end(self) -> tuple[int, str, str]:
        """How it ended, and what it said, once it has."""
        ended = int(self._server.stdout.readline())
        return ended, *(path.read_text() for path in self._said)

    def result(self) -> dict[str, Any]:
        return json.loads(self.end()[1])

    def close(self) -> None:
        self._server.stdin.close()
        assert self._server.wait(PATIENCE) == 0
        self._server.stdout.close()


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    made = Commands(tmp_path_factory.mktemp("commands"))
    yield made
    made.close()


def alive(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def flags() -> list[str]:
    return [word for setting in SETTINGS for word in ("--set", setting)]


def finished_rounds(run: Path) -> int:
    path = run / "checkpoint.safetensors"
    if not path.exists():
        return 0
    content = (
        path.read_bytes()
    )  # at once: safe_open opens it twice, and it may be another file by then
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return int(json.loads(header["__metadata__"]["state"])["round"])


def reached(run: Path, target: int) -> bool:
    return (run / "experiment.toml").exists() and finished_rounds(run) >= target


def counts(run: Path) -> list[int]:
    paths = sorted((run / "ledger").glob("*.sqlite"))
    return [sum(Ledger.read(path).spending().values()) for path in paths]


def test_killed_at_six_random_moments_it_ends_as_if_never_stopped(commands, tmp_path):
    commands.start("--out", tmp_path / "whole", "--workers", 1, *flags())
    expected = commands.result()
    moments, run = random.Random(), tmp_path / "killed"
    words: list[object] = ["--out", run, "--workers", 1, *flags()]
    for kill in range(6):
        process = commands.start(*words)
        target = finished_rounds(run) + moments.choice([0, 1, 2])
        wait_until(lambda: not alive(process) or reached(run, target))  # noqa: B023
        time.sleep(moments.random() * 0.05)
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        commands.end()
        assert (run / "experiment.toml").exists(), f"killed too early, at kill {kill}"
        assert all(count >= TAU * finished_rounds(run) for count in counts(run))
        # Two workers in one that is killed, and in the last: each imports everything once more.
        words = ["--resume", run, "--workers", 2 if kill in (2, 5) else 1]
    commands.start(*words)
    result = commands.result()
    assert result["model_sha256"] == expected["model_sha256"]
    assert result["rounds"] == expected["rounds"] == ROUNDS
    assert result["privacy"]["proven"] == expected["privacy"]["proven"]
    assert counts(run) == [ROUNDS * TAU] * CLIENTS


def test_an_interrupt_says_how_to_go_on(commands, tmp_path):
    run = tmp_path / "run"
    endless = ("budget.rounds=1000000", "budget.epsilon=100000")
    process = commands.start(
        "--out",
        run,
        "--workers",
        1,
        *flags(),
        *(word for one in endless for word in ("--set", one)),
    )
    wait_until(lambda: finished_rounds(run) >= 1 or not alive(process))
    os.kill(process, signal.SIGINT)
    pressed = time.monotonic()

    def ended() -> bool:
        """Python loses an interrupt that comes while it clears something away; people press the
        keys again.
        """
        nonlocal pressed
        if alive(process) and time.monotonic() > pressed + 60:
            os.kill(process, signal.SIGINT)
            pressed = time.monotonic()
        return not alive(process)

    wait_until(ended)
    code, _, said = commands.end()
    assert code == 130
    assert "Traceback" not in said
    assert f"dpfl run --resume {run}" in said
