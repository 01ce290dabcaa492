"""The folders of data files: one folder for all data sets, and a folder in it for each."""

from __future__ import annotations

import os
from pathlib import Path

import pooch

from dpfl.errors import DpflError

DATA_SETS = ("mnist", "fashion-mnist", "emnist", "cifar10")


def data_folder(data_dir: str | Path | None = None) -> Path:
    """Finds the folder of all data sets.

    Args:
        data_dir: The folder, if it is given.

    Returns:
        That folder, or else that of the variable DPFL_DATA, or else one in the user's cache.
    """
    folder = data_dir or os.environ.get("DPFL_DATA")
    return Path(folder).expanduser() if folder else Path(pooch.os_cache("dpfl"))


def find(data_set: str, file: str, data_dir: str | Path | None = None, within: str = "") -> Path:
    """Finds a file of a data set, gzipped or not.

    Args:
        data_set: The name of the data set.
        file: The name of the file.
        data_dir: The folder of all data sets.
        within: A folder in that of the data set, where its archive puts its files.

    Returns:
        The file, in the data set's own folder or directly in the data folder.

    Raises:
        DpflError: There is no such file.
    """
    base = data_folder(data_dir)
    for folder in _places(data_set, base, within):
        for path in (folder / file, folder / f"{file}.gz"):
            if path.is_file():
                return path
    raise DpflError(
        f"The file {file} of {data_set} is not in {base / data_set}: run `dpfl data get "
        f"{data_set}`, or set DPFL_DATA "
        f"to the folder that holds {data_set}/, or use the embedded mnist-sample."
    )


def _places(data_set: str, base: Path, within: str) -> list[Path]:
    own = [base / data_set, base / data_set / within]
    # MNIST and Fashion-MNIST give their files the same names: never read one's folder as the other.
    belongs_to_another = base.name.lower() in DATA_SETS and base.name.lower() != data_set
    return own if belongs_to_another else [*own, base, base / within]
