"""A run that is stopped or killed at any moment ends as one that never was."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TextIO

import pytest
import torch
from torch import Tensor, nn

import dpfl
from dpfl.algorithms import dp_fedavg, fedavg_dp
from dpfl.data import Federation
from dpfl.privacy import accountant
from dpfl.run.metrics import RoundRow
from tests.conftest import MODEL, PATIENCE, small_federation
from tests.run.small_runs import (
    EVENT,
    SOUND,
    Hook,
    Train,
    counts,
)

TIGHT = accountant("pld").epsilon({EVENT: 8}, 1e-5) * (1 + 1e-9)


class Stumbles(nn.Module):
    """Ends the process's run, as Control-C would, the n-th time that it is trained on a batch."""

    left: ClassVar[int] = -1

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            Stumbles.left -= 1
            if Stumbles.left == 0:
                raise KeyboardInterrupt
        return self.layers(x)


def without_time(rows: Any) -> list[RoundRow]:
    return [replace(row, seconds=0.0) for row in rows]


@pytest.mark.parametrize("where", [11, 23, 37, 42])
def test_a_run_that_was_stopped_anywhere_ends_as_one_that_never_was(
    train: Train, federation: Federation, where: int
) -> None:
    """3 rounds of 3, 3 and 2 steps by 4 clients: in the first, a middle and the last round, with a
    budget for just these.

    The first ten batches are those of the dry run, which leaves no run to resume.
    """
    Stumbles.left = -1
    whole = train(federation, SOUND, epsilon=TIGHT, out="whole", model=Stumbles())
    assert whole.iterations == 8
    Stumbles.left = where
    with pytest.raises(KeyboardInterrupt):
        train(federation, SOUND, epsilon=TIGHT, out="broken", model=Stumbles())
    Stumbles.left = -1
    resumed = train(federation, SOUND, epsilon=TIGHT, out="broken", model=Stumbles(), resume=True)
    assert resumed.model_sha256 == whole.model_sha256
    assert counts(resumed.folder / "ledger") == [8] * 4
    assert resumed.privacy.proven == whole.privacy.proven <= TIGHT
    assert resumed.stopped_by == whole.stopped_by == "epsilon"
    assert without_time(resumed.history) == without_time(whole.history)


@pytest.mark.parametrize(
    "options", [{}, {"clipping": "quantile", "count_noise": 2.0}, {"clipping": "public-median"}]
)
def test_a_client_level_run_resumes_with_its_momentum_and_its_clip(
    train: Train, crowd: Federation, options: dict[str, Any]
) -> None:
    algorithm = dp_fedavg(cohort=8, noise_multiplier=1.0, tau=2, server_momentum=0.9, **options)
    Stumbles.left = -1
    whole = train(crowd, algorithm, rounds=4, out="whole", model=Stumbles(), accountant="rdp")
    Stumbles.left = 45
    with pytest.raises(KeyboardInterrupt):
        train(crowd, algorithm, rounds=4, out="broken", model=Stumbles(), accountant="rdp")
    Stumbles.left = -1
    resumed = train(
        crowd, algorithm, rounds=4, out="broken", model=Stumbles(), accountant="rdp", resume=True
    )
    assert resumed.model_sha256 == whole.model_sha256
    assert counts(resumed.folder / "ledger") == [4]
    assert without_time(resumed.history) == without_time(whole.history)


def test_a_finished_run_resumes_to_its_own_result(train: Train, federation: Federation) -> None:
    first = train(federation, SOUND, epsilon=TIGHT)
    again = train(federation, SOUND, epsilon=TIGHT, resume=True)
    assert again.model_sha256 == first.model_sha256
    assert again.stopped_by == "epsilon"
    assert counts(again.folder / "ledger") == [8] * 4


