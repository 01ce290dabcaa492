"""Makes the embedded sample of MNIST: python scripts/make_sample.py
FOLDER_WITH_THE_FOUR_IDX_FILES.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from dpfl.data.sources.files import read_idx_pair
from dpfl.data.sources.folders import find
from dpfl.data.stratify import stratify

SEED = 0
SIZES = {"train": 8_000, "t10k": 2_000}
TARGET = Path(__file__).parents[1] / "src" / "dpfl" / "data" / "mnist_sample.npz"


def draw(folder: Path, part: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draws a stratified sample of one part."""
    images = find("mnist", f"{part}-images-idx3-ubyte", folder)
    labels = find("mnist", f"{part}-labels-idx1-ubyte", folder)
    x, y = read_idx_pair(images, labels)
    rows = stratify(y, SIZES[part], rng)
    return x[rows], y[rows]


def main(folder: Path) -> None:
    """Writes the sample."""
    rng = np.random.default_rng(SEED)
    x, y = draw(folder, "train", rng)
    x_test, y_test = draw(folder, "t10k", rng)
    np.savez_compressed(TARGET, x=x, y=y, x_test=x_test, y_test=y_test)
    print(f"{TARGET.name}: {len(x)} + {len(x_test)} images, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
