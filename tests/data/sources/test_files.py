import gzip

import numpy as np
import pytest

from dpfl.data.sources.files import read_cifar10, read_idx, read_idx_pair, read_npz
from dpfl.errors import DpflError
from tests.data.writers import idx_bytes, images, write_cifar10, write_idx


@pytest.mark.parametrize("name", ["images", "images.gz"])
def test_idx_round_trip(tmp_path, name):
    array = images(7)
    assert np.array_equal(read_idx(write_idx(tmp_path / name, array), 3), array)


def damaged():
    whole = idx_bytes(images(3))
    return {
        "empty": b"",
        "header": whole[:9],
        "truncated": whole[:-1],
        "too-long": whole + b"\0",
        "wrong-magic": b"\x01" + whole[1:],
        "wrong-type": whole[:2] + b"\x0d" + whole[3:],
        "labels": idx_bytes(np.arange(10)),
        "half.gz": gzip.compress(whole)[:-20],
        "noise.gz": b"\x1f\x8b" + bytes(range(100)),
        "crc.gz": gzip.compress(whole)[:-8] + b"\0" * 8,
        "huge": whole[:4] + b"\xff" * 12 + whole[16:],
    }


@pytest.mark.parametrize("name", damaged())
def test_a_damaged_idx_file_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(damaged()[name])
    with pytest.raises(DpflError, match=f"{name} is damaged"):
        read_idx(tmp_path / name, 3)


def test_images_and_labels_must_be_as_many(tmp_path):
    one, two = (
        write_idx(tmp_path / "images", images(4)),
        write_idx(tmp_path / "labels", np.arange(5)),
    )
    with pytest.raises(DpflError, match="5 labels for the 4 images"):
        read_idx_pair(one, two)


def test_a_missing_idx_file_is_named(tmp_path):
    with pytest.raises(DpflError, match="absent cannot be read"):
        read_idx(tmp_path / "absent", 3)


def test_cifar10(tmp_path):
    write_cifar10(tmp_path)
    held = read_cifar10(tmp_path)
    assert held.x.shape == (20, 3, 32, 32)
    assert held.x_test.shape == (4, 3, 32, 32)
    first = np.frombuffer((tmp_path / "data_batch_1.bin").read_bytes(), dtype=np.uint8)
    assert held.y[0] == first[0]
    assert held.x[0, 1, 0, 2] == first[1 + 1024 + 2]


@pytest.mark.parametrize("content", [b"", b"\0" * 3072, b"\x0b" * 3073])
def test_a_damaged_cifar10_file_is_named(tmp_path, content):
    write_cifar10(tmp_path)
    (tmp_path / "data_batch_3.bin").write_bytes(content)
    with pytest.raises(DpflError, match=r"data_batch_3.bin is damaged"):
        read_cifar10(tmp_path)


def test_npz_with_a_test_set(tmp_path):
    x, y = np.ones((4, 2)), np.arange(4)
    np.savez(tmp_path / "own.npz", x=x, y=y, x_test=x[:1], y_test=y[:1])
    held = read_npz(tmp_path / "own.npz")
    assert held.classes is None
    assert held.test is not None
    assert (len(held.x), len(held.test[0])) == (4, 1)


def test_no_record_of_an_npz_is_made_public_unasked(tmp_path):
    np.savez(tmp_path / "own.npz", x=np.ones((10, 2)), y=np.arange(10), classes=12)
    held = read_npz(tmp_path / "own.npz")
    assert held.test is None
    assert len(held.x) == 10
    assert held.classes == 12


def test_a_share_that_is_declared_public_is_split_off_by_class(tmp_path):
    x, y = np.arange(1000).reshape(500, 2), np.repeat([0, 1, 2], [300, 150, 50])
    np.savez(tmp_path / "own.npz", x=x, y=y)
    one, same, other = (read_npz(tmp_path / "own.npz", 0.2, seed) for seed in (0, 0, 1))
    assert np.bincount(one.test[1]).tolist() == [60, 30, 10]
    assert sorted([*one.x[:, 0], *one.test[0][:, 0]]) == x[:, 0].tolist()
    assert np.array_equal(one.test[0], same.test[0])
    assert not np.array_equal(one.test[0], other.test[0])


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": np.ones((4, 2))}, "give x and y"),
        ({"x": np.ones((4, 2)), "y": np.arange(4), "x_test": np.ones((4, 2))}, "both or none"),
        ({"x": np.ones((4, 2)), "y": np.arange(3)}, "n above 1"),
        ({"x": np.ones((4, 2)), "y": np.arange(4), "classes": np.ones(2)}, "not one whole number"),
        (
            {"x": np.array([{}, {}], dtype=object), "y": np.arange(2)},
            "no readable .npz file of plain arrays",
        ),
    ],
)
def test_a_wrong_npz_is_refused(tmp_path, arrays, said):
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(DpflError, match=said):
        read_npz(tmp_path / "own.npz")


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 broken"])
def test_a_damaged_npz_is_refused(tmp_path, content):
    (tmp_path / "own.npz").write_bytes(content)
    with pytest.raises(DpflError, match="no readable"):
        read_npz(tmp_path / "own.npz")


def test_a_npy_file_under_the_name_of_an_npz_is_refused(tmp_path):
    with (tmp_path / "own.npz").open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(DpflError, match="no readable"):
        read_npz(tmp_path / "own.npz")


def test_a_missing_npz_is_named(tmp_path):
    with pytest.raises(DpflError, match=r"no file .*own\.npz"):
        read_npz(tmp_path / "own.npz")
