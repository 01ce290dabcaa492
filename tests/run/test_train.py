"""Whole runs: repeatable, inside every budget, and the same whether they were stopped or not."""

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TextIO

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import dpfl
from dpfl.algorithms import Algorithm, adap_dp_fl, dp_fedavg, fedavg, fedavg_dp
from dpfl.client.debits import ClientDebits
from dpfl.client.optimisers import SGD
from dpfl.client.task import ClientTask, LocalTraining
from dpfl.data import IID, Federation
from dpfl.errors import DpflError
from dpfl.privacy import Ledger, Limit, accountant
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.run.folder import RunFolder
from dpfl.run.metrics import RoundRow
from dpfl.run.train import diverging
from dpfl.views.compare_groups import group_runs
from dpfl.views.comparison_view import ComparisonView
from dpfl.views.figures.curves import draw_groups
from dpfl.views.run_summary import summary
from dpfl.views.terminal.progress import LiveProgress
from dpfl.views.terminal.tables import print_outcome, runs_table
from tests.conftest import MODEL, PATIENCE, StopsAfter, Ticking, small_federation
from tests.privacy.forging import debit_elsewhere

Train = Callable[..., dpfl.Result]
SOUND = fedavg_dp(tau=3, sampling_rate=0.1, noise_multiplier=1.0, rate=0.5)
CROWDED = dp_fedavg(cohort=8, noise_multiplier=1.0, tau=2)
EVENT = SOUND.samples.event(0)


def spent(folder: Path, name: str = "client-00000") -> dict[Any, int]:
    ledger = Ledger.read(folder / f"{name}.sqlite")
    try:
        return ledger.spending()
    finally:
        ledger.close()


def counts(folder: Path) -> list[int]:
    return [sum(spent(folder, path.stem).values()) for path in sorted(folder.glob("*.sqlite"))]


def spend_elsewhere(path: Path, event: Any, count: int) -> None:
    """Another run's debit on a ledger in use."""
    debit_elsewhere(path, "another", "release", event, count)


def by_rdp(algorithm: Algorithm) -> dict[str, str]:
    """The quick accountant, where there is anything to account for."""
    return {} if algorithm.unit == "none" else {"accountant": "rdp"}


class Hook:
    """Watches a run, and does something after each of its rounds."""

    def __init__(self, act: Callable[[RoundRow], object]) -> None:
        self.tell = act

    def start(self, job: Any) -> None: ...

    def stop(self) -> None: ...


# The same run again, and other ones


def test_one_seed_gives_one_model_on_one_worker_and_on_two(
    train: Train, federation: Federation
) -> None:
    one = train(federation, SOUND, rounds=3, out="one", accountant="rdp")
    two = train(federation, SOUND, rounds=3, out="two", workers=2, accountant="rdp")
    assert one.model_sha256 == two.model_sha256
    assert one.privacy.proven == two.privacy.proven


