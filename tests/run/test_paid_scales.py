"""Scales of columns that are paid for: asked once, before the first round, and part of the model
that is saved.
"""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dpfl
from dpfl.client.dataset import ClientDataset
from dpfl.config.experiment import parse
from dpfl.data.units import UnitGroups
from dpfl.errors import DpflError
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.accountant import accountant
from dpfl.privacy.accounting.events import gaussian
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.run.records.folder import RunFolder
from dpfl.run.result import Result
from dpfl.server.aggregation.private_answers import PrivateAnswers
from tests.conftest import StopsAfter, example, ledger_of
from tests.run.test_tables import content, write

COLUMNS = {
    "age": {"low": 0, "high": 200, "scale": "paid", "missing": "indicate"},
    "sex": {"levels": ["f", "m"], "other": True},
}


def told(tmp_path: Path, columns: dict[str, Any] = COLUMNS, **data: Any) -> dict[str, Any]:
    said = content(write(tmp_path / "stays.csv", 600), columns=columns, **data)
    return said | {
        "algorithm": {"name": "fedavg-dp", "tau": 1},
        "budget": {"epsilon": 2.0, "rounds": 3},
    }


def run(tmp_path: Path, said: dict[str, Any], out: str = "run", **options: Any) -> Result:
    return parse(said).run(out=tmp_path / out, workers=1, **options)


