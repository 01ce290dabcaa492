"""The models that every system trains are those that were recorded: a renamed class, a moved file
or another engine changes no bit.

Two processors round differently, and noise is keyed by a digest of the model that came, so a model
of one kind of processor says nothing about those of another, not even after one round. The fixture
has hashes for several kinds. `python -m tests.run.test_golden` adds this processor's; do so for a
new kind, with code whose models were compared on a recorded one, or where a change of the draws is
meant. What holds on any processor is pinned by tests/test_codec.py (the bytes that key the noise)
and tests/privacy/mechanisms/test_randomness.py (the draws of a key).
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import dpfl
from dpfl.algorithms import ALGORITHMS, from_name, options_of
from dpfl.data import IID, Federation
from dpfl.run.flat_options import group_flat_options
from tests.conftest import MODEL, small_federation, small_source

GOLDEN = Path(__file__).resolve().parents[1] / "fixtures" / "golden.json"
OPTIONS: dict[str, dict[str, Any]] = {
    "hw-dpfl": {"batch_size": 32},
    "nbafl": {"samples": 250, "clients": 4, "rounds": 4, "exposures": 4, "clip": 6.0},
    "als-dpfl": {"sampling_rate": 0.1, "noise_multiplier": 1.4},
    "dp-ftrl": {"noise_multiplier": 5.0},
}


@dataclass(frozen=True)
class Case:
    """A run to compare: a system with its options, and how it is run."""

    system: str
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    persons: bool = False


def cases() -> dict[str, Case]:
    """Returns every system in each of its variants, and the ways to run one: two workers, secure
    sums, persons.
    """
    found = {}
    for system in ALGORITHMS:
        for variant in ("sound", "published") if "variant" in options_of(system) else (None,):
            options = OPTIONS.get(system, {}) | ({"variant": variant} if variant else {})
            found[f"{system} {variant or ''}".strip()] = Case(system, options)
    ways: dict[str, tuple[dict[str, Any], bool]] = {
        "two workers": ({"workers": 2}, False),
        "secure sums": ({"aggregation": "secure"}, False),
        "persons": ({"unit": "person"}, True),
    }
    for name, (settings, persons) in ways.items():
        options = {"tau": 1, "noise_multiplier": 1.4} if name == "secure sums" else {"tau": 2}
        found[f"fedavg-dp, {name}"] = Case("fedavg-dp", options, settings, persons)
    found["dp-fedavg, two workers"] = Case("dp-fedavg", {}, {"workers": 2})
    found["dp-fedavg, secure sums"] = Case("dp-fedavg", {}, {"aggregation": "secure"})
    return found


@cache
def federation_by_person() -> Federation:
    source = replace(small_source(), persons=torch.arange(1000) // 3)
    return source.split(clients=4, how=IID(), seed=0)


def train(case: Case, out: Path) -> dpfl.Result:
    """Runs two rounds of a case on the embedded images."""
    federation = federation_by_person() if case.persons else small_federation()
    budget = dpfl.Budget(epsilon=8.0, rounds=2)
    groups, _ = group_flat_options({"out": out, **case.settings})
    algorithm = from_name(case.system, **case.options)
    return dpfl.train(MODEL, federation, algorithm, budget, **groups)


@cache
def processor() -> str:
    """Returns a digest of how this processor rounds: products, convolutions and functions of fixed
    numbers.
    """
    generator = torch.Generator().manual_seed(0)
    digest = hashlib.sha256()
    for rows, inputs, outputs in ((250, 784, 16), (32, 784, 16), (16, 250, 784), (64, 105, 31)):
        a, b = (
            torch.randn(rows, inputs, generator=generator),
            torch.randn(inputs, outputs, generator=generator),
        )
        for value in (
            a @ b,
            torch.tanh(a),
            torch.log_softmax(a, 1),
            torch.sigmoid(a),
            (a.double().T @ a.double()),
        ):
            digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


@pytest.mark.parametrize("name", cases())
def test_the_model_is_the_one_that_was_recorded(name: str, tmp_path: Path) -> None:
    recorded = json.loads(GOLDEN.read_text())["processors"]
    if processor() not in recorded:
        pytest.skip(f"no models are recorded for processor {processor()}")
    assert train(cases()[name], tmp_path / "run").model_sha256 == recorded[processor()][name]


def test_every_system_is_recorded_and_workers_change_nothing() -> None:
    for models in json.loads(GOLDEN.read_text())["processors"].values():
        assert models.keys() == cases().keys()
        assert models["dp-fedavg, two workers"] == models["dp-fedavg sound"]


def record() -> None:
    """Writes the models of this code on this processor to the fixture."""
    golden, hashes = json.loads(GOLDEN.read_text()), {}
    with tempfile.TemporaryDirectory() as folder:
        for name, case in cases().items():
            hashes[name] = train(case, Path(folder) / name).model_sha256
            print(name, hashes[name][:12], flush=True)
    golden["processors"][processor()] = hashes
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    record()
