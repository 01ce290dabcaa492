"""DP-FTRL: one release for all rounds, paid once, and again only where it is another."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import dp_accounting as dp
import pytest
from safetensors import safe_open

from dpfl.algorithms import dp_ftrl
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.privacy import Ledger
from tests.algorithms.checks import Train, assert_same_on_workers_and_resumed
from tests.conftest import StopsAfter, ledger_of


def test_it_learns_and_is_the_same_on_workers_and_resumed(train: Train, crowd: Federation) -> None:
    algorithm = dp_ftrl(cohort=5, tau=8, noise_multiplier=0.1)
    assert_same_on_workers_and_resumed(train, crowd, algorithm)


def test_a_run_with_noise_that_is_taken_back_pays_once_and_forgets_the_noise_in_the_end(
    train: Train, crowd: Federation
) -> None:
    result = train(crowd, dp_ftrl(cohort=5, tau=2), epsilon=6.0, rounds=6)
    ((event, count),) = ledger_of(result, "federation").items()
    assert isinstance(event, dp.GaussianDpEvent)
    assert count == 1
    assert 5.99 < result.privacy.proven <= 6.0
    with safe_open(result.folder / "checkpoint.safetensors", "pt") as file:
        assert not [name for name in file.keys() if "noise" in name]  # noqa: SIM118


def test_noise_that_is_taken_back_without_room_in_the_ledger_is_refused(
    train: Train, crowd: Federation
) -> None:
    with pytest.raises(DpflError, match="no budget left"):
        train(crowd, dp_ftrl(cohort=5, noise_multiplier=0.5), epsilon=1.0, rounds=4)


def spent_by(folder: Path) -> int:
    with closing(Ledger.read(folder / "federation.sqlite")) as ledger:
        return sum(ledger.spending().values())


@pytest.mark.parametrize(("entropy", "passes"), [("system", 3), ("keyed", 1)])
def test_rounds_of_one_release_that_are_made_again_are_paid_for_unless_they_are_the_same(
    train: Train, federation: Federation, tmp_path: Path, entropy: str, passes: int
) -> None:
    """Fault: an old checkpoint gave a second and a third model, with noise of their own, for the
    price of the first.
    """
    options: dict[str, Any] = {"rounds": 3, "entropy": entropy, "noise": "plain"}
    with pytest.raises(KeyboardInterrupt):
        train(federation, dp_ftrl(noise_multiplier=2.0), progress=StopsAfter(1), **options)
    old = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    models = set()
    for _ in range(3):
        (tmp_path / "run" / "checkpoint.safetensors").write_bytes(old)
        models.add(
            train(federation, dp_ftrl(noise_multiplier=2.0), resume=True, **options).model_sha256
        )
    assert len(models) == spent_by(tmp_path / "run" / "ledger") == passes


def test_a_release_of_all_rounds_that_was_paid_for_is_missed_where_its_ledger_is_lost(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    """Fault: dp-fedavg's 8.39 and dp-ftrl's 1.99 became 1.99, since a run that pays once counted as
    one that paid nothing.
    """
    options: dict[str, Any] = {"rounds": 2, "ledger": tmp_path / "ledgers"}
    with pytest.raises(KeyboardInterrupt):
        train(federation, dp_ftrl(noise_multiplier=2.0), progress=StopsAfter(1), **options)
    for path in (tmp_path / "ledgers").glob("federation*"):
        path.unlink()
    with pytest.raises(DpflError, match="lost debits of this run"):
        train(federation, dp_ftrl(noise_multiplier=2.0), resume=True, **options)
