"""The facts of a run, and the settings that make it what it is: all but its seed and its place."""

from dpfl.views.run_summary import RunFacts, settings


def record(**changes: object) -> dict[str, object]:
    resolved = {"algorithm": {"name": "auto", "rate": 0.25}, "clients": 10, "seed": 0}
    return {"resolved": resolved | changes, "hashes": {"train": "a"}, "asked": {"name": "auto"}}


def test_runs_that_differ_only_by_their_seed_have_equal_settings() -> None:
    other = record(seed=1, ledger="/elsewhere", largest=900, declared=[900, 1])
    assert settings(record()) == settings(other)
    assert settings(record()) != settings(record(clients=20))


def test_what_was_planned_for_the_clients_is_left_out() -> None:
    assert settings(record())["algorithm"] == {"name": "auto"}


def test_of_a_run_under_way_the_record_is_enough() -> None:
    facts = RunFacts.of(record(budget={"delta": 1e-6}), {})
    assert (facts.algorithm, facts.clients, facts.variant) == ("auto", 10, None)
    assert (facts.headline, facts.measured, facts.guarantee.proven) == ("accuracy", None, "not yet")
    assert facts.guarantee.scope == "delta 1e-06"


def test_the_first_metric_is_the_one_that_the_result_names() -> None:
    result = {"headline": "f1", "metrics": {"f1": 0.5, "accuracy": 0.9}, "accuracy": 0.9}
    facts = RunFacts.of(record(), result | {"privacy": {"proven": 2.0, "unit": "sample"}})
    assert (facts.headline, facts.measured) == ("f1", 0.5)
    assert RunFacts.of(record(), {"accuracy": 0.9}).measured == 0.9
    assert facts.guarantee.proven == "2.0000"
