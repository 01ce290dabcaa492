"""What people bring as tables: each is right, or one sentence before anything is made."""

from pathlib import Path
from typing import Any

import pytest
from torch import nn

import dpfl
from dpfl.config.experiment import parse
from dpfl.errors import DpflError
from tests.run.test_tables import content, write


def rows(died: str) -> list[str]:
    return [
        f"{20 + n % 60},{'fm'[n % 2]},{'ab'[n // 20 % 2]},p{n},{died.format(n=n, odd=n % 2)}"
        for n in range(80)
    ]


def table(path: Path, lines: list[str], separator: str = ",", bom: bool = False) -> Path:
    text = "\n".join(["age,sex,hospital,patient,died", *lines]).replace(",", separator)
    path.write_text(text, encoding="utf-8-sig" if bom else "utf-8")
    return path


def run(path: Path, **data: Any) -> dpfl.Result:
    return parse(content(path, **{"test": None, **data})).run(out=path.parent / "run", workers=1)


@pytest.mark.parametrize(("separator", "bom"), [(",", False), (";", True)])
def test_a_mark_of_bytes_and_semicolons_change_nothing(
    tmp_path: Path, separator: str, bom: bool
) -> None:
    assert run(table(tmp_path / "t.csv", rows("{odd}"), separator, bom)).rounds == 3


def test_a_client_without_positives_trains(tmp_path: Path) -> None:
    lines = [line[:-1] + "0" if ",a," in line else line for line in rows("{odd}")]
    assert run(table(tmp_path / "t.csv", lines)).rounds == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("age,sex,hospital,patient,died", "no rows"),
        (
            "age,sex,hospital,patient,died\n30,f,a,p1,yes\n31,f,b,p2,no",
            r"line 2, column 'died': a label other than 0, 1",
        ),
        (
            "age,sex,hospital,patient,died\n30,f,a,p1,2\n31,f,b,p2,1",
            r"line 2, column 'died': a label other than 0, 1",
        ),
        (
            "age,sex,hospital,patient,died\nold,f,a,p1,1\n31,f,b,p2,1",
            r"line 2, column 'age': not a number",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DpflError, match=message):
        run(tmp_path / "t.csv")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("outputs", "right"), [(1, True), (2, False)])
def test_a_binary_label_takes_one_logit(tmp_path: Path, outputs: int, right: bool) -> None:
    federation = parse(content(write(tmp_path / "t.csv"), test=None)).federation()
    features = federation.train.features
    assert features is not None
    system, model = (
        dpfl.algorithms.from_name("fedavg-dp", noise_multiplier=1.0),
        nn.Linear(features.dense, outputs),
    )
    if right:
        assert (
            dpfl.train(
                model,
                federation,
                system,
                dpfl.Budget(rounds=1),
                execution=dpfl.Execution(out=tmp_path / "run"),
            ).rounds
            == 1
        )
        return
    with pytest.raises(DpflError, match="needs 1 outputs per sample"):
        dpfl.train(
            model,
            federation,
            system,
            dpfl.Budget(rounds=1),
            execution=dpfl.Execution(out=tmp_path / "run"),
        )
    assert not (tmp_path / "run").exists()
