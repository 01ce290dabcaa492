"""What would fail in the first round is refused before anything is written."""

import pytest

from dpfl.algorithms import fedavg
from dpfl.data import Federation
from dpfl.errors import DpflError
from tests.run.small_runs import (
    Train,
)


def test_a_run_without_noise_needs_an_end_of_another_kind(
    train: Train, federation: Federation
) -> None:
    with pytest.raises(DpflError, match="rounds, bytes or seconds"):
        train(federation, fedavg(), epsilon=1.0)
