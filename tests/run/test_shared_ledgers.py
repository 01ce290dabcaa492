"""Runs one after another, or at once, on one folder of ledgers: what they say adds up, or they do
not start.
"""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import dpfl
from dpfl.algorithms import dp_fedavg, fedavg, ldp_fl
from dpfl.config.experiment import parse
from dpfl.data import IID, Federation
from dpfl.errors import DpflError
from dpfl.privacy import Ledger, accountant
from dpfl.privacy.accounting.events import ADD_REMOVE
from tests.conftest import MODEL, PATIENCE, small_source
from tests.run.hospitals import STEPS, hospitals, spent

OTHERS = {
    "dp-fedavg": dp_fedavg(cohort=2, noise_multiplier=1.0),
    "ldp-fl": ldp_fl(noise_multiplier=2.0),
}


@pytest.mark.parametrize("second", OTHERS)
@pytest.mark.parametrize("turned", [False, True])
def test_systems_that_protect_other_units_do_not_share_a_folder(
    train, federation, tmp_path, second, turned
) -> None:
    """Fault: fedavg-dp and then ldp-fl stated "one client, epsilon 3.13"; dp-fedavg vanished from
    the next statement.
    """
    one, other = (OTHERS[second], STEPS) if turned else (STEPS, OTHERS[second])
    train(federation, one, rounds=1, ledger=tmp_path / "ledgers")
    before = spent(tmp_path / "ledgers")
    with pytest.raises(
        DpflError, match=r"keep another folder of ledgers for this run \(privacy\.ledger\)"
    ):
        train(federation, other, out="second", rounds=1, ledger=tmp_path / "ledgers")
    assert spent(tmp_path / "ledgers") == before
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize("system", [STEPS, OTHERS["dp-fedavg"]])
def test_samples_that_were_dealt_otherwise_are_not_counted_as_the_same(
    train, tmp_path, system
) -> None:
    """Fault: another seed dealt other samples; 2.551 was stated for a sample that had lost
    2.928.
    """
    one, other = (small_source().split(4, IID(), seed) for seed in (0, 1))
    train(one, system, rounds=1, ledger=tmp_path / "ledgers")
    before = spent(tmp_path / "ledgers")
    with pytest.raises(DpflError, match=r"counts other data: the samples.*data\.seed"):
        train(other, system, out="second", rounds=1, ledger=tmp_path / "ledgers", seed=1)
    assert spent(tmp_path / "ledgers") == before


def test_other_seeds_on_the_same_samples_add_up(train, federation, tmp_path) -> None:
    one = train(federation, STEPS, rounds=2, ledger=tmp_path / "ledgers")
    two = train(federation, STEPS, out="second", rounds=2, ledger=tmp_path / "ledgers", seed=1)
    assert one.privacy.proven < two.privacy.proven
    assert two.privacy.proven == pytest.approx(
        accountant("pld").epsilon({STEPS.samples.event(250): 4}, 1e-5)
    )


def test_data_seed_deals_the_samples(tmp_path) -> None:
    base = {"data": {"name": "mnist-sample", "partition": "iid", "clients": 3}}
    deals = [
        parse({**base, "seed": seed, "data": base["data"] | more}).federation().pooled_digest
        for seed, more in ((0, {}), (1, {}), (1, {"seed": 0}))
    ]
    assert deals[0] == deals[2] != deals[1]


def test_ledgers_follow_names_and_not_the_order_of_lists(train, tmp_path) -> None:
    """Fault: lists in another order trained on a hospital whose limit was used up, from another's
    ledger.
    """
    train(hospitals(), STEPS, rounds=2, ledger=tmp_path / "ledgers")
    assert set(spent(tmp_path / "ledgers")) == set("abcd")
    with closing(Ledger.existing(tmp_path / "ledgers" / "b.sqlite")) as ledger:
        ledger.set_limit(dpfl.privacy.Limit(0.1, 1e-5))
    result = train(hospitals("dcba"), STEPS, out="second", rounds=1, ledger=tmp_path / "ledgers")
    assert spent(tmp_path / "ledgers") == {"a": 3, "b": 2, "c": 3, "d": 3}
    assert list(result.privacy.per_client) == list("dcba")