@pytest.mark.parametrize("algorithm", [fedavg(tau=2, cohort=2), SOUND, CROWDED])
def test_the_seed_decides_the_model(
    train: Train, federation: Federation, crowd: Federation, algorithm: Algorithm
) -> None:
    data = crowd if algorithm.unit == "client" else federation
    first, again, other = (
        train(
            data, algorithm, rounds=3, out=f"run {number}", seed=seed, **by_rdp(algorithm)
        ).model_sha256
        for number, seed in enumerate((0, 0, 1))
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("algorithm", [SOUND, CROWDED])
def test_system_entropy_gives_another_model_every_time(
    train: Train, federation: Federation, crowd: Federation, algorithm: Algorithm
) -> None:
    data = crowd if algorithm.unit == "client" else federation
    first = train(data, algorithm, rounds=2, out="a", entropy="system", accountant="rdp")
    assert (
        train(data, algorithm, rounds=2, out="b", entropy="system", accountant="rdp").model_sha256
        != first.model_sha256
    )
    assert not any("seed" in assumption for assumption in first.privacy.assumptions)


def test_keyed_randomness_is_named_among_the_assumptions_and_its_seed_is_not(
    train: Train, federation: Federation
) -> None:
    """Printed, the seed would void the condition that the statement names."""
    result = train(federation, SOUND, rounds=1, seed=918273645)
    assert any(
        "the seed" in assumption and "system" in assumption
        for assumption in result.privacy.assumptions
    )
    files = [result.folder / name for name in ("statement.json", "result.json", "README.md")]
    assert not any(
        "918273645" in text for text in (str(result.privacy), *(file.read_text() for file in files))
    )


@pytest.mark.parametrize(
    ("losses", "warned"),
    [
        ([10.2, 15.0, 19.4], True),
        ([2.3, 2.2, math.nan], True),
        ([5.0, 5.1, 5.2], False),
        ([2.3, 0.4], False),
        ([19.0], True),
    ],
)
def test_a_run_whose_test_loss_grows_beyond_guessing_says_so(
    losses: list[float], warned: bool
) -> None:
    rows = [
        RoundRow(round, 1, round, 4, 0.1, loss, None, None, 0, 0.0)
        for round, loss in enumerate(losses, 1)
    ]
    assert bool(diverging(rows, 10)) == warned


def test_auto_that_diverges_says_so_in_its_result(train: Train, federation: Federation) -> None:
    wild = dpfl.algorithms.auto(noise_multiplier=1.0, rate=3000.0, mean_noise=None)
    found = train(federation, wild, rounds=4, evaluate_every=1).to_dict()
    assert any("diverges" in warning for warning in found["warnings"])
    assert not found["privacy"]["warnings"]


def test_an_entropy_that_does_not_exist_is_refused(train: Train, federation: Federation) -> None:
    with pytest.raises(DpflError, match=r"'keyed'.*'system'"):
        train(federation, SOUND, rounds=1, entropy="dice")


# Budgets


def test_epsilon_with_a_given_noise_stops_at_the_last_affordable_step(
    train: Train, federation: Federation
) -> None:
    """tau = 3, and the last round is cut to what is left."""
    most = Limit(2.5, 1e-5).remaining({}, EVENT)
    epsilon = accountant("pld").epsilon({EVENT: most - most % 3 - 1}, 1e-5) * (1 + 1e-9)
    result = train(federation, SOUND, epsilon=epsilon)
    count = most - most % 3 - 1
    assert count % 3 == 2
    assert result.stopped_by == "epsilon"
    assert result.iterations == count
    assert [row.steps for row in result.history][-2:] == [3, 2]
    assert counts(result.folder / "ledger") == [count] * 4
    assert result.privacy.proven <= epsilon < accountant("pld").epsilon({EVENT: count + 1}, 1e-5)


def test_rounds_end_a_run(train: Train, federation: Federation) -> None:
    result = train(federation, SOUND, rounds=4, epsilon=50.0)
    assert (result.rounds, result.iterations, result.stopped_by) == (4, 12, "rounds")
    assert counts(result.folder / "ledger") == [12] * 4


def test_bytes_end_a_run_before_they_are_exceeded(train: Train, federation: Federation) -> None:
    numbers = 784 * 16 + 16 + 16 * 10 + 10
    one = 2 * 4 * numbers * 4
    result = train(federation, fedavg(tau=1), bytes=3 * one + one // 2)
    assert (result.rounds, result.stopped_by) == (3, "bytes")
    assert result.history[-1].bytes == 3 * one


def test_seconds_end_a_run(
    train: Train, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpfl.server.clock.time", Ticking())
    result = train(federation, fedavg(tau=1), seconds=20.0)
    assert result.stopped_by == "seconds"
    assert 1 < result.rounds < 20


def test_bytes_or_seconds_alone_may_end_a_private_run_and_its_epsilon_is_shown_as_it_goes(
    train: Train, federation: Federation
) -> None:
    """The figure shown is an upper bound; without epsilon or rounds to aim at it must still be of
    any use.
    """
    numbers = 784 * 16 + 16 + 16 * 10 + 10
    result = train(federation, SOUND, bytes=3 * 2 * 4 * numbers * 4, accountant="rdp")
    shown = [row.epsilon for row in result.history]
    assert result.stopped_by == "bytes"
    assert shown[0] < 10 * result.privacy.proven


def test_a_run_without_noise_needs_an_end_of_another_kind(
    train: Train, federation: Federation
) -> None:
    with pytest.raises(DpflError, match="rounds, bytes or seconds"):
        train(federation, fedavg(), epsilon=1.0)


def test_a_run_without_noise_has_no_ledger_and_no_epsilon(
    train: Train, federation: Federation
) -> None:
    result = train(federation, fedavg(tau=1), rounds=2)
    assert not list((result.folder / "ledger").iterdir())
    assert result.privacy.proven == math.inf
    assert [row.epsilon for row in result.history] == [None, None]
    assert json.loads((result.folder / "statement.json").read_text())["proven"] == "unbounded"


def test_the_federation_s_ledger_counts_every_round(train: Train, crowd: Federation) -> None:
    result = train(crowd, CROWDED, rounds=5)
    event = CROWDED.clients.event(20)
    assert spent(result.folder / "ledger", "federation") == {event: 5}
    assert result.privacy.proven == pytest.approx(accountant("pld").epsilon({event: 5}, 1e-5))


# One ledger, several runs


@pytest.mark.parametrize("algorithm", [SOUND, CROWDED])
def test_a_second_run_on_a_ledger_that_is_spent_is_refused(
    train: Train, federation: Federation, crowd: Federation, algorithm: Algorithm, tmp_path: Path
) -> None:
    """Fault: accounts kept in memory, or a new accountant for each run."""
    data = crowd if algorithm.unit == "client" else federation
    epsilon = accountant("rdp").epsilon({algorithm.release.event(20): 6}, 1e-5) * (1 + 1e-9)
    options = {"epsilon": epsilon, "ledger": tmp_path / "ledgers", "accountant": "rdp"}
    first = train(data, algorithm, out="first", **options)
    assert first.stopped_by == "epsilon"
    before = counts(tmp_path / "ledgers")
    with pytest.raises(DpflError, match="no budget left"):
        train(data, algorithm, out="second", **options)
    assert counts(tmp_path / "ledgers") == before
    assert set(before) == {6}


@pytest.mark.parametrize("algorithm", [SOUND, CROWDED])
def test_a_second_run_on_one_ledger_gets_only_what_the_first_left(
    train: Train, federation: Federation, crowd: Federation, algorithm: Algorithm, tmp_path: Path
) -> None:
    data, per_round = (crowd, 1) if algorithm.unit == "client" else (federation, 3)
    epsilon = accountant("rdp").epsilon({algorithm.release.event(20): 7}, 1e-5) * (1 + 1e-9)
    options = {"epsilon": epsilon, "ledger": tmp_path / "ledgers", "accountant": "rdp"}
    first = train(data, algorithm, out="first", rounds=1, **options)
    second = train(data, algorithm, out="second", **options)
    assert second.stopped_by == "epsilon"
    assert set(counts(tmp_path / "ledgers")) == {7}
    assert first.privacy.proven < second.privacy.proven <= epsilon
    assert sum(row.steps if per_round == 3 else 1 for row in second.history) == 7 - per_round
    shown = [row.epsilon for row in second.history]
    assert shown[0] >= accountant("rdp").epsilon({algorithm.release.event(20): 2 * per_round}, 1e-5)


def test_two_runs_of_one_seed_on_one_ledger_differ(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    first = train(federation, SOUND, rounds=1, out="a", ledger=tmp_path / "ledgers")
    second = train(federation, SOUND, rounds=1, out="b", ledger=tmp_path / "ledgers")
    assert first.model_sha256 != second.model_sha256


def test_an_owner_with_a_smaller_budget_drops_out_and_the_others_go_on(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    """Fault: the budget enforced by the server instead of at the node; epsilon averaged over
    clients.
    """
    own = accountant("rdp").epsilon({EVENT: 4}, 1e-5) * (1 + 1e-9)
    Ledger.open(
        tmp_path / "ledgers" / "client-00002.sqlite",
        "client-00002",
        "sample",
        ADD_REMOVE,
        Limit(own, 1e-5, "rdp"),
    ).close()
    result = train(federation, SOUND, rounds=4, ledger=tmp_path / "ledgers", accountant="rdp")
    assert result.rounds == 4
    assert [row.steps for row in result.history] == [3, 1, 3, 3]
    assert counts(tmp_path / "ledgers") == [10, 10, 4, 10]
    assert (
        result.privacy.per_client["client-00002"] <= own < result.privacy.per_client["client-00000"]
    )
    assert result.privacy.proven == max(result.privacy.per_client.values())


def test_the_epsilon_that_is_shown_is_never_below_that_of_any_client(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    """Client 1 has spent more than the others; client 2 has the least left, having spent
    nothing.
    """
    earlier = Ledger.open(
        tmp_path / "ledgers" / "client-00001.sqlite", "client-00001", "sample", ADD_REMOVE
    )
    earlier.debit("earlier", "release", EVENT, 500)
    earlier.close()
    for name in ("client-00000", "client-00003"):
        Ledger.open(tmp_path / "ledgers" / f"{name}.sqlite", name, "sample", ADD_REMOVE).close()
    own = accountant("rdp").epsilon({EVENT: 9}, 1e-5) * (1 + 1e-9)
    Ledger.open(
        tmp_path / "ledgers" / "client-00002.sqlite",
        "client-00002",
        "sample",
        ADD_REMOVE,
        Limit(own, 1e-5, "rdp"),
    ).close()
    result = train(federation, SOUND, rounds=3, ledger=tmp_path / "ledgers", accountant="rdp")
    truth = [
        accountant("rdp").epsilon({EVENT: 500 + row.iterations}, 1e-5) for row in result.history
    ]
    assert result.privacy.proven == pytest.approx(truth[-1])
    assert all(
        row.epsilon >= least - 1e-9 for row, least in zip(result.history, truth, strict=True)
    )


# Stopped and resumed

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
    Stumbles.left = 18
    options = {"epsilon": TIGHT, "model": Stumbles(), "entropy": "system"}
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
from tests.run.test_train import trained_aloud

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


def finished(train: Train, federation: Federation, **options: Any) -> dpfl.Result:
    return train(federation, SOUND, **({"rounds": 2, "accountant": "rdp"} | options))


def test_resume_with_other_data_is_refused(train: Train, federation: Federation) -> None:
    finished(train, federation)
    other = dpfl.data.tensors(
        federation.train.x + 0.1,
        federation.train.y,
        federation.test.x,
        federation.test.y,
        name="small",
    )
    with pytest.raises(DpflError, match="data differs"):
        finished(train, other.split(clients=4, how=IID(), seed=0), resume=True)


def test_resume_with_the_same_images_at_other_clients_is_refused(
    train: Train, federation: Federation
) -> None:
    finished(train, federation)
    swapped = replace(
        federation, clients=(federation.clients[1], federation.clients[0], *federation.clients[2:])
    )
    with pytest.raises(DpflError, match="data differs"):
        finished(train, swapped, resume=True)


@pytest.mark.parametrize(
    "options",
    [
        {"seed": 1},
        {"rounds": 3},
        {"epsilon": 50.0},
        {"delta": 1e-6},
        {"accountant": "pld"},
        {"entropy": "system"},
    ],
)
def test_resume_with_other_settings_is_refused(
    train: Train, federation: Federation, options: dict[str, Any]
) -> None:
    finished(train, federation)
    with pytest.raises(DpflError, match="experiment differs"):
        finished(train, federation, resume=True, **options)


@pytest.mark.parametrize(
    "other",
    [
        replace(SOUND, samples=SOUND.samples.with_noise(2.0)),
        fedavg_dp(tau=2, sampling_rate=0.1, noise_multiplier=1.0, rate=0.5),
        fedavg_dp(tau=3, sampling_rate=0.1, noise_multiplier=1.0, rate=0.5, optimiser="momentum"),
        fedavg_dp(tau=3, sampling_rate=0.1, noise_multiplier=1.0, rate=0.5, clip=2.0),
        fedavg(),
    ],
)
def test_resume_with_another_algorithm_is_refused(
    train: Train, federation: Federation, other: Algorithm
) -> None:
    finished(train, federation)
    with pytest.raises(DpflError, match="experiment differs"):
        train(
            federation,
            other,
            rounds=2,
            accountant="rdp" if other.unit == "sample" else None,
            resume=True,
        )


@pytest.mark.parametrize("model", [dpfl.models.mlp(hidden=17), dpfl.models.cnn()])
def test_resume_with_another_model_is_refused(
    train: Train, federation: Federation, model: dpfl.models.Model
) -> None:
    finished(train, federation)
    with pytest.raises(DpflError):
        finished(train, federation, resume=True, model=model)


def test_resume_with_another_activation_is_refused(train: Train, federation: Federation) -> None:
    """Another function of the same data under the same release name and noise would be released
    without a debit.
    """
    finished(train, federation)
    with pytest.raises(DpflError, match="experiment differs"):
        finished(
            train, federation, resume=True, model=dpfl.models.mlp(hidden=16, activation="tanh")
        )


def stopped_after_round(train: Train, federation: Federation, round: int, **options: Any) -> None:
    def stop(row: RoundRow) -> None:
        if row.round == round:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finished(train, federation, progress=Hook(stop), **options)


@pytest.mark.parametrize("how", ["another folder", "deleted"])
def test_fault_resume_forgets_spent_budget_when_the_ledgers_are_not_those_of_the_run(
    train: Train, federation: Federation, tmp_path: Path, how: str
) -> None:
    """Either it is refused, or the statement still covers all six steps."""
    ledgers = tmp_path / "ledgers"
    stopped_after_round(train, federation, 1, ledger=ledgers)
    if how == "deleted":
        shutil.rmtree(ledgers)
    try:
        result = finished(
            train, federation, resume=True, **({"ledger": ledgers} if how == "deleted" else {})
        )
    except DpflError:
        return
    assert result.privacy.proven == pytest.approx(accountant("rdp").epsilon({EVENT: 6}, 1e-5))


def test_fault_a_client_level_run_is_resumed_on_a_ledger_that_is_not_its_own(
    train: Train, crowd: Federation, tmp_path: Path
) -> None:
    options = {"rounds": 4, "ledger": tmp_path / "ledgers", "accountant": "rdp"}
    with pytest.raises(KeyboardInterrupt):
        train(crowd, CROWDED, progress=StopsAfter(2), **options)
    shutil.rmtree(tmp_path / "ledgers")
    with pytest.raises(DpflError, match="has lost debits"):
        train(crowd, CROWDED, resume=True, **options)


def test_resume_needs_a_folder_with_a_run(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    with pytest.raises(DpflError, match="no run"):
        finished(train, federation, resume=True)
    with pytest.raises(DpflError, match="name its folder"):
        dpfl.train(
            MODEL, federation, SOUND, dpfl.Budget(rounds=1), execution=dpfl.Execution(resume=True)
        )


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "noise": lambda content: bytes(random.Random(0).randbytes(len(content))),
    "no state": lambda content: content.replace(b"remaining", b"remainder"),
    "another text": lambda content: b"not a checkpoint\n" * 10,
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_checkpoint_is_refused_with_a_sentence(
    train: Train, federation: Federation, how: str
) -> None:
    stopped_after_round(train, federation, 1, out="run")
    path = finished(train, federation, resume=True).folder / "checkpoint.safetensors"
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    with pytest.raises(DpflError, match=r"checkpoint .* is damaged"):
        finished(train, federation, resume=True)


def test_a_flipped_bit_in_a_checkpoint_is_noticed(train: Train, federation: Federation) -> None:
    path = finished(train, federation).folder / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    content[-100] ^= 0x40
    path.write_bytes(bytes(content))
    with pytest.raises(DpflError, match="damaged"):
        finished(train, federation, resume=True)


# What goes wrong in a round


def with_nan(federation: Federation) -> Federation:
    """The same federation, one image of client 2 spoilt after it was checked."""
    data = dpfl.data.tensors(
        federation.train.x.clone(),
        federation.train.y,
        federation.test.x,
        federation.test.y,
        name="small",
    )
    spoilt = replace(federation, train=data.train)
    spoilt.train.x[spoilt.clients[2][7]] = math.nan
    return spoilt


@pytest.mark.parametrize("system", [SOUND, CROWDED], ids=lambda system: system.name)
def test_a_sample_without_a_finite_gradient_does_not_end_a_private_run(
    train: Train, federation: Federation, crowd: Federation, system: Algorithm
) -> None:
    """Whether a run ends is public, and would say that such a sample is there."""
    whole = federation if system is SOUND else crowd
    result = train(with_nan(whole), system, rounds=4, accountant="rdp", seed=3)
    assert result.rounds == 4
    assert not result.lost_replies
    assert all(torch.isfinite(parameter).all() for parameter in result.module.parameters())


def test_training_that_diverges_stops_and_keeps_the_last_checkpoint(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    """The test set is public, and may say so."""
    wild = replace(SOUND, local=LocalTraining(SGD(1e25)))
    with pytest.raises(
        DpflError, match=r"diverged on the test set after round 1.*checkpoint is kept"
    ):
        train(federation, wild, rounds=5, accountant="rdp", evaluate_every=1)
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_run_without_a_test_set_says_that_nothing_was_measured(
    train: Train, federation: Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    untested = replace(federation, test=None)
    result = train(untested, SOUND, rounds=2, progress=LiveProgress(Console(width=120)))
    assert result.accuracy is None
    assert result.loss is None
    assert "accuracy is not measured" in " ".join(result.notes)
    print_outcome(result, Console(width=120))
    shown = capsys.readouterr().out
    assert "accuracy not measured" in shown
    assert "round 2/2  tau 3" in shown
    folder = RunFolder(tmp_path / "run")
    Console().print(runs_table(ComparisonView.of_runs([summary(folder)])))
    draw_groups(group_runs([summary(folder)])).save(tmp_path / "runs.png")
    assert train(untested, SOUND, rounds=2, out="again").model_sha256 == result.model_sha256
    with pytest.raises(DpflError, match="follows the loss on a public test set"):
        train(untested, adap_dp_fl(noise_multiplier=1.0), rounds=2, out="follows")


def test_nan_at_one_client_of_an_unprotected_run_stops_it_and_names_the_client(
    train: Train, federation: Federation
) -> None:
    with pytest.raises(DpflError, match="client 2 in round 1"):
        train(with_nan(federation), fedavg(tau=8), rounds=2)


def test_a_federation_whose_ledger_another_run_spends_meanwhile_stops_by_epsilon(
    train: Train, crowd: Federation, tmp_path: Path
) -> None:
    event = CROWDED.clients.event(20)
    epsilon = accountant("rdp").epsilon({event: 6}, 1e-5) * (1 + 1e-9)

    def spend(row: RoundRow) -> None:
        if row.round == 2:
            spend_elsewhere(tmp_path / "run" / "ledger" / "federation.sqlite", event, 3)

    result = train(crowd, CROWDED, epsilon=epsilon, accountant="rdp", progress=Hook(spend))
    assert result.stopped_by == "epsilon"
    assert result.rounds == 3
    assert result.privacy.proven <= epsilon


def test_a_client_whose_ledger_another_run_spends_meanwhile_refuses_and_the_round_goes_on(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    epsilon = accountant("rdp").epsilon({EVENT: 9}, 1e-5) * (1 + 1e-9)

    def spend(row: RoundRow) -> None:
        if row.round == 1:
            spend_elsewhere(tmp_path / "run" / "ledger" / "client-00001.sqlite", EVENT, 6)

    result = train(federation, SOUND, epsilon=epsilon, accountant="rdp", progress=Hook(spend))
    assert counts(result.folder / "ledger") == [9, 9, 9, 9]
    assert result.rounds == 3
    assert len(result.lost_replies) == 1
    assert "client 1" in result.lost_replies[0]
    assert result.privacy.proven <= epsilon


def test_a_run_in_which_a_client_refused_can_be_resumed(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    epsilon = accountant("rdp").epsilon({EVENT: 12}, 1e-5) * (1 + 1e-9)

    def spend_and_stop(row: RoundRow) -> None:
        if row.round == 1:
            spend_elsewhere(tmp_path / "run" / "ledger" / "client-00001.sqlite", EVENT, 9)
        if row.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(federation, SOUND, epsilon=epsilon, accountant="rdp", progress=Hook(spend_and_stop))
    result = train(federation, SOUND, epsilon=epsilon, accountant="rdp", resume=True)
    assert counts(result.folder / "ledger") == [12] * 4
    assert result.privacy.proven <= epsilon


def test_a_run_in_which_a_client_failed_before_it_paid_can_be_resumed(
    train: Train, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: releases that the server gave up on were looked for in the client's ledger, and the
    run held for tampered with.
    """
    debit = ClientDebits.begin

    def broken(self: ClientDebits, task: ClientTask, *rest: Any) -> Callable[[], None]:
        if (task.client, task.round) == (1, 1):
            raise OSError("no disk")
        return debit(self, task, *rest)

    monkeypatch.setattr(ClientDebits, "begin", broken)
    with pytest.raises(KeyboardInterrupt):
        train(federation, SOUND, rounds=4, progress=StopsAfter(3))
    result = train(federation, SOUND, rounds=4, resume=True)
    assert counts(result.folder / "ledger") == [12, 9, 12, 12]


class FailsOnImages(nn.Module):
    """Not on zeros, nor on random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(784, 10)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(1)
        background = (rows == rows.mode(1).values[:, None]).sum(1)
        if ((background > 300) & (background < 784)).any():
            raise ValueError("an image of a digit")
        return self.head(rows)


def test_a_first_round_that_fails_everywhere_names_its_cause_once_and_keeps_the_words_in_the_log(
    train: Train, federation: Federation, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DpflError) as refused:
        train(federation, SOUND, rounds=1, model=FailsOnImages())
    assert (
        str(refused.value)
        == "No reply of round 1 can be used: it failed (ValueError), its own log says why."
    )
    assert [record.getMessage() for record in caplog.records if record.name == "dpfl"] == [
        "Client 0 failed in round 1: ValueError: an image of a digit"
    ]


def test_mixed_kinds_of_sampling_on_one_ledger_are_refused_before_training(
    train: Train, crowd: Federation, tmp_path: Path
) -> None:
    """They are proven for different neighbours, so no single epsilon covers both."""
    train(crowd, CROWDED, rounds=1, out="poisson", ledger=tmp_path / "ledgers")
    before = counts(tmp_path / "ledgers")
    with pytest.raises(DpflError, match="neighbours"):
        train(
            crowd,
            dp_fedavg(cohort=8, sampling="fixed-size", noise_multiplier=1.0),
            rounds=1,
            ledger=tmp_path / "ledgers",
        )
    assert counts(tmp_path / "ledgers") == before


def test_secure_noise_comes_with_the_systems_entropy_and_costs_the_same(federation, train):
    algorithm = fedavg_dp(noise_multiplier=1.0)
    keyed = train(federation, algorithm, out="keyed", rounds=2)
    plain = train(federation, algorithm, out="plain", rounds=2, entropy="system", noise="plain")
    secure = train(federation, algorithm, out="secure", rounds=2, entropy="system")
    assert [run.privacy.noise for run in (keyed, plain, secure)] == [
        "floating-point",
        "floating-point",
        "secure",
    ]
    assert secure.privacy.proven == plain.privacy.proven
    recorded = RunFolder.open(secure.folder).experiment()["resolved"]
    assert recorded["noise"] == "secure"
    assert recorded["algorithm"]["samples"]["noise"]["part"] == "noise.secure-gaussian"


@pytest.mark.parametrize(
    ("algorithm", "options", "words"),
    [
        (fedavg_dp(noise_multiplier=1.0), {"noise": "secure"}, "privacy.entropy = 'system'"),
        (fedavg_dp(noise_multiplier=1.0), {"noise": "safe"}, "not 'safe'"),
        (
            dpfl.algorithms.adap_dp_fl(noise_multiplier=1.0),
            {"entropy": "system"},
            "set privacy.noise = 'plain'",
        ),
        (
            dp_fedavg(cohort=2, noise_multiplier=1.0, noise="clients"),
            {"entropy": "system"},
            "set privacy.noise = 'plain'",
        ),
        (dpfl.algorithms.fedavg(), {"noise": "secure", "entropy": "system"}, "adds no noise"),
        (
            dpfl.algorithms.dp_sgd_wav(noise_multiplier=1.0),
            {"entropy": "system"},
            r"Haar.*set privacy.noise = 'plain'",
        ),
    ],
)
def test_secure_noise_that_would_not_be_secure_is_refused(
    federation, train, algorithm, options, words
):
    with pytest.raises(DpflError, match=words):
        train(federation, algorithm, rounds=1, **options)
