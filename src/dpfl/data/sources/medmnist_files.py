"""The .npz files of MedMNIST (Yang et al. 2023): images and labels to train, validate and test
on.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from dpfl.errors import DpflError

NAMES = ("train_images", "train_labels", "test_images", "test_labels")


def is_medmnist(path: Path) -> bool:
    """Says whether a file is one of MedMNIST's.

    Args:
        path: The file.

    Returns:
        Whether it has an array train_images.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return "train_images" in file.files
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return False


def read_medmnist(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Reads a file of MedMNIST. The images to validate on are left out.

    Args:
        path: The file.

    Returns:
        Images as bytes (n, channels, ...) and labels, to train and to test on. Labels are (n,), or
        (n, labels) where there are several.

    Raises:
        DpflError: The file is not MedMNIST's.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            if missing := next((name for name in NAMES if name not in file.files), None):
                raise DpflError(
                    f"{path} has no {missing}: a file of MedMNIST holds {', '.join(NAMES)}."
                )
            x, y, x_test, y_test = (file[name] for name in NAMES)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DpflError(
            f"{path} is no readable .npz file of plain arrays ({error}): get it again."
        ) from None
    return (
        _channels_first(path, x),
        _labels(path, y),
        _channels_first(path, x_test),
        _labels(path, y_test),
    )


def _channels_first(path: Path, images: np.ndarray) -> np.ndarray:
    """Gives grey images a channel, and moves colours, which lie last, to the front."""
    if images.ndim not in (3, 4):
        raise DpflError(
            f"{path} has images of shape {images.shape}: give (n, height, width), with colours or "
            "depth last."
        )
    colours = images.ndim == 4 and images.shape[-1] == 3
    return np.ascontiguousarray(np.moveaxis(images, -1, 1) if colours else images[:, None])


def _labels(path: Path, labels: np.ndarray) -> np.ndarray:
    if labels.ndim != 2:
        raise DpflError(f"{path} has labels of shape {labels.shape}: MedMNIST's are (n, labels).")
    return labels[:, 0] if labels.shape[1] == 1 else labels
