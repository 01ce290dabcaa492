"""Settings that make a run what it is: all but its seed and the place of its ledgers."""

from dpfl.views.run_summary import settings


def record(**changes: object) -> dict[str, object]:
    resolved = {"algorithm": {"name": "auto", "rate": 0.25}, "clients": 10, "seed": 0}
    return {"resolved": resolved | changes, "hashes": {"train": "a"}, "asked": {"name": "auto"}}


def test_runs_that_differ_only_by_their_seed_have_equal_settings() -> None:
    other = record(seed=1, ledger="/elsewhere", largest=900, declared=[900, 1])
    assert settings(record()) == settings(other)
    assert settings(record()) != settings(record(clients=20))


def test_what_was_planned_for_the_clients_is_left_out() -> None:
    assert settings(record())["algorithm"] == {"name": "auto"}