def test_the_ledger_of_a_neighbour_and_other_data_under_a_name_are_refused(train, tmp_path) -> None:
    train(hospitals(), STEPS, rounds=1, ledger=tmp_path / "ledgers")
    swapped = small_source().split(4, IID(), seed=5, names=("a", "b", "c", "d"))
    with pytest.raises(DpflError, match="counts other data"):
        train(swapped, STEPS, out="second", rounds=1, ledger=tmp_path / "ledgers")
    shutil.copy(tmp_path / "ledgers" / "a.sqlite", tmp_path / "ledgers" / "b.sqlite")
    with pytest.raises(DpflError, match=r"b\.sqlite belongs to a, not to b"):
        train(hospitals(), STEPS, out="third", rounds=1, ledger=tmp_path / "ledgers")


def test_a_ledger_that_is_missing_among_used_ones_is_a_question(train, tmp_path, cli) -> None:
    train(hospitals(), STEPS, rounds=1, ledger=tmp_path / "ledgers")
    (tmp_path / "ledgers" / "c.sqlite").unlink()
    with pytest.raises(DpflError, match=r"no ledger of c in .*dpfl ledger new .*ledgers c"):
        train(hospitals(), STEPS, out="second", rounds=1, ledger=tmp_path / "ledgers")
    assert spent(tmp_path / "ledgers") == {"a": 1, "b": 1, "d": 1}
    assert cli("ledger", "new", str(tmp_path / "ledgers"), "c") == 0
    train(hospitals(), STEPS, out="third", rounds=1, ledger=tmp_path / "ledgers")
    assert spent(tmp_path / "ledgers") == {"a": 2, "b": 2, "c": 1, "d": 2}
    assert cli("ledger", "check", str(tmp_path / "ledgers")) == 0
    assert cli("ledger", "new", str(tmp_path / "ledgers"), "c") == 2
    assert cli("ledger", "new", str(tmp_path / "ledgers"), "../c") == 2


@pytest.fixture
def cli():
    from dpfl.cli.app import main

    def run(*words: str) -> int:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("sys.argv", ["dpfl", *words])
            try:
                code = main()
            except SystemExit as end:
                code = end.code
        return int(code or 0)

    return run


@pytest.mark.parametrize(
    "names",
    [("a", "a"), ("a", "A"), ("a", "federation"), ("a", "b/c"), ("a", ".."), ("a", ""), ("a",)],
)
def test_names_that_cannot_be_those_of_ledgers_are_refused(names) -> None:
    with pytest.raises(DpflError, match="name"):
        small_source().split(2, IID(), names=names)


def used(path: Path) -> Ledger:
    ledger = Ledger.open(path, "owner", "sample", ADD_REMOVE)
    ledger.debit("run", "a", STEPS.samples.event(250), 5)
    return ledger


def _kept(options: dict[str, Any], patiences: list[float]) -> dict[str, Any]:
    patiences.append(options["timeout"])
    return options


def test_reading_does_not_wait_for_a_lock_nor_write(tmp_path, monkeypatch) -> None:
    path = tmp_path / "owner.sqlite"
    with closing(used(path)):
        writing = sqlite3.connect(path, isolation_level=None)
        writing.execute("BEGIN EXCLUSIVE")
        with monkeypatch.context() as patch:
            patch.setattr("dpfl.privacy.ledger.database.QUICK", 0.0)
            assert spent(tmp_path) == {"owner": 5}
        writing.execute("ROLLBACK")
        writing.close()
    locked = sqlite3.connect(path, isolation_level=None)
    locked.execute("PRAGMA locking_mode = EXCLUSIVE")
    locked.execute("PRAGMA journal_mode = DELETE")
    locked.execute("BEGIN EXCLUSIVE")
    patiences: list[float] = []
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *given, **options: connect(*given, **_kept(options, patiences))
    )
    with pytest.raises(DpflError, match="in use by another program"):
        Ledger.read(path)
    assert patiences
    assert max(patiences) <= 5, "who only reads does not wait as one who writes"
    monkeypatch.undo()
    locked.close()
    with closing(Ledger.read(path)) as ledger, pytest.raises(DpflError, match="cannot be written"):
        ledger.debit("run", "b", STEPS.samples.event(250), 1)