def ages(result: Result) -> dict[str, float]:
    with (result.folder / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return json.loads(header["__metadata__"]["schema"])["numeric"][0]


def test_the_scales_are_those_of_the_column_and_are_counted_within_epsilon(tmp_path: Path) -> None:
    result = run(tmp_path, told(tmp_path, paid={"noise": 2.0}))
    found = np.array(
        [line.split(",")[0] for line in (tmp_path / "stays.csv").read_text().splitlines()[1:]],
        float,
    )
    scale = ages(result)
    assert scale["mean"] == pytest.approx(found.mean(), abs=4.0)
    assert scale["scale"] == pytest.approx(found.std(), abs=8.0)
    for name in "ab":
        spent = ledger_of(result, name)
        assert spent[gaussian(2.0)] == 1
        assert sum(spent.values()) == 4
    assert result.privacy.proven <= 2.0
    assert result.privacy.proven == pytest.approx(accountant("pld").epsilon(spent, 1e-5))
    assert "Gaussian noise, multiplier 2" in result.privacy.releases


def test_a_raw_row_and_the_model_file_are_enough_without_dpfl(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {
        **COLUMNS,
        "age": {"low": 0, "high": 200, "log": True, "scale": "paid quartiles", "bins": 8},
    }
    said = told(tmp_path, columns)
    result, table = run(tmp_path, said), tmp_path / "stays.csv"
    example("predict_without_dpfl").main(str(result.folder / "model.safetensors"), str(table))
    theirs = [
        [float(chance) for chance in line.split()] for line in capsys.readouterr().out.splitlines()
    ]
    ours = dpfl.data.table(
        table,
        **{word: value for word, value in said["data"].items() if word not in ("name", "test")},
    )
    with torch.no_grad():
        np.testing.assert_allclose(theirs, result.module(ours.train.x).sigmoid(), atol=1e-4)
    assert ages(result)["scale"] not in (pytest.approx(np.log1p(200) / 2), 1.0)


def test_the_debit_is_on_disk_before_the_server_has_the_answer_and_is_not_made_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is broken off as the server has the answer, and a ledger is read at that moment."""
    settings, debits, ask = told(tmp_path), list[int](), PrivateAnswers.of_clients

    def answers(self: PrivateAnswers, *query: Any) -> Any:
        ask(self, *query)
        with closing(Ledger.read(tmp_path / "run" / "ledger" / "a.sqlite")) as ledger:
            debits.append(ledger.spending().get(gaussian(20.0), 0))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PrivateAnswers, "of_clients", answers)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, settings)
    assert debits == [1]
    resumed = parse(settings).run(out=tmp_path / "run", workers=1, resume=True)
    whole = run(tmp_path, settings, "whole")
    assert ledger_of(resumed, "a")[gaussian(20.0)] == 1
    assert resumed.model_sha256 == whole.model_sha256


def test_a_run_that_goes_on_after_its_first_round_does_not_ask_again(tmp_path: Path) -> None:
    """Noise of the system would be other noise, and a second answer a second release."""
    said = told(tmp_path) | {"privacy": {"entropy": "system"}}
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, said, progress=StopsAfter(1))
    before = RunFolder(tmp_path / "run").counters()["round"]
    resumed = parse(said).run(out=tmp_path / "run", workers=1, resume=True)
    assert (before, resumed.rounds) == (1, 3)
    assert ledger_of(resumed, "a")[gaussian(20.0)] == 1


def test_a_person_counts_once_however_many_rows_they_have() -> None:
    """With 1, 3 or 50 rows at the upper bound, one person more moves the sum by the bound, and no
    more.
    """
    query = ColumnQuery(1e-9, 2, (0,), ((1, 4),))
    for rows in (1, 3, 50):
        x, y = torch.cat([torch.zeros(20, 2), torch.ones(rows, 2)]), torch.zeros(20 + rows)
        persons = torch.cat([torch.arange(20) // 2, torch.full((rows,), 99)])
        with_, without = (
            query.answer(
                ClientDataset(x, y, held, 1, UnitGroups.of(held, persons), 2),
                np.random.default_rng(0),
            )
            for held in (torch.arange(20 + rows), torch.arange(20))
        )
        assert np.linalg.norm(with_ - without) == pytest.approx(query.bound, rel=1e-4)
        assert np.linalg.norm(with_ - without) <= query.bound * (1 + 1e-6)


def test_a_share_of_epsilon_is_turned_into_noise(tmp_path: Path) -> None:
    result = run(tmp_path, told(tmp_path, paid={"share": 0.25}))
    (asked,) = [event for event, count in ledger_of(result, "a").items() if count == 1]
    assert accountant("pld").epsilon({asked: 1}, 1e-5) == pytest.approx(0.5, rel=1e-2)
    assert result.privacy.proven <= 2.0


def test_a_run_without_privacy_has_the_same_scales_to_compare_with(tmp_path: Path) -> None:
    result = run(
        tmp_path, told(tmp_path) | {"algorithm": {"name": "fedavg"}, "budget": {"rounds": 1}}
    )
    assert ages(result)["scale"] < 100
    assert result.privacy.unit == "none"


@pytest.mark.parametrize(
    ("column", "data", "algorithm", "message"),
    [
        ({"scale": "payed"}, {}, {}, r"data\.columns\.age\.scale is 'payed'"),
        ({"scale": "paid", "mean": 1.0}, {}, {}, "leave the mean out"),
        ({"scale": "paid", "bins": 9}, {}, {}, "is only used with scale"),
        ({"scale": "paid quartiles", "bins": 2}, {}, {}, r"data\.columns\.age\.bins"),
        ({"scale": "paid quartiles", "bins": 10**9}, {}, {}, "from 4 to 1,000"),
        ({}, {"paid": {"noise": 3}}, {}, "no column has scale = 'paid'"),
        ({"scale": "paid"}, {"paid": {"noise": 0}}, {}, r"data\.paid\.noise is 0"),
        ({"scale": "paid"}, {"paid": {"share": 1.5}}, {}, r"data\.paid\.share is 1\.5"),
        ({"scale": "paid"}, {"paid": {"noise": 3, "share": 0.1}}, {}, "one of noise and share"),
        (
            {"scale": "paid"},
            {"paid": {"noise": 0.1}},
            {},
            "but budget.epsilon is 2: raise their noise",
        ),
        (
            {"scale": "paid"},
            {},
            {"name": "dp-fedavg", "noise_multiplier": 1.0},
            "Paid scales protect one sample",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence_before_anything_is_made(
    tmp_path: Path, column, data, algorithm, message
) -> None:
    said = told(tmp_path, {"age": {"low": 0, "high": 200, **column}}, **data)
    said["algorithm"] = algorithm or said["algorithm"]
    with pytest.raises(DpflError, match=message):
        run(tmp_path, said)
    assert not (tmp_path / "run" / "ledger").exists()
