"""The models that every system trains are those that were recorded: a renamed class, a moved file
or another engine changes no bit.

Two processors round differently, so a model is compared by its hash where the recorded hashes came
from a processor like this one, and everywhere by some of its weights. Another key of any random
draw would change these weights altogether. `python -m tests.run.test_golden` records the models
anew; do so only where a change of the draws is meant.
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
from safetensors.torch import load_file

import dpfl
from dpfl.algorithms import ALGORITHMS, from_name, options_of
from dpfl.data import IID, Federation
from tests.conftest import MODEL, small_federation, small_source

GOLDEN = Path(__file__).resolve().parents[1] / "fixtures" / "golden.json"
OPTIONS: dict[str, dict[str, Any]] = {
    "hw-dpfl": {"batch_size": 32},
    "nbafl": {"samples": 250, "clients": 4, "rounds": 4, "exposures": 4, "clip": 6.0},
    "als-dpfl": {"sampling_rate": 0.1, "noise_multiplier": 1.4},
    "dp-ftrl": {"noise_multiplier": 5.0},
}
SHOWN = 8
"""How many weights of each model are recorded."""


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
    return dpfl.train(
        MODEL, federation, from_name(case.system, **case.options), budget, out=out, **case.settings
    )


def weights(result: dpfl.Result) -> list[float]:
    tensors = load_file(result.folder / "model.safetensors")
    vector = torch.cat([tensors[name].reshape(-1).double() for name in sorted(tensors)])
    return [float(value) for value in vector[:: len(vector) // SHOWN][:SHOWN]]


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
    golden = json.loads(GOLDEN.read_text())
    result = train(cases()[name], tmp_path / "run")
    recorded = golden["models"][name]
    assert weights(result) == pytest.approx(recorded["weights"], rel=1e-2, abs=1e-4)
    if golden["processor"] == processor():
        assert result.model_sha256 == recorded["sha256"]


def test_every_system_is_recorded_and_workers_change_nothing() -> None:
    models = json.loads(GOLDEN.read_text())["models"]
    assert models.keys() == cases().keys()
    assert models["dp-fedavg, two workers"] == models["dp-fedavg sound"]


def record() -> None:
    """Writes the models of this code to the fixture."""
    models = {}
    for name, case in cases().items():
        with tempfile.TemporaryDirectory() as folder:
            result = train(case, Path(folder) / "run")
            models[name] = {"sha256": result.model_sha256, "weights": weights(result)}
            print(name, result.model_sha256[:12], flush=True)
    GOLDEN.write_text(json.dumps({"processor": processor(), "models": models}, indent=1) + "\n")


if __name__ == "__main__":
    record()
