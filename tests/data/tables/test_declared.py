import tomllib
from typing import Any

import pytest

from dpfl.data.tables.declared import DeclaredTestSet, declare
from dpfl.data.tables.label import LabelColumn
from dpfl.data.tables.schema import CategoricalColumn, FeatureLayout, NumericColumn
from dpfl.errors import DpflError

WORDS = """
label = "died"
task = "binary"
site = "hospital"
person = "patient"
time = "year"
test = { share = 0.2, seed = 1 }
sites = ["a", 2]
[columns.age]
low = 0
high = 110
missing = "indicate"
[columns.income]
low = 0
high = 1e5
log = true
[columns.sex]
levels = ["f", "m"]
other = true
missing = "other"
"""


def words(**changes: Any) -> dict[str, Any]:
    return tomllib.loads(WORDS) | changes


def test_what_is_declared() -> None:
    declared = declare(words())
    schema = declared.schema
    assert schema.columns == (
        NumericColumn("age", 0, 110, missing="indicate"),
        NumericColumn("income", 0, 1e5, log=True),
        CategoricalColumn("sex", ("f", "m"), other=True, missing="other"),
    )
    assert schema.label == LabelColumn(("died",), "binary", levels=(0, 1))
    assert (schema.site, schema.person, schema.time) == ("hospital", "patient", "year")
    assert schema.read == ("age", "income", "sex", "died", "hospital", "patient", "year")
    assert schema.features == FeatureLayout(numbers=3, levels=(3,))
    assert schema.features.dense == 6
    assert declared.test == DeclaredTestSet(share=0.2, seed=1)
    assert declared.sites == ("a", "2")


@pytest.mark.parametrize(
    ("said", "task", "expected"),
    [
        ({"column": "visits", "above": 0}, None, LabelColumn(("visits",), "binary", above=0)),
        (
            {"column": "state", "levels": ["ok", "ill"]},
            None,
            LabelColumn(("state",), "binary", levels=("ok", "ill")),
        ),
        (
            {"column": "state", "levels": [3, 1, 2]},
            None,
            LabelColumn(("state",), "classes", levels=(3, 1, 2)),
        ),
        (
            {"column": "grade", "levels": [1, 2, 3]},
            "ordinal",
            LabelColumn(("grade",), "ordinal", levels=(1, 2, 3)),
        ),
        (["a", "b"], None, LabelColumn(("a", "b"), "labels")),
        (
            {"column": "cost", "low": 0, "high": 9, "missing": "drop"},
            "number",
            LabelColumn(("cost",), "number", (), None, 0, 9, "drop"),
        ),
        ("visits", "counts", LabelColumn(("visits",), "counts")),
    ],
)
def test_labels(said: Any, task: str | None, expected: LabelColumn) -> None:
    changed = words(label=said)
    del changed["task"]
    assert declare(changed | ({"task": task} if task else {})).schema.label == expected


def test_numbered_classes() -> None:
    assert declare(words(label="kind", task="classes", classes=3)).schema.label.levels == (0, 1, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": "died"}, "data has no key 'labels'; did you mean 'label'"),
        ({"columns": {}}, "The table has no columns to learn from"),
        ({"columns": {"age": {"low": 0}}}, "data.columns.age has no high: give it"),
        ({"columns": {"age": {}}}, "data.columns.age needs either low and high"),
        (
            {"columns": {"age": {"low": 0, "high": 1, "levels": [1]}}},
            "data.columns.age needs either low and high",
        ),
        ({"columns": {"age": {"low": 9, "high": 1}}}, "the lower one first"),
        ({"columns": {"age": {"low": "0", "high": 1}}}, "give two numbers"),
        ({"columns": {"age": {"low": 0, "high": 1, "mean": 3}}}, "one of mean and scale"),
        ({"columns": {"age": {"low": 0, "high": 1, "mean": 3, "scale": 0}}}, "one above 0"),
        (
            {"columns": {"age": {"low": 0, "high": 1, "logs": True}}},
            "has no key 'logs'; did you mean 'log'",
        ),
        (
            {"columns": {"age": {"low": 0, "high": 1, "missing": "mean"}}},
            "data.columns.age.missing is 'mean'",
        ),
        ({"columns": {"sex": {"levels": []}}}, "levels is empty"),
        ({"columns": {"sex": {"levels": ["a", "a"]}}}, "names a value twice"),
        ({"columns": {"sex": {"levels": ["a", 1]}}}, "texts only, or numbers only"),
        ({"columns": {"sex": {"levels": "f"}}}, "give a list"),
        ({"columns": {"sex": {"levels": ["a"], "missing": "other"}}}, "'other' with other = true"),
        ({"columns": {"died": {"low": 0, "high": 1}}}, "'died' is the label and also"),
        ({"columns": {"patient": {"low": 0, "high": 1}}}, "'patient' is the person and also"),
        ({"task": "clases"}, "There is no table task 'clases'; did you mean 'classes'"),
        ({"task": "classes"}, "The task classes needs data.label.levels"),
        (
            {"label": {"column": "x", "above": 0}, "task": "counts"},
            "data.label.above is a number that makes a binary label",
        ),
        (
            {"label": {"column": "x", "low": 0}},
            "low and high are two numbers, for numbers and counts",
        ),
        ({"label": {"column": "x", "mean": 2.0}}, "mean is a number above 0, for counts"),
        (
            {"label": {"column": "x", "mean": 0}, "task": "counts"},
            "mean is a number above 0, for counts",
        ),
        ({"label": ["a", "b"]}, "cannot have 2 label columns"),
        ({"label": 3}, "data.label is 3: give the name of a column"),
        ({"test": {"share": 2}}, "data.test.share is 2"),
        ({"test": 0.2}, "data.test is 0.2: give a table"),
        ({"test": {}}, "give one of share and file"),
        ({"site": None}, "data.site is None"),
    ],
)
def test_what_is_wrong_is_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DpflError, match=message):
        declare(words(**changes))


def test_a_label_alone_does_not_say_its_task() -> None:
    changed = words()
    del changed["task"]
    with pytest.raises(DpflError, match=r"The task of the label 'died' is unknown: set data\.task"):
        declare(changed)


def test_sites_need_their_column() -> None:
    changed = words()
    del changed["site"]
    with pytest.raises(DpflError, match=r"data\.sites names sites"):
        declare(changed)
