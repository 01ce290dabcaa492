"""What notebooks show of results, statements, federations, plans and comparisons, and the tables
that other tools take.
"""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from scipy import stats

import dpfl
from dpfl.data import Federation
from dpfl.data.remote_federation import RemoteFederation
from dpfl.errors import DpflError
from dpfl.run.metrics import COLUMNS, RoundRow, RunHistory
from dpfl.views.notebook.html import card, facts, table
from tests.conftest import MODEL, PATIENCE, small_federation

HOSTILE = "<script>alert(1)</script>&\"'"
VOID = {"br", "hr", "img"}


class Balanced(HTMLParser):
    """Every element that is opened is closed, and none of them is a script or names another
    place.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag not in {"script", "iframe", "link"}
        assert not {name for name, _ in attrs} & {"src", "href", "onload", "onerror"}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += f" {data}"


def words(shown: Any) -> str:
    return Balanced(shown._repr_html_()).words


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dpfl.Result]:
    """Two systems, the first with two seeds."""
    place = tmp_path_factory.mktemp("runs")
    systems = {
        name: dpfl.algorithms.fedavg_dp(tau=tau, noise_multiplier=2.0)
        for name, tau in (("a", 2), ("b", 2), ("c", 1))
    }
    return [
        dpfl.train(
            MODEL,
            small_federation(),
            algorithm,
            dpfl.Budget(epsilon=8.0, rounds=3),
            privacy=dpfl.Privacy(accountant="rdp"),
            execution=dpfl.Execution(out=place / name, seed=int(name == "b")),
        )
        for name, algorithm in systems.items()
    ]


def test_a_result_shows_its_statement_and_draws_its_rounds(results: list[dpfl.Result]) -> None:
    shown = words(results[0])
    for heading, text in results[0].privacy.lines():
        assert heading in shown
        assert text in shown
    assert results[0].measured in shown
    names = [axis.get_ylabel() for axis in results[0].plot().axes]
    assert names == ["test accuracy, %", "test accuracy, %", "steps a round (tau)"]
    assert results[0].plot()._repr_png_().startswith(b"\x89PNG")


def test_a_history_is_a_table_to_arrow_and_pandas_and_to_whoever_reads_arrow(
    results: list[dpfl.Result],
) -> None:
    history = results[0].history
    assert len(history) == 3
    assert history[-1] == list(history)[-1]
    arrow = history.to_arrow()
    assert tuple(arrow.column_names) == COLUMNS
    assert arrow.column("epsilon").to_pylist() == [row.epsilon for row in history]
    assert pa.RecordBatchReader.from_stream(history).read_all().equals(arrow)
    frame = history.to_pandas()
    assert list(frame["round"]) == [1, 2, 3]
    assert "accuracy" in words(history)


def test_without_pandas_a_sentence_says_what_to_do() -> None:
    code = (
        "import sys; sys.modules['pandas'] = None; from dpfl.run.metrics import RunHistory; "
        "RunHistory().to_pandas()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stderr.splitlines()[-1].endswith(
        "pandas is not installed: pip install pandas, or take .to_arrow()."
    )


def test_a_statement_that_holds_nothing_is_drawn_without_an_end(results: list[dpfl.Result]) -> None:
    bounded = results[0].privacy
    picture = bounded.plot()
    assert len(picture.axes) == 2
    assert "for one sample" in picture.axes[0].get_ylabel()
    unbounded = dpfl.PrivacyStatement(
        "client", "add/remove one", 1e-5, "the server", "none", math.inf, None, warnings=(HOSTILE,)
    )
    assert "unbounded" in {text.get_text() for text in unbounded.plot().axes[0].texts}
    assert HOSTILE in words(unbounded)


def test_a_federation_shows_sizes_and_no_label(federation: Federation) -> None:
    shown = words(federation)
    assert "1,000 in all; 250 to 250 per client" in shown
    assert "400 samples" in shown
    (axis,) = federation.plot().axes
    assert axis.get_ylabel() == "client"


def test_a_plan_shows_what_it_recommends() -> None:
    found = dpfl.plan(
        epsilon=4, rounds=20, sizes=[800] * 10, rates=[0.1, 0.5], taus=[1, 2], parameters=100
    )
    shown = words(found)
    assert f"* {found.recommended.per_step:.1f}" in shown
    assert "Recommended for epsilon 4 at delta 1e-05 over 20 rounds" in shown
    assert len(found.plot().axes) == 3


def test_runs_of_one_system_are_compared_over_their_seeds(results: list[dpfl.Result]) -> None:
    compared = dpfl.compare(*results)
    assert [len(group.runs) for group in compared.groups] == [2, 1]
    first, second = compared.to_arrow().to_pylist()
    accuracies = [result.accuracy for result in results[:2]]
    assert first["mean"] == pytest.approx(sum(accuracies) / 2)
    half = (
        stats.t.ppf(0.975, df=1) * abs(accuracies[0] - accuracies[1]) / 2
    )  # s / sqrt(2) of two values is half their distance
    assert (first["high"] - first["low"]) / 2 == pytest.approx(half, abs=1e-9)
    assert (first["high"] + first["low"]) / 2 == pytest.approx(first["mean"])
    assert second["low"] is None
    assert first["proven"] == pytest.approx(
        max(result.privacy.proven for result in results[:2]), abs=1e-5
    )
    shown = words(compared)
    assert "interval of the mean over seeds" in shown
    assert "±" in shown
    assert len(compared.plot().axes) == 2
    assert compared.to_dict()[0]["seeds"] == [0, 1]


def test_a_folder_of_runs_is_a_table_and_can_be_compared(results: list[dpfl.Result]) -> None:
    place = results[0].folder.parent
    found = dpfl.runs(place)
    assert [path.name for path in found] == ["a", "b", "c"]
    assert found[0] == place / "a"
    assert len(found[1:]) == 2
    assert found.to_pandas()["proven"].max() <= 8
    assert pa.RecordBatchReader.from_stream(found).read_all().num_rows == 3
    assert (
        dpfl.compare(found).to_dict()
        == dpfl.compare(*results).to_dict()
        == dpfl.compare(results[0], found[1:]).to_dict()
    )
    assert "fedavg-dp" in words(found)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda: dpfl.compare(), "nothing to compare"),
        (lambda: dpfl.compare("nowhere"), "There is no run in nowhere"),
        (lambda: dpfl.compare(3), "not a int"),
        (lambda: dpfl.runs("nowhere"), "There is no folder nowhere"),
    ],
)
def test_what_is_no_run_is_refused(asked: Any, said: str) -> None:
    with pytest.raises(DpflError, match=said):
        asked()


def test_a_run_under_way_and_one_without_a_proof_are_rows_too(
    tmp_path: Path, federation: Federation
) -> None:
    dpfl.train(
        MODEL,
        federation,
        "fedavg",
        dpfl.Budget(rounds=1),
        execution=dpfl.Execution(out=tmp_path / "plain"),
    )
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "experiment.toml").write_bytes((tmp_path / "plain" / "experiment.toml").read_bytes())
    found = dpfl.runs(tmp_path).to_arrow()
    assert found.column("proven").to_pylist() == [None, math.inf]
    assert found.column("stopped_by").to_pylist() == ["unfinished", "rounds"]


def test_words_of_others_are_words() -> None:
    page = Balanced(
        card(HOSTILE, facts([(HOSTILE, HOSTILE)], (HOSTILE,)), table([HOSTILE], [[HOSTILE]]))
    )
    assert page.words.count(HOSTILE) == 5


def test_a_long_table_shows_its_ends() -> None:
    page = Balanced(table(["n"], [[number] for number in range(1000)])).words
    assert "999" in page
    assert "500" not in page
    assert "1000 rows" in page


def test_clients_that_are_drawn_and_clients_elsewhere_are_shown_by_their_sizes() -> None:
    drawn = dpfl.data.sample().split(clients=5000, how=dpfl.data.RandomClients(images=20))
    assert "5,000, split by" in words(drawn)
    assert "20 to 20" in words(drawn)
    elsewhere = RemoteFederation.of(small_federation().train, None, ("boston", "lyon"), (30, 50))
    shown = words(elsewhere)
    assert "80 in all; 30 to 50 per client" in shown
    assert "boston" not in shown
    with pytest.raises(DpflError, match="Only the nodes know"):
        elsewhere.plot()


def test_a_run_without_a_test_set_draws_its_steps_only(train: Any, federation: Federation) -> None:
    result = train(replace(federation, test=None), "fedavg", rounds=2)
    assert "accuracy not measured" in words(result)
    assert [axis.get_ylabel() for axis in result.plot().axes] == ["steps a round (tau)"]


def test_another_task_is_drawn_by_its_own_headline() -> None:
    rows = [RoundRow(n, 1, n, 2, None, 0.5, None, None, 8, 0.1, headline=0.7) for n in (1, 2)]
    assert RunHistory(rows).plot().axes[0].get_ylabel() == "headline on the test set"
