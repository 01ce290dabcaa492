import numpy as np
import pytest
from scipy.optimize import minimize

from dpfl.data.sources import randhie_table
from dpfl.data.sources.randhie_table import DECLARATION, declaration, read
from dpfl.errors import DpflError
from dpfl.tasks import Binary

OUTCOMES = [
    "outpdol",
    "drugdol",
    "suppdol",
    "mentdol",
    "inpdol",
    "meddol",
    "totadm",
    "inpmis",
    "mentvis",
    "mdvis",
    "notmdvis",
    "lnmeddol",
    "binexp",
]


def test_the_study_as_it_is_known() -> None:
    table = read(declaration())
    assert len(table) == 20_190
    assert len(np.unique(table.rows.person)) == 5_912
    assert table.sites == ("1", "2", "3", "4", "5", "6")
    assert (min(map(len, table.by_site())), max(map(len, table.by_site()))) == (2_436, 4_462)
    assert table.rows.y.mean() == pytest.approx(0.688, abs=1e-3)
    assert (
        len(
            {
                (person, site)
                for person, site in zip(table.rows.person, table.rows.site, strict=True)
            }
        )
        == 5_912
    )
    assert table.private == ()
    assert table.warnings == ()


def test_twenty_columns_and_none_that_tells_the_visits() -> None:
    names = [column.name for column in declaration().schema.columns]
    assert len(names) == 20
    assert not set(names) & set(OUTCOMES)


def test_visits_are_counts() -> None:
    table = read(declaration("visits"))
    assert (table.schema.label.task, int(table.rows.y.max())) == ("counts", 77)
    with pytest.raises(DpflError, match="There is no randhie label 'visit'; did you mean 'visits'"):
        declaration("visit")


def test_the_file_is_small_and_says_where_it_is_from() -> None:
    assert DECLARATION.with_suffix(".parquet").stat().st_size < 1_000_000
    text = DECLARATION.read_text()
    assert "# Source: " in text
    assert "# Licence: public domain" in text


def dense(table: randhie_table.Table) -> np.ndarray:
    features = table.schema.features
    codes = table.rows.x[:, features.numbers :].astype(int).T
    hot = [np.eye(levels)[column] for levels, column in zip(features.levels, codes, strict=True)]
    return np.concatenate([table.rows.x[:, : features.numbers], *hot], axis=1).astype(np.float64)


def test_a_plain_model_on_persons_that_it_has_not_seen() -> None:
    """Logistic regression without privacy, all sites together: the most that a private one can hope
    for.
    """
    train, test = read(declaration()).split_off(0.2)
    x, y = dense(train), train.rows.y

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        scores = x @ w
        slopes = 1 / (1 + np.exp(-scores)) - y
        return float(np.mean(np.logaddexp(0, scores) - y * scores)), x.T @ slopes / len(y)

    w = minimize(loss, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x
    assert 0.70 < Binary().metrics(dense(test) @ w, test.rows.y)["AUC"] < 0.75
