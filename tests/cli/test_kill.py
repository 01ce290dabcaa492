"""A run killed with -9 and resumed is the run that was never stopped, and its ledgers forget nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from dpfl.privacy import Ledger

ROUNDS, TAU, CLIENTS = 24, 2, 3
SETTINGS = [
    f"budget.rounds={ROUNDS}", "algorithm.name=fedavg-dp", f"algorithm.tau={TAU}", f"data.clients={CLIENTS}",
    "algorithm.noise_multiplier=1.0",
    "algorithm.sampling_rate=0.1", "model.name=mlp", "model.hidden=32", "budget.epsilon=40", "privacy.accountant=rdp",
]  # fmt: skip
COMMAND = [sys.executable, "-c", "from dpfl.cli import main; main()", "run", "--quiet", "--json"]
FORKING = """
import json, os, sys
import dpfl.cli.run, dpfl.run.train, torch, dp_accounting
from dpfl.cli import main
from dpfl.lazy import special

for line in sys.stdin:
    if child := os.fork():
        print(child, flush=True)
        os.waitpid(child, 0)
        print(flush=True)
    else:
        words, said = json.loads(line)
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        sys.argv = ["dpfl", "run", "--quiet", "--json", *words]
        try:
            main()
        finally:
            sys.stdout.flush()
            os._exit(0)
"""
"""A process that has imported what a run needs, and is forked for each command: to start another takes seconds."""


class Commands:
    """Commands one after another, each in a process of its own, which can be killed."""

    def __init__(self, folder: Path) -> None:
        self._said = folder / "said"
        self._server = subprocess.Popen(
            [sys.executable, "-c", FORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, *words: object) -> int:
        self._server.stdin.write(json.dumps([list(map(str, words)), str(self._said)]) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def end(self) -> str:
        """What it said, once it has ended."""
        assert self._server.stdout.readline() == "\n"
        return self._said.read_text()

    def close(self) -> None:
        self._server.stdin.close()
        assert self._server.wait(60) == 0
        self._server.stdout.close()


def alive(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def flags() -> list[str]:
    return [word for setting in SETTINGS for word in ("--set", setting)]


def finished_rounds(run: Path) -> int:
    path = run / "checkpoint.safetensors"
    if not path.exists():
        return 0
    content = path.read_bytes()  # at once: safe_open opens it twice, and it may be another file by then
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return int(json.loads(header["__metadata__"]["state"])["round"])


def counts(run: Path) -> list[int]:
    paths = sorted((run / "ledger").glob("*.sqlite"))
    return [sum(Ledger.read(path).spent().values()) for path in paths]


def test_killed_at_six_random_moments_it_ends_as_if_never_stopped(tmp_path):
    whole = subprocess.Popen([*COMMAND, *map(str, ("--out", tmp_path / "whole", *flags()))], stdout=subprocess.PIPE, text=True)
    moments, commands = random.Random(), Commands(tmp_path)
    run = tmp_path / "killed"
    words: list[object] = ["--out", run, "--workers", 1, *flags()]
    for kill in range(6):
        process = commands.start(*words)
        target = finished_rounds(run) + moments.choice([0, 1, 2])
        deadline = time.monotonic() + 60
        while alive(process) and time.monotonic() < deadline:
            begun = (run / "experiment.toml").exists()
            if begun and finished_rounds(run) >= target:
                break
            time.sleep(0.002)
        time.sleep(moments.random() * 0.05)
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        commands.end()
        assert (run / "experiment.toml").exists(), f"killed too early, at kill {kill}"
        assert all(count >= TAU * finished_rounds(run) for count in counts(run))
        words = ["--resume", run, "--workers", 1 + kill % 2]
    commands.start(*words)
    result = json.loads(commands.end())
    commands.close()
    expected = json.loads(whole.communicate(timeout=120)[0])
    assert result["model_sha256"] == expected["model_sha256"]
    assert result["rounds"] == expected["rounds"] == ROUNDS
    assert result["privacy"]["proven"] == expected["privacy"]["proven"]
    assert counts(run) == [ROUNDS * TAU] * CLIENTS


def test_an_interrupt_says_how_to_go_on(tmp_path):
    run = tmp_path / "run"
    endless = ("budget.rounds=1000000", "budget.epsilon=100000")
    words = ["--out", run, "--workers", 1, *flags(), *(word for setting in endless for word in ("--set", setting))]
    # Whoever runs the tests in the background may have interrupts ignored, which children inherit.
    listening = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*COMMAND, *map(str, words)], preexec_fn=listening, **pipes)
    deadline = time.monotonic() + 60
    while finished_rounds(run) < 1 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    for _ in range(6):  # Python loses an interrupt that comes while it clears something away; people press the keys again
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert f"dpfl run --resume {run}" in said
