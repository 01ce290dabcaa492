"""Secure sums as a server and its colluders see them."""

import numpy as np
import pytest

from dpfl.audit.sums import clients_for, honest, honest_sum, room, server_view
from dpfl.privacy.mechanisms.noises.integer_sum import IntegerSum
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares

SHARED = NoiseShares(8, 3)


@pytest.mark.parametrize(
    ("shared", "least", "clients"),
    [
        (None, 3, 3),
        (NoiseShares(8, 3), 1, 10),
        (NoiseShares(8, 7), 1, 8),  # two lists of eight survivors need 9 clients
        (NoiseShares(8, 3), 40, 40),
        (NoiseShares(300, 1), 1, 100),
    ],
)
def test_a_sum_has_room_for_lost_clients_and_for_one_list_of_survivors(
    shared: NoiseShares | None, least: int, clients: int
) -> None:
    assert clients_for(shared, least) == clients


def test_the_server_sees_the_noise_of_all_honest_clients() -> None:
    assert honest(SHARED) == 5
    whole = IntegerSum(2.0, 100.0, clients_for(SHARED))
    vector = np.full(4000, 3.0)
    total = server_view(whole, SHARED, vector, np.random.default_rng(0))
    assert total.mean() == pytest.approx(3.0, abs=0.3)
    assert total.std() == pytest.approx(2.0 * 5**0.5, rel=0.05)


def test_colluders_subtract_what_they_sent() -> None:
    whole, rng = IntegerSum(1e-3, 10.0, 4), np.random.default_rng(0)
    arrived = {client: whole.numbers(np.full(3, float(client)), rng) for client in (0, 1, 2, 4)}
    total = honest_sum(whole, NoiseShares(3, 1), arrived)
    assert total == pytest.approx(np.full(3, 0.0 + 1 + 2), abs=0.1)
    assert room(2.5, SHARED).clients == clients_for(SHARED)
