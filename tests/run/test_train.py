"""Whole runs: repeatable, inside every budget, and the same whether they were stopped or not."""

import json
import math
from pathlib import Path

import pytest
from torch import Tensor, nn

import dpfl
from dpfl.algorithms import Algorithm, dp_fedavg, fedavg
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.privacy import Limit, accountant
from dpfl.run.metrics import RoundRow
from dpfl.run.train import diverging
from tests.conftest import Ticking
from tests.run.small_runs import (
    CROWDED,
    EVENT,
    SOUND,
    Train,
    by_rdp,
    counts,
    spent,
)


def test_one_seed_gives_one_model_on_one_worker_and_on_two(
    train: Train, federation: Federation
) -> None:
    one = train(federation, SOUND, rounds=3, out="one", accountant="rdp")
    two = train(federation, SOUND, rounds=3, out="two", workers=2, accountant="rdp")
    assert one.model_sha256 == two.model_sha256
    assert one.privacy.proven == two.privacy.proven


@pytest.mark.parametrize("algorithm", [fedavg(tau=2, cohort=2), SOUND, CROWDED])
def test_the_seed_decides_the_model(
    train: Train, federation: Federation, crowd: Federation, algorithm: Algorithm
) -> None:
    data = crowd if algorithm.unit == "client" else federation
    first, again, other = (
        train(
            data, algorithm, rounds=3, out=f"run {number}", seed=seed, **by_rdp(algorithm)
        ).model_sha256
        for number, seed in enumerate((0, 0, 1))
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("algorithm", [SOUND, CROWDED])
def test_system_entropy_gives_another_model_every_time(
    train: Train, federation: Federation, crowd: Federation, algorithm: Algorithm
) -> None:
    data = crowd if algorithm.unit == "client" else federation
    first = train(data, algorithm, rounds=2, out="a", entropy="system", accountant="rdp")
    assert (
        train(data, algorithm, rounds=2, out="b", entropy="system", accountant="rdp").model_sha256
        != first.model_sha256
    )
    assert not any("seed" in assumption for assumption in first.privacy.assumptions)


@pytest.mark.parametrize(
    ("losses", "warned"),
    [
        ([10.2, 15.0, 19.4], True),
        ([2.3, 2.2, math.nan], True),
        ([5.0, 5.1, 5.2], False),
        ([2.3, 0.4], False),
        ([19.0], True),
    ],
)
def test_a_run_whose_test_loss_grows_beyond_guessing_says_so(
    losses: list[float], warned: bool
) -> None:
    rows = [
        RoundRow(round, 1, round, 4, 0.1, loss, None, None, 0, 0.0)
        for round, loss in enumerate(losses, 1)
    ]
    assert bool(diverging(rows, 10)) == warned


def test_auto_that_diverges_says_so_in_its_result(train: Train, federation: Federation) -> None:
    wild = dpfl.algorithms.auto(noise_multiplier=1.0, rate=3000.0, mean_noise=None)
    found = train(federation, wild, rounds=4, evaluate_every=1).to_dict()
    assert any("diverges" in warning for warning in found["warnings"])
    assert not found["privacy"]["warnings"]


def test_an_entropy_that_does_not_exist_is_refused(train: Train, federation: Federation) -> None:
    with pytest.raises(DpflError, match=r"'keyed'.*'system'"):
        train(federation, SOUND, rounds=1, entropy="dice")


def test_epsilon_with_a_given_noise_stops_at_the_last_affordable_step(
    train: Train, federation: Federation
) -> None:
    """tau = 3, and the last round is cut to what is left."""
    most = Limit(2.5, 1e-5).remaining({}, EVENT)
    epsilon = accountant("pld").epsilon({EVENT: most - most % 3 - 1}, 1e-5) * (1 + 1e-9)
    result = train(federation, SOUND, epsilon=epsilon)
    count = most - most % 3 - 1
    assert count % 3 == 2
    assert result.stopped_by == "epsilon"
    assert result.iterations == count
    assert [row.steps for row in result.history][-2:] == [3, 2]
    assert counts(result.folder / "ledger") == [count] * 4
    assert result.privacy.proven <= epsilon < accountant("pld").epsilon({EVENT: count + 1}, 1e-5)


def test_rounds_end_a_run(train: Train, federation: Federation) -> None:
    result = train(federation, SOUND, rounds=4, epsilon=50.0)
    assert (result.rounds, result.iterations, result.stopped_by) == (4, 12, "rounds")
    assert counts(result.folder / "ledger") == [12] * 4


def test_bytes_end_a_run_before_they_are_exceeded(train: Train, federation: Federation) -> None:
    numbers = 784 * 16 + 16 + 16 * 10 + 10
    one = 2 * 4 * numbers * 4
    result = train(federation, fedavg(tau=1), bytes=3 * one + one // 2)
    assert (result.rounds, result.stopped_by) == (3, "bytes")
    assert result.history[-1].bytes == 3 * one


def test_seconds_end_a_run(
    train: Train, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpfl.server.clock.time", Ticking())
    result = train(federation, fedavg(tau=1), seconds=20.0)
    assert result.stopped_by == "seconds"
    assert 1 < result.rounds < 20


def test_bytes_or_seconds_alone_may_end_a_private_run_and_its_epsilon_is_shown_as_it_goes(
    train: Train, federation: Federation
) -> None:
    """The figure shown is an upper bound; without epsilon or rounds to aim at it must still be of
    any use.
    """
    numbers = 784 * 16 + 16 + 16 * 10 + 10
    result = train(federation, SOUND, bytes=3 * 2 * 4 * numbers * 4, accountant="rdp")
    shown = [row.epsilon for row in result.history]
    assert result.stopped_by == "bytes"
    assert shown[0] < 10 * result.privacy.proven


def test_a_run_without_noise_has_no_ledger_and_no_epsilon(
    train: Train, federation: Federation
) -> None:
    result = train(federation, fedavg(tau=1), rounds=2)
    assert not list((result.folder / "ledger").iterdir())
    assert result.privacy.proven == math.inf
    assert [row.epsilon for row in result.history] == [None, None]
    assert json.loads((result.folder / "statement.json").read_text())["proven"] == "unbounded"


def test_the_federation_s_ledger_counts_every_round(train: Train, crowd: Federation) -> None:
    result = train(crowd, CROWDED, rounds=5)
    event = CROWDED.clients.event(20)
    assert spent(result.folder / "ledger", "federation") == {event: 5}
    assert result.privacy.proven == pytest.approx(accountant("pld").epsilon({event: 5}, 1e-5))


class FailsOnImages(nn.Module):
    """Not on zeros, nor on random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(784, 10)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(1)
        background = (rows == rows.mode(1).values[:, None]).sum(1)
        if ((background > 300) & (background < 784)).any():
            raise ValueError("an image of a digit")
        return self.head(rows)


def test_a_first_round_that_fails_everywhere_names_its_cause_once_and_keeps_the_words_in_the_log(
    train: Train, federation: Federation, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DpflError) as refused:
        train(federation, SOUND, rounds=1, model=FailsOnImages())
    assert (
        str(refused.value)
        == "No reply of round 1 can be used: it failed (ValueError), its own log says why."
    )
    assert [record.getMessage() for record in caplog.records if record.name == "dpfl"] == [
        "Client 0 failed in round 1: ValueError: an image of a digit"
    ]


def test_mixed_kinds_of_sampling_on_one_ledger_are_refused_before_training(
    train: Train, crowd: Federation, tmp_path: Path
) -> None:
    """They are proven for different neighbours, so no single epsilon covers both."""
    train(crowd, CROWDED, rounds=1, out="poisson", ledger=tmp_path / "ledgers")
    before = counts(tmp_path / "ledgers")
    with pytest.raises(DpflError, match="neighbours"):
        train(
            crowd,
            dp_fedavg(cohort=8, sampling="fixed-size", noise_multiplier=1.0),
            rounds=1,
            ledger=tmp_path / "ledgers",
        )
    assert counts(tmp_path / "ledgers") == before