def test_under_system_entropy_a_resumed_run_counts_what_it_makes_again(
    train: Train, federation: Federation
) -> None:
    Stumbles.left = -1
    options = {"epsilon": TIGHT, "model": Stumbles(), "entropy": "system"}
    train(federation, SOUND, out="before", **options)  # the self-test of its arithmetic is over
    Stumbles.left = 18
    with pytest.raises(KeyboardInterrupt):
        train(federation, SOUND, **options)
    Stumbles.left = -1
    result = train(federation, SOUND, resume=True, **options)
    assert result.privacy.proven <= TIGHT
    assert max(counts(result.folder / "ledger")) <= 8
    assert result.iterations < 8 or result.lost_replies, (
        "what was released twice was paid for twice"
    )


SCRIPT = """
import sys
import time
from tests.run.test_stopped_runs import trained_aloud

if __name__ == "__main__":
    trained_aloud(sys.argv[1], int(sys.argv[2]))
"""


KILLED = fedavg_dp(tau=2, sampling_rate=0.1, rate=0.5, noise_multiplier=1.0)


KILLED_BUDGET = dpfl.Budget(epsilon=20.0, rounds=40)


def trained_aloud(out: str, workers: int) -> None:
    """Says every round that is kept, and does not end before it is killed."""

    def tell(row: RoundRow) -> None:
        os.write(1, f"{row.round}\n".encode())
        if row.round == 36:
            time.sleep(PATIENCE)

    told = Hook(tell)
    dpfl.train(
        MODEL,
        small_federation(),
        KILLED,
        KILLED_BUDGET,
        privacy=dpfl.Privacy(accountant="rdp"),
        execution=dpfl.Execution(out=out, workers=workers, progress=told),
    )


@contextmanager
def in_a_process(out: Path, workers: int, script: Path) -> Iterator[tuple[int, TextIO]]:
    """Its number, and what it says: a fork of this one, or, where it starts workers of its own, a
    new one.
    """
    if workers > 1:
        script.write_text(SCRIPT)
        paths = os.pathsep.join(
            [str(Path(dpfl.__file__).parents[1]), str(Path(__file__).parents[2])]
        )
        command, env = (
            [sys.executable, str(script), str(out), str(workers)],
            os.environ | {"PYTHONPATH": paths},
        )
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            yield process.pid, process.stdout
        assert process.returncode == -signal.SIGKILL
        return
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.dup2(writing, 1)
        try:
            trained_aloud(str(out), workers)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        yield child, said
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory: pytest.TempPathFactory) -> dpfl.Result:
    return dpfl.train(
        MODEL,
        small_federation(),
        KILLED,
        KILLED_BUDGET,
        privacy=dpfl.Privacy(accountant="rdp"),
        execution=dpfl.Execution(out=tmp_path_factory.mktemp("whole") / "run"),
    )


@pytest.mark.parametrize(("after", "workers"), [(1, 1), (12, 1), (30, 1), (8, 2)])
def test_a_run_killed_at_a_random_moment_resumes_to_the_model_of_one_never_stopped(
    never_stopped: dpfl.Result, tmp_path: Path, after: int, workers: int
) -> None:
    out, delay = tmp_path / "run", random.uniform(0, 0.05)
    with in_a_process(out, workers, tmp_path / "killed.py") as (process, said):
        while (told := said.readline().strip()) != str(after):
            assert told
        time.sleep(delay)
        os.kill(process, signal.SIGKILL)
    assert not (out / "result.json").exists()
    spent_before = counts(out / "ledger")
    assert min(spent_before) >= 2 * after
    result = dpfl.train(
        MODEL,
        small_federation(),
        KILLED,
        KILLED_BUDGET,
        privacy=dpfl.Privacy(accountant="rdp"),
        execution=dpfl.Execution(out=out, resume=True),
    )
    assert result.model_sha256 == never_stopped.model_sha256, (
        f"killed {delay:.4f} s after round {after}"
    )
    assert counts(out / "ledger") == [80] * 4
    assert result.privacy.proven == never_stopped.privacy.proven
