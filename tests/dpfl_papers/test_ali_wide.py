"""The tables of ALI-DPFL with the authors' network."""

from __future__ import annotations

from tests.dpfl_papers.conftest import TABLES, cell_at


def test_the_authors_network_has_the_same_columns_with_their_own_runs():
    for name in ("ali-2", "ali-3", "ali-4"):
        small, wide = (
            {c.place: c for c in TABLES[table].cells} for table in (name, f"{name}-wide")
        )
        assert set(wide) <= set(small)
        for place, one in wide.items():
            assert one.work.content["model"]["name"] == "cnn-wide"
            assert one.printed == small[place].printed
            assert one.work.with_settings(["model.name=cnn"]).content == small[place].work.content
    assert cell_at("ali-5-wide", "Fashion-MNIST", "tau = 3", "IID").printed == 89.46
    assert cell_at("ali-2-wide", "MNIST", "ALI-DPFL", "R_s = R_c / 2").printed == 97.58


def test_readings_of_a_level_change_one_thing_each_and_the_first_is_that_of_the_table():
    first, *rest = TABLES["ali-levels"].cells
    assert first.digest(0) == cell_at("ali-3", "MNIST", "tau = 1", "R_s = R_c,").digest(0)
    assert first.printed == cell_at("ali-3", "MNIST", "tau = 1", "R_s = R_c,").printed
    assert len({one.digest(0) for one in (first, *rest)}) == 1 + len(rest)
