"""A run is resumed as the same experiment on the same data, or refused with a sentence."""

import random
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import dpfl
from dpfl.algorithms import Algorithm, fedavg, fedavg_dp
from dpfl.data import IID, Federation
from dpfl.errors import DpflError
from dpfl.privacy import accountant
from dpfl.run.metrics import RoundRow
from tests.conftest import MODEL, StopsAfter, unequal_federation
from tests.run.small_runs import (
    CROWDED,
    EVENT,
    SOUND,
    Hook,
    Train,
)


def finished(train: Train, federation: Federation, **options: Any) -> dpfl.Result:
    return train(federation, SOUND, **({"rounds": 2, "accountant": "rdp"} | options))


def test_resume_with_other_data_is_refused(train: Train, federation: Federation) -> None:
    finished(train, federation)
    other = dpfl.data.tensors(
        federation.train.x + 0.1,
        federation.train.y,
        federation.test.x,
        federation.test.y,
        name="small",
    )
    with pytest.raises(DpflError, match="data differs"):
        finished(train, other.split(clients=4, how=IID(), seed=0), resume=True)


def test_resume_with_the_same_images_at_other_clients_is_refused(
    train: Train, federation: Federation
) -> None:
    finished(train, federation)
    swapped = replace(
        federation, clients=(federation.clients[1], federation.clients[0], *federation.clients[2:])
    )
    with pytest.raises(DpflError, match="data differs"):
        finished(train, swapped, resume=True)


@pytest.mark.parametrize(
    "options",
    [
        {"seed": 1},
        {"rounds": 3},
        {"epsilon": 50.0},
        {"delta": 1e-6},
        {"accountant": "pld"},
        {"entropy": "system"},
    ],
)
def test_resume_with_other_settings_is_refused(
    train: Train, federation: Federation, options: dict[str, Any]
) -> None:
    finished(train, federation)
    with pytest.raises(DpflError, match="experiment differs"):
        finished(train, federation, resume=True, **options)


def test_a_run_whose_version_recorded_no_sizes_is_resumed(train: Train, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        finished(train, unequal_federation(), progress=StopsAfter(1))
    path = tmp_path / "run" / "experiment.toml"
    record = tomllib.loads(path.read_text())
    assert record["resolved"].pop("declared") == list(unequal_federation().sizes)
    path.write_text(tomli_w.dumps(record))
    assert len(finished(train, unequal_federation(), resume=True).history) == 2
    record["resolved"]["declared"] = [1, 1, 1]
    path.write_text(tomli_w.dumps(record))
    with pytest.raises(DpflError, match="experiment differs"):
        finished(train, unequal_federation(), resume=True)


@pytest.mark.parametrize(
    "other",
    [
        replace(SOUND, samples=SOUND.samples.with_noise(2.0)),
        fedavg_dp(tau=2, sampling_rate=0.1, noise_multiplier=1.0, rate=0.5),
        fedavg_dp(tau=3, sampling_rate=0.1, noise_multiplier=1.0, rate=0.5, optimiser="momentum"),
        fedavg_dp(tau=3, sampling_rate=0.1, noise_multiplier=1.0, rate=0.5, clip=2.0),
        fedavg(),
    ],
)
def test_resume_with_another_algorithm_is_refused(
    train: Train, federation: Federation, other: Algorithm
) -> None:
    finished(train, federation)
    with pytest.raises(DpflError, match="experiment differs"):
        train(
            federation,
            other,
            rounds=2,
            accountant="rdp" if other.unit == "sample" else None,
            resume=True,
        )


@pytest.mark.parametrize("model", [dpfl.models.mlp(hidden=17), dpfl.models.cnn()])
def test_resume_with_another_model_is_refused(
    train: Train, federation: Federation, model: dpfl.models.Model
) -> None:
    finished(train, federation)
    with pytest.raises(DpflError):
        finished(train, federation, resume=True, model=model)


def test_resume_with_another_activation_is_refused(train: Train, federation: Federation) -> None:
    """Another function of the same data under the same release name and noise would be released
    without a debit.
    """
    finished(train, federation)
    with pytest.raises(DpflError, match="experiment differs"):
        finished(
            train, federation, resume=True, model=dpfl.models.mlp(hidden=16, activation="tanh")
        )


def stopped_after_round(train: Train, federation: Federation, round: int, **options: Any) -> None:
    def stop(row: RoundRow) -> None:
        if row.round == round:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finished(train, federation, progress=Hook(stop), **options)


@pytest.mark.parametrize("how", ["another folder", "deleted"])
def test_fault_resume_forgets_spent_budget_when_the_ledgers_are_not_those_of_the_run(
    train: Train, federation: Federation, tmp_path: Path, how: str
) -> None:
    """Either it is refused, or the statement still covers all six steps."""
    ledgers = tmp_path / "ledgers"
    stopped_after_round(train, federation, 1, ledger=ledgers)
    if how == "deleted":
        shutil.rmtree(ledgers)
    try:
        result = finished(
            train, federation, resume=True, **({"ledger": ledgers} if how == "deleted" else {})
        )
    except DpflError:
        return
    assert result.privacy.proven == pytest.approx(accountant("rdp").epsilon({EVENT: 6}, 1e-5))


def test_fault_a_client_level_run_is_resumed_on_a_ledger_that_is_not_its_own(
    train: Train, crowd: Federation, tmp_path: Path
) -> None:
    options = {"rounds": 4, "ledger": tmp_path / "ledgers", "accountant": "rdp"}
    with pytest.raises(KeyboardInterrupt):
        train(crowd, CROWDED, progress=StopsAfter(2), **options)
    shutil.rmtree(tmp_path / "ledgers")
    with pytest.raises(DpflError, match="has lost debits"):
        train(crowd, CROWDED, resume=True, **options)


def test_resume_needs_a_folder_with_a_run(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    with pytest.raises(DpflError, match="no run"):
        finished(train, federation, resume=True)
    with pytest.raises(DpflError, match="name its folder"):
        dpfl.train(
            MODEL, federation, SOUND, dpfl.Budget(rounds=1), execution=dpfl.Execution(resume=True)
        )


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "noise": lambda content: bytes(random.Random(0).randbytes(len(content))),
    "no state": lambda content: content.replace(b"remaining", b"remainder"),
    "another text": lambda content: b"not a checkpoint\n" * 10,
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_checkpoint_is_refused_with_a_sentence(
    train: Train, federation: Federation, how: str
) -> None:
    stopped_after_round(train, federation, 1, out="run")
    path = finished(train, federation, resume=True).folder / "checkpoint.safetensors"
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    with pytest.raises(DpflError, match=r"checkpoint .* is damaged"):
        finished(train, federation, resume=True)


def test_a_flipped_bit_in_a_checkpoint_is_noticed(train: Train, federation: Federation) -> None:
    path = finished(train, federation).folder / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    content[-100] ^= 0x40
    path.write_bytes(bytes(content))
    with pytest.raises(DpflError, match="damaged"):
        finished(train, federation, resume=True)
