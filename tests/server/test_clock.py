"""The end of a run by its budget of seconds."""

import pytest

from dpfl import Budget
from dpfl.algorithms import fedavg
from tests.server.rounds import coordinator, good


@pytest.mark.parametrize(
    ("lengths", "seconds", "rounds"),
    [
        ([1.0] * 9, 3.5, 3),
        ([1.0, 3.0, 1.0, 1.0], 6.0, 2),
        ([2.5, 1.0], 2.0, 1),
        ([1.0] * 9, 3.0, 2),
    ],
)
def test_seconds_end_a_run_before_a_round_that_would_pass_them(
    monkeypatch: pytest.MonkeyPatch, lengths: list[float], seconds: float, rounds: int
) -> None:
    """Fault: the clock was looked at when a round began, and a run of 1 second took 2 to 3."""
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    run = coordinator(fedavg(), budget=Budget(seconds=seconds))
    for length in lengths:
        request = run.next_request()
        if request is None:
            break
        clock[0] += length
        run.aggregate(good(0, 1))
        run.close_round(request.steps)
    assert (run.state.round, run.stopped_by) == (rounds, "seconds")
    assert run.state.seconds == sum(lengths[:rounds])


def test_a_resumed_run_expects_rounds_as_long_as_they_were_on_average(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 0.0)
    assert (
        coordinator(fedavg(), budget=Budget(seconds=11.0), round=4, seconds=8.0).next_request()
        is not None
    )
    assert (
        coordinator(fedavg(), budget=Budget(seconds=9.0), round=4, seconds=8.0).next_request()
        is None
    )
