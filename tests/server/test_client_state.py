"""What the server keeps for each client from round to round."""

import torch
from torch import nn

from dpfl.models import FlatModel
from dpfl.server.client_state import ControlVariates, LastModels
from dpfl.server.steps.policy import RoundObservation, StepFacts

LAYOUT = FlatModel(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))).layout
FACTS = StepFacts(None, 0.5, 0.0, 0.0, LAYOUT.trainable, [], [])


def seen(updates: dict[int, torch.Tensor]) -> RoundObservation:
    return RoundObservation(FACTS, 0, 4, torch.full((LAYOUT.size,), 10.0), updates)


def test_a_client_is_sent_the_model_of_its_own_last_reply_and_none_before() -> None:
    kept = LastModels().initial(3, LAYOUT)
    assert LastModels().for_clients(kept, (0, 1, 2)) == {}
    first = LastModels().after_round(
        kept, seen({0: torch.ones(LAYOUT.size), 2: 2 * torch.ones(LAYOUT.size)})
    )
    assert LastModels().for_clients(kept, (0, 1, 2)) == {}, "a new matrix, the old as it was"
    second = LastModels().after_round(first, seen({2: 3 * torch.ones(LAYOUT.size)}))
    assert {
        client: set(row.tolist())
        for client, row in LastModels().for_clients(first, (0, 1, 2)).items()
    } == {0: {11.0}, 2: {12.0}}
    assert {
        client: set(row.tolist())
        for client, row in LastModels().for_clients(second, (1, 2)).items()
    } == {2: {13.0}}
    assert second.shape == (3, LAYOUT.size), "with the running statistics"


def test_controls_are_of_trainable_parameters_and_taken_from_steps_and_rate() -> None:
    kept = ControlVariates().initial(2, LAYOUT)
    assert kept.shape == (2, LAYOUT.trainable)
    after = ControlVariates().after_round(kept, seen({1: -torch.ones(LAYOUT.size)}))
    assert set(after[0].tolist()) == {0.0}
    assert set(after[1].tolist()) == {1 / (4 * 0.5)}
    assert set(ControlVariates().for_clients(after, (1,))[1].tolist()) == {0.25 - 0.5}
