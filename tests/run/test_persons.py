"""Persons as the unit of a run: who is sampled, what is counted, what is said, and what is refused
before any debit.
"""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

import dpfl
from dpfl.certificate.finished_run import read_finished_run
from dpfl.config.experiment import parse
from dpfl.data import IID, Dirichlet, ExplicitPartition, Federation
from dpfl.errors import DpflError
from dpfl.privacy import Ledger
from dpfl.run.records.folder import RunFolder
from tests.conftest import StopsAfter, ledger_of, small_source

SYSTEM = dpfl.algorithms.from_name("fedavg-dp", noise_multiplier=1.0, tau=2, sampling_rate=0.2)


@cache
def people(most: int | None = None, shift: int = 0) -> Federation:
    """Three clients of persons with one to seven rows."""
    source = small_source()
    sizes = torch.tensor([1, 3, 2, 7, 1, 4]).repeat(60)
    persons = torch.repeat_interleave(sizes)[: len(source.train)] + shift
    whole = replace(source, persons=persons).split(clients=3, how=IID(), seed=0)
    return replace(whole, rows_per_person=most)


Train = Callable[..., dpfl.Result]


def test_persons_are_counted_sampled_and_stated(train: Train) -> None:
    federation = people()
    result = train(federation, SYSTEM, rounds=3, unit="person")
    said = dict(result.privacy.lines())
    assert said["unit"].startswith(
        "one person, with all of their data at one client; a person at two clients counts twice, "
        "and the epsilons add up; neighbours"
    )
    assert result.privacy.unit == "person"
    assert result.privacy.warnings == ()
    assert "for one person" in repr(result)
    rows = train(federation, SYSTEM, rounds=3, out="rows")
    assert rows.privacy.unit == "sample"
    assert "set privacy.unit = 'person'" in rows.privacy.warnings[0]
    assert rows.model_sha256 != result.model_sha256
    assert ledger_of(result, "client-00000") == ledger_of(rows, "client-00000"), (
        "as many steps at the same rate"
    )
    record = RunFolder.open(result.folder).experiment()["resolved"]
    assert record["largest"] == max(federation.count_units("person")) < max(federation.sizes)


def test_workers_and_resuming_give_the_same_run(train: Train, tmp_path: Path) -> None:
    options = {"rounds": 4, "unit": "person", "epsilon": 50.0}
    whole = train(people(), SYSTEM, out="whole", **options)
    assert (
        train(people(), SYSTEM, out="two", workers=2, **options).model_sha256 == whole.model_sha256
    )
    with pytest.raises(KeyboardInterrupt):
        train(people(), SYSTEM, out="cut", progress=StopsAfter(2), **options)
    resumed = train(people(), SYSTEM, out="cut", resume=True, **options)
    assert resumed.model_sha256 == whole.model_sha256
    assert ledger_of(resumed, "client-00001") == ledger_of(whole, "client-00001")
    with pytest.raises(DpflError, match=r"one person .* and not for one sample"):
        train(people(), SYSTEM, out="cut", resume=True, **(options | {"unit": "sample"}))
    with pytest.raises(DpflError, match="data differs"):
        train(people(most=2), SYSTEM, out="cut", resume=True, **options)


