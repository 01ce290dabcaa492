"""The data of the benchmarks: public sets where DPFL_DATA names their folder, else the images that
ship with the package.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

import torch
import torch.nn.functional as F

import dpfl
from dpfl.data.sources.folders import find
from dpfl.errors import DpflError


@lru_cache(maxsize=1)
def mnist() -> dpfl.data.DataSource:
    """Returns MNIST, or the embedded digits."""
    try:
        return dpfl.data.mnist()
    except DpflError:
        return dpfl.data.sample()


@lru_cache(maxsize=1)
def cifar10() -> dpfl.data.DataSource:
    """Returns CIFAR-10, or 50,000 of the embedded digits as 32x32 images in three channels."""
    folder = cifar10_folder()
    if folder:
        return dpfl.data.cifar10(folder)
    source = dpfl.data.sample()
    train, test = (
        F.pad(part.x, (2, 2, 2, 2)).repeat(1, 3, 1, 1) for part in (source.train, source.test)
    )
    rows = torch.arange(50_000) % len(train)
    return dpfl.data.tensors(
        train[rows], source.train.y[rows], test, source.test.y, name="digits as 32x32x3"
    )


def cifar10_folder() -> Path | None:
    """Returns the folder of the standard binary files, or None.

    It is in DPFL_DATA, or a temporary folder with files unpacked from there.
    """
    data = os.environ.get("DPFL_DATA")
    cache = Path(tempfile.gettempdir()) / "dpfl-bench-cifar10"
    for folder in (Path(data or ".").expanduser(), cache):
        if _complete(folder):
            return folder
    unpack = Path(data).expanduser() / "unpack-cifar10" if data else None
    if unpack is None or not unpack.exists():
        return None
    cache.mkdir(exist_ok=True)
    subprocess.run([sys.executable, str(unpack), str(cache)], check=True)
    return cache if _complete(cache) else None


def _complete(folder: Path) -> bool:
    try:
        return find("cifar10", "test_batch.bin", folder, within="cifar-10-batches-bin").is_file()
    except DpflError:
        return False


def many_digits(images: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns MNIST repeated to this many images, in one fixed random order."""
    train = mnist().train
    rows = torch.randperm(images, generator=torch.Generator().manual_seed(0)) % len(train)
    return train.x[rows], train.y[rows]


def names() -> dict[str, str]:
    """Returns the names of the data sets, for results.json."""
    return {"digits": mnist().train.name, "colour images": cifar10().train.name}
