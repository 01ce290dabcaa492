"""Real rounds whose messages are kept."""

from pathlib import Path

import pytest
import torch

from dpfl.algorithms import dp_fedavg, fedavg_dp
from dpfl.audit import test_bed as observed_rounds
from dpfl.audit.test_bed import ROWS_OF_A_PERSON, linear, play
from dpfl.privacy import Keyed

ROWS = torch.arange(4)


def small_bed(clients: int) -> observed_rounds.TestBed:
    x, y = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), ROWS % 2
    return observed_rounds.TestBed(linear(3), x, y, 2, (ROWS,) * clients, (4,) * clients)


def test_every_round_is_observed_with_the_state_after_it() -> None:
    rounds = play(fedavg_dp(noise_multiplier=1.0, tau=2), small_bed(3), Keyed(0), rounds=2)
    assert [observed.state.round for observed in rounds] == [1, 2]
    assert [len(observed.replies[-1]) for observed in rounds] == [3, 3]
    assert all(task.steps == 2 for observed in rounds for task in observed.request.tasks)
    assert not torch.equal(rounds[0].state.vector, rounds[1].state.vector)


def test_missing_replies_are_those_of_the_first_clients() -> None:
    bed = small_bed(4)
    (whole,), (fewer,) = (
        play(dp_fedavg(noise_multiplier=1e-6), bed, Keyed(0), 1, missing=missing)
        for missing in (0, 2)
    )
    assert len(fewer.replies[-1]) == 4, "what was sent is observed all the same"
    start = bed.flat().read()
    moved = [float((observed.state.vector - start).norm()) for observed in (whole, fewer)]
    assert moved[1] == pytest.approx(moved[0] / 2, rel=1e-3)


def test_clients_pay_into_ledgers_where_there_is_a_folder(tmp_path: Path) -> None:
    play(fedavg_dp(noise_multiplier=1.0, tau=1), small_bed(2), Keyed(0), 1, tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.sqlite")) == [
        "client-00000.sqlite",
        "client-00001.sqlite",
    ]


def test_a_person_has_every_row_several_times() -> None:
    persons = small_bed(1).protecting(fedavg_dp(noise_multiplier=1.0).for_unit("person"))
    data = persons.context(Keyed(0)).data
    assert len(data.x) == 4 * ROWS_OF_A_PERSON
    assert data.unit_ids is not None
    assert data.unit_ids.bincount().tolist() == [ROWS_OF_A_PERSON] * 4
