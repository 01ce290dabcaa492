from pathlib import Path

import numpy as np
import pytest

from dpfl.data.sources.medmnist_files import is_medmnist, read_medmnist
from dpfl.errors import DpflError


def write(
    path: Path, shape: tuple[int, ...] = (28, 28), labels: int = 1, leave_out: str = ""
) -> Path:
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 20), ("val", 4), ("test", 6)):
        arrays[f"{part}_images"] = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
        arrays[f"{part}_labels"] = rng.integers(0, 2, (count, labels), dtype=np.uint8)
    arrays.pop(leave_out, None)
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((28, 28), (1, 28, 28)), ((28, 28, 3), (3, 28, 28)), ((28, 28, 28), (1, 28, 28, 28))],
)
def test_images_have_their_channels_first(
    tmp_path: Path, shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    path = write(tmp_path / "pneumoniamnist.npz", shape)
    assert is_medmnist(path)
    x, y, x_test, y_test = read_medmnist(path)
    assert (x.shape, y.shape, x_test.shape, y_test.shape) == (
        (20, *expected),
        (20,),
        (6, *expected),
        (6,),
    )
    with np.load(path) as held:
        last = held["train_images"][3]
        assert np.array_equal(
            x[3], np.moveaxis(last, -1, 0) if len(shape) == 3 and shape[-1] == 3 else last[None]
        )
        assert np.array_equal(y, held["train_labels"][:, 0])


def test_several_labels_stay_several(tmp_path: Path) -> None:
    assert read_medmnist(write(tmp_path / "chestmnist.npz", labels=14))[1].shape == (20, 14)


def test_other_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.zeros(3), y=np.zeros(3))
    assert not is_medmnist(tmp_path / "own.npz")
    assert not is_medmnist(tmp_path / "none.npz")
    with pytest.raises(DpflError, match="has no test_labels"):
        read_medmnist(write(tmp_path / "part.npz", leave_out="test_labels"))
    with pytest.raises(DpflError, match="has images of shape"):
        read_medmnist(write(tmp_path / "flat.npz", shape=(784,)))