def test_a_ledger_for_persons_counts_for_these_persons_only(train: Train, tmp_path: Path) -> None:
    shared = {"rounds": 1, "ledger": tmp_path / "ledgers"}
    first = train(people(), SYSTEM, unit="person", **shared)
    again = train(people(shift=5), SYSTEM, out="again", unit="person", **shared)
    assert again.privacy.proven > first.privacy.proven, "other numbers, the same persons"
    train(people(most=1), SYSTEM, out="capped", unit="person", **shared)
    with pytest.raises(DpflError, match="one person"):
        train(people(), SYSTEM, out="rows", **shared)
    regrouped = replace(people(), persons=torch.arange(len(people().train)) // 2)
    with pytest.raises(DpflError, match="counts other data: the samples"):
        train(regrouped, SYSTEM, out="others", unit="person", **shared)
    with closing(Ledger.read(tmp_path / "ledgers" / "client-00000.sqlite")) as ledger:
        assert ledger.unit == "person"


def test_a_certificate_is_for_a_person(train: Train) -> None:
    result = train(people(), SYSTEM, rounds=1, epsilon=50.0, unit="person")
    found = read_finished_run(RunFolder.open(result.folder))
    assert found.statement.unit == "person"
    assert found.statement.proven == pytest.approx(result.privacy.proven)
    told = json.loads((result.folder / "statement.json").read_text())
    (result.folder / "statement.json").write_text(json.dumps(told | {"unit": "sample"}))
    with pytest.raises(DpflError, match="says unit 'sample'"):
        read_finished_run(RunFolder.open(result.folder))


@pytest.mark.parametrize(
    ("system", "why"),
    [
        (
            dpfl.algorithms.from_name("dp-fedavg", noise_multiplier=1.0),
            "protects whole clients, and so every person there",
        ),
        (dpfl.algorithms.from_name("fedavg"), "adds no noise"),
        (
            dpfl.algorithms.from_name("ali-dpfl", variant="published", noise_multiplier=1.0),
            "is for samples",
        ),
    ],
)
def test_what_cannot_protect_persons_is_refused_before_anything_is_made(
    train: Train, tmp_path: Path, system, why
) -> None:
    with pytest.raises(DpflError, match=why):
        train(people(), system, rounds=1, unit="person")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "options", "why"),
    [
        ({"persons": None}, {"unit": "person"}, "data.person is not declared"),
        ({}, {"unit": "people"}, "privacy.unit is 'sample'"),
        ({"rows_per_person": 2}, {}, "data.rows_per_person is for persons"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    train: Train, tmp_path: Path, change, options, why
) -> None:
    with pytest.raises(DpflError, match=why):
        train(replace(people(), **change), SYSTEM, rounds=1, **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "name", ["auto", "hw-dpfl", "ali-dpfl", "als-dpfl", "dp-sgd-wav", "adap-dp-fl", "dyn-dp-sgd"]
)
def test_systems_with_noise_inside_clients_take_persons(train: Train, name: str) -> None:
    """With their surveys, slopes and Haar coefficients."""
    result = train(people(), dpfl.algorithms.from_name(name), rounds=2, epsilon=20.0, unit="person")
    assert result.privacy.unit == "person"
    assert result.rounds >= 1


@pytest.mark.parametrize("how", [IID(), Dirichlet(0.3, minimum=5)])
def test_a_partition_keeps_persons_whole(how) -> None:
    source = replace(small_source(), persons=torch.arange(1000) // 4 * 3)
    federation = source.split(clients=5, how=how, seed=1, public_clients=1)
    everyone = [
        set(source.persons[part].tolist()) for part in (*federation.clients, *federation.public)
    ]
    assert sum(map(len, everyone)) == 250 == len(set.union(*everyone))
    assert sum(federation.sizes) + len(federation.public[0]) == 1000
    assert (
        sum(federation.count_units("person"))
        + federation.count_units("person", federation.public)[0]
        == 250
    )


def test_a_mapping_is_the_users_own_word_on_every_row() -> None:
    source = replace(small_source(), persons=torch.arange(1000) // 4)
    federation = source.split(
        clients=2, how=ExplicitPartition([list(range(0, 1000, 2)), list(range(1, 1000, 2))])
    )
    assert federation.count_units("person") == (250, 250), "a person at two clients is one at each"


def test_an_experiment_says_persons(tmp_path: Path) -> None:
    said = {
        "data": {"name": "randhie", "rows_per_person": 3},
        "model": {"name": "linear"},
        "algorithm": {"name": "fedavg-dp", "tau": 1},
        "budget": {"epsilon": 1.0, "rounds": 2},
        "privacy": {"unit": "person"},
    }
    result = parse(said).run(out=tmp_path / "run", workers=1)
    assert result.privacy.unit == "person"
    assert result.privacy.proven <= 1.0
    assert read_finished_run(RunFolder.open(result.folder)).statement.unit == "person"
