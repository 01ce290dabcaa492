"""One run in words: three epsilons, each rounded to its safe side, and tiles while it runs."""

from dpfl.run.metrics import RoundRow
from dpfl.views.run_view import epsilon_in_words, live_tiles

ROW = RoundRow(3, 2, 6, 10, 0.5, 0.4, 1.0, None, 2_000_000, 7.0)


def test_upper_bounds_are_rounded_up_and_a_measured_one_down() -> None:
    assert epsilon_in_words("proven", 1.23456) == "1.2346"
    assert epsilon_in_words("audited", 1.23456) == "at least 1.2345"
    assert epsilon_in_words("audited", None) == "not audited"
    assert epsilon_in_words("claimed", "unbounded") == "unbounded"


def test_tiles_of_a_run_under_way() -> None:
    metric, rounds = live_tiles("accuracy", {}, ROW, 80, 0.5)
    assert (metric.text, rounds.text) == ("50.00%", "3 of 80")
    assert rounds.note == "6 steps per client, 2.0 MB sent, 7 s"


def test_tiles_before_the_first_round() -> None:
    metric, rounds = live_tiles("accuracy", {}, None, None, None)
    assert (metric.text, metric.note) == ("not measured", "not measured yet")
    assert (rounds.text, rounds.note) == ("0", "no round has ended yet")
