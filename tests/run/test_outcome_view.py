"""What a run came to, in words, from the content of its result."""

from dpfl.run.outcome_view import ENDINGS, OutcomeView, ending_in_words

RESULT = {
    "headline": "accuracy",
    "metrics": {"accuracy": 0.8975, "log loss": 0.41},
    "intervals": {"accuracy": (0.88, 0.91)},
    "rounds": 80,
    "iterations": 1320,
    "stopped_by": "rounds",
    "warnings": ["delta is large", "weak model"],
    "privacy": {"warnings": ["delta is large"]},
    "lost": ["round 1, client 0: late", "round 2, client 0: late"],
}


def test_an_outcome_has_metrics_with_intervals_and_its_ending() -> None:
    outcome = OutcomeView.of(RESULT)
    assert outcome.measured == "accuracy 89.75%"
    assert outcome.metrics == "accuracy 89.75% (88.00% to 91.00%), log loss 0.4100"
    assert outcome.rounds == "80 rounds with 1,320 steps per client; all rounds were run"
    assert outcome.lost_replies.startswith("2 replies were refused or lost")


def test_a_warning_of_the_statement_is_not_repeated() -> None:
    assert OutcomeView.of(RESULT).warnings == ("weak model",)


def test_a_run_under_way_has_no_outcome_yet() -> None:
    outcome = OutcomeView.of({})
    assert outcome.measured == "accuracy not measured"
    assert outcome.rounds == ENDINGS["unfinished"]
    assert ending_in_words("a later reason") == "a later reason"
