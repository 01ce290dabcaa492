import pytest
import torch

from dpfl.errors import DpflError
from dpfl.server.aggregation.update import ServerUpdate


def test_without_momentum_the_server_moves_by_its_rate_along_the_update() -> None:
    vector, velocity = ServerUpdate(0.5).step(
        torch.ones(3), torch.full((3,), 9.0), torch.tensor([2.0, 0.0, -4.0])
    )
    assert vector.tolist() == [2.0, 1.0, -1.0]
    assert velocity.tolist() == [2.0, 0.0, -4.0]


def test_momentum_adds_up_as_v_becomes_beta_v_plus_update() -> None:
    server, vector, velocity = ServerUpdate(2.0, 0.5), torch.zeros(1), torch.zeros(1)
    seen = []
    for update in (1.0, 1.0, -3.0):
        vector, velocity = server.step(vector, velocity, torch.tensor([update]))
        seen.append((float(vector), float(velocity)))
    assert seen == [(2.0, 1.0), (5.0, 1.5), (0.5, -2.25)]


def test_a_step_leaves_the_old_model_as_it_was() -> None:
    old, velocity = torch.zeros(2), torch.zeros(2)
    ServerUpdate(1.0, 0.9).step(old, velocity, torch.ones(2))
    assert old.tolist() == velocity.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("rate", "momentum"), [(0.0, 0.0), (-1.0, 0.0), (1.0, 1.0), (1.0, -0.1), (float("nan"), 0.0)]
)
def test_a_rate_of_nothing_or_a_momentum_of_one_is_refused(rate: float, momentum: float) -> None:
    with pytest.raises(DpflError, match="server"):
        ServerUpdate(rate, momentum)


@pytest.mark.parametrize("power", [1.0, 3.0])
def test_averaging_weighs_late_iterates_more_and_needs_no_number_of_rounds(power):
    """x_t weighs like t^power, and all weights add up to 1."""
    update, rounds = ServerUpdate(averaging=power), 200
    average = None
    for place in range(rounds):
        iterate = torch.zeros(rounds)
        iterate[place] = 1.0
        average = update.next_average(average, iterate, place + 1)
    assert average is not None
    assert float(average.sum()) == pytest.approx(1.0, abs=1e-4)
    assert float(average[199] / average[99]) == pytest.approx(2.0**power, rel=0.05)


def test_without_averaging_there_is_no_average_and_a_bad_power_is_refused():
    assert ServerUpdate().next_average(None, torch.ones(2), 1) is None
    with pytest.raises(DpflError, match="averaging"):
        ServerUpdate(averaging=-1.0)