@pytest.mark.parametrize("log", [False, True])
def test_a_ledger_on_read_only_media_is_read_with_the_rows_of_its_log(
    tmp_path, monkeypatch, log
) -> None:
    """Root writes anywhere, so that SQLite is told that it cannot."""
    from dpfl.privacy.ledger import database

    place, copied = tmp_path / "here", tmp_path / "there"
    copied.mkdir()
    ledger = used(place / "owner.sqlite")
    if not log:
        ledger.close()
    for file in place.glob("owner.sqlite*"):
        if not file.name.endswith("-shm"):
            shutil.copy(file, copied)
    assert (copied / "owner.sqlite-wal").exists() == log
    ledger.close()
    reading = database._reading

    def cannot(path: Path, mode: str) -> sqlite3.Connection:
        return reading(path if mode == "immutable=1" else tmp_path / "nowhere" / path.name, mode)

    monkeypatch.setattr(database, "_reading", cannot)
    before = sorted(file.name for file in copied.iterdir())
    assert spent(copied) == {"owner": 5}
    assert sorted(file.name for file in copied.iterdir()) == before


def test_where_ledgers_cannot_be_made_the_same_command_works_later(
    train, federation, tmp_path
) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    process = context.Process(
        target=on_a_full_disk, args=(federation, tmp_path / "run", answers), daemon=True
    )
    process.start()
    assert "cannot be made" in (said := answers.get(timeout=PATIENCE))
    assert "give the same command again" in said
    process.join(PATIENCE)
    assert train(federation, STEPS, rounds=1).rounds == 1


def on_a_full_disk(federation: Federation, out: Path, answers: object) -> None:
    """No file can grow beyond a page."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    try:
        dpfl.train(
            MODEL, federation, STEPS, dpfl.Budget(rounds=1), execution=dpfl.Execution(out=out)
        )
    except DpflError as error:
        answers.put(str(error))


def test_updates_without_noise_are_not_made_beside_ledgers_that_would_not_hold_them(
    train, federation, tmp_path
) -> None:
    """Fault: raw updates of clients left on the word of a ledger folder, and the next private run
    there said 1.18.
    """
    train(federation, STEPS, rounds=1, ledger=tmp_path / "ledgers")
    with pytest.raises(DpflError, match=r"fedavg adds no noise.*leave privacy\.ledger out"):
        train(federation, fedavg(tau=1), out="second", rounds=1, ledger=tmp_path / "ledgers")
    assert not (tmp_path / "second").exists()


def test_what_a_ledger_counts_is_nobody_elses_and_not_public(train, tmp_path, cli) -> None:
    """Fault: a fifth client that had paid was public in the next run, and its data under a new name
    began at 0.
    """
    folder = tmp_path / "ledgers"
    five = small_source().split(5, IID())
    train(five, STEPS, rounds=1, ledger=folder)
    before = spent(folder)
    with pytest.raises(DpflError, match=r"client-00004\.sqlite counts the data of a public client"):
        train(
            small_source().split(4, IID(), public_clients=1),
            STEPS,
            out="second",
            rounds=1,
            ledger=folder,
        )
    assert cli("ledger", "new", str(folder), "e") == 0
    other_names = small_source().split(5, IID(), names=(*five.names[:4], "e"))
    with pytest.raises(DpflError, match=r"client-00004\.sqlite counts the data of e"):
        train(other_names, STEPS, out="third", rounds=1, ledger=folder)
    assert spent(folder) == before | {"e": 0}
