"""Small real files in the formats of the public data sets."""

import gzip
import struct
from pathlib import Path

import numpy as np


def idx_bytes(array: np.ndarray) -> bytes:
    return (
        struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        + array.astype(np.uint8).tobytes()
    )


def write_idx(path: Path, array: np.ndarray) -> Path:
    content = idx_bytes(array)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def images(count: int, seed: int = 0, side: int = 28) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side), dtype=np.uint8)


def write_mnist(
    folder: Path, suffix: str = ".gz", train: str = "train", test: str = "t10k", first: int = 0
) -> None:
    for part, count in ((train, 40), (test, 10)):
        write_idx(folder / f"{part}-images-idx3-ubyte{suffix}", images(count))
        write_idx(folder / f"{part}-labels-idx1-ubyte{suffix}", np.arange(count) % 10 + first)


def write_cifar10(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(
        [*(f"data_batch_{batch}.bin" for batch in range(1, 6)), "test_batch.bin"]
    ):
        records = np.random.default_rng(number).integers(0, 256, (4, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        (folder / name).write_bytes(records.tobytes())
