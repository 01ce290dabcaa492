"""Every `>>>` example of a docstring is true as it is printed."""

from __future__ import annotations

import doctest
import importlib
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import dpfl
from dpfl import algorithms, privacy
from dpfl.client.dataset import UnitGroups
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.models import FlatModel
from dpfl.planning.plan import ClientWorkload
from dpfl.privacy.accounting.events import ADD_REMOVE, gaussian

SOURCE = Path(dpfl.__file__).parent
MODULES = [path for path in sorted(SOURCE.rglob("*.py")) if "    >>> " in path.read_text()]
NAMES: dict[str, Any] = {
    **{name: getattr(privacy, name) for name in privacy.__all__},
    "ADD_REMOVE": ADD_REMOVE,
    "ClientWorkload": ClientWorkload,
    "FlatModel": FlatModel,
    "LocalTraining": LocalTraining,
    "SGD": SGD,
    "UnitGroups": UnitGroups,
    "closing": closing,
    "dataclass": dataclass,
    "dp_fedavg": algorithms.dp_fedavg,
    "dpfl": dpfl,
    "gaussian": gaussian,
    "replace": replace,
    "torch": torch,
}
"""What an example may use beside the names of its own module."""


def module_name(path: Path) -> str:
    parts = ("dpfl", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


@pytest.mark.filterwarnings("ignore:.*the old name goes in version 0.3:DeprecationWarning")
@pytest.mark.parametrize("name", [module_name(path) for path in MODULES])
def test_the_examples_of_a_module_are_true(name: str, tmp_path: Path) -> None:
    module = importlib.import_module(name)
    places = {"folder": tmp_path / "ledgers", "path": tmp_path / "a.sqlite"}
    samples = {"x": torch.randn(5, 3), "y": torch.tensor([0, 1, 1, 0, 1])}
    names = NAMES | places | samples | vars(module)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testmod(module, globs=names, optionflags=flags)
    assert result.attempted
    assert not result.failed, "the captured output shows the example"


def test_most_central_modules_have_an_example() -> None:
    names = {module_name(path) for path in MODULES}
    central = ("client.dataset", "client.task", "codec", "privacy.ledger.ledger", "server.rules")
    assert {f"dpfl.{name}" for name in central} <= names
