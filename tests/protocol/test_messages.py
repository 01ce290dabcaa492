"""Letters: what was written is read again, and anything else is refused by one of a few words
before memory is asked for.
"""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from dpfl.codec import canonical
from dpfl.protocol import messages
from dpfl.protocol.messages import MAGIC, MOST_HEAD, SIGNATURE, ProtocolError, RefusalReason

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
MOST = 1 << 20

TEXT = st.text(st.characters(codec="utf-8"))
WORDS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
HEADS = st.dictionaries(TEXT.filter(lambda word: word != "arrays"), WORDS, max_size=4)
ARRAYS = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True),
    arrays_of.arrays(
        st.sampled_from([np.float32, np.float64]),
        arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        elements={"allow_nan": False, "allow_infinity": False},
    ),
    max_size=4,
)


def signed(head: Any, body: bytes = b"") -> bytes:
    words = head if isinstance(head, bytes) else canonical(head)
    whole = MAGIC + len(words).to_bytes(4, "little") + words + body
    return whole + KEY.sign(whole)


def read(data: bytes, most: int = MOST) -> messages.SignedMessage:
    return messages.read(data, KEY.public_key(), most)


def refused(data: bytes, most: int = MOST) -> RefusalReason:
    with pytest.raises(ProtocolError) as bad:
        read(data, most)
    return bad.value.reason


@given(HEADS, ARRAYS)
def test_what_was_written_is_read_again(
    head: dict[str, Any], arrays: dict[str, np.ndarray]
) -> None:
    found = read(messages.write(head, arrays, KEY))
    assert found.header == head
    assert found.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].shape == array.shape
        assert found.arrays[name].tobytes() == array.tobytes()


LETTER = messages.write(
    {"kind": "work", "n": 3}, {"model": np.arange(7, dtype=np.float32), "b": np.ones((2, 2))}, KEY
)


@given(st.integers(0, len(LETTER) - 1))
def test_a_letter_that_is_cut_short_is_refused(length: int) -> None:
    assert refused(LETTER[:length]) in (RefusalReason.NOT_A_LETTER, RefusalReason.BAD_SIGNATURE)


@given(st.integers(0, len(LETTER) * 8 - 1))
def test_a_letter_with_one_bit_flipped_is_refused(bit: int) -> None:
    changed = bytearray(LETTER)
    changed[bit // 8] ^= 1 << bit % 8
    assert refused(bytes(changed)) in (RefusalReason.NOT_A_LETTER, RefusalReason.BAD_SIGNATURE)


@given(st.binary(min_size=1, max_size=80))
def test_a_letter_with_more_behind_it_is_refused(more: bytes) -> None:
    assert refused(LETTER + more) == RefusalReason.BAD_SIGNATURE


@given(st.binary(max_size=300))
def test_garbage_is_refused_even_where_it_is_signed(body: bytes) -> None:
    for data in (body, MAGIC + body, MAGIC + body + KEY.sign(MAGIC + body)):
        with pytest.raises(ProtocolError):
            read(data)


def test_a_letter_of_another_key_is_refused_before_anything_of_it_is_read() -> None:
    assert refused(messages.write({}, {}, OTHER)) == RefusalReason.BAD_SIGNATURE


def test_a_letter_larger_than_agreed_is_refused() -> None:
    assert refused(LETTER, most=len(LETTER) - 1) == RefusalReason.TOO_LARGE
    assert read(LETTER, most=len(LETTER)).header["n"] == 3


def entry(**changed: Any) -> dict[str, Any]:
    return {"name": "a", "dtype": "float32", "shape": [25], "offset": 0} | changed


@pytest.mark.parametrize(
    "entries",
    [
        [entry(shape=[10 * 2**30 // 4])],
        [entry(shape=[2**31, 2**31, 4])],
        [entry(shape=[2**47] * 8)],
        [entry(shape=[24])],
        [entry(shape=[26])],
        [entry(shape=[-25])],
        [entry(shape=[25.0])],
        [entry(shape=[True] * 25)],
        [entry(shape=25)],
        [entry(shape=[1] * 8 + [25])],
        [entry(dtype="float16", shape=[50])],
        [entry(dtype="object")],
        [entry(dtype="int64")],
        [entry(dtype=None)],
        [entry(offset=4)],
        [entry(offset=0.0)],
        [entry(name="../a")],
        [entry(name="")],
        [entry(name=3)],
        [entry(more=1)],
        [entry(shape=[12]), entry(shape=[13], offset=48)],
        [entry(name="b", shape=[12]), entry(shape=[13], offset=48)],
        [{"name": "a", "dtype": "float32", "shape": [25]}],
        ["a"],
        [entry(shape=[0], name=f"a{number}") for number in range(65)],
        {},
        None,
    ],
)
def test_arrays_that_are_not_as_announced_are_refused_without_memory_for_them(entries: Any) -> None:
    data = signed({"arrays": entries}, bytes(100))
    tracemalloc.start()
    try:
        assert refused(data) == RefusalReason.BAD_ARRAYS
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_that_are_not_finite_are_neither_written_nor_read(odd: float, dtype: type) -> None:
    array = np.array([1, odd], dtype)
    with pytest.raises(ProtocolError, match="not-finite"):
        messages.write({}, {"a": array}, KEY)
    head = {"arrays": [entry(dtype=array.dtype.name, shape=[2])]}
    assert refused(signed(head, array.tobytes())) == RefusalReason.NOT_FINITE


@pytest.mark.parametrize(
    "array",
    [
        np.ones(2, np.int64),
        np.ones(2, np.float16),
        np.array(["a"]),
        np.array([None]),
        np.ones(2, bool),
    ],
)
def test_only_floating_point_arrays_are_written(array: np.ndarray) -> None:
    with pytest.raises(ProtocolError, match="bad-arrays"):
        messages.write({}, {"a": array}, KEY)


@pytest.mark.parametrize(
    "words",
    [
        b'{"a":1,"a":2,"arrays":[]}',
        b'{"arrays":[],"a":1}',
        b'{"a": 1,"arrays":[]}',
        b'{"a":NaN,"arrays":[]}',
        b'{"a":1e999,"arrays":[]}',
        b'{"a":1.00,"arrays":[]}',
        b'{"a":"\\ud800","arrays":[]}',
        b'{"a":' + b"1" * 5000 + b',"arrays":[]}',
        b"[" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b"[" * 5_000 + b"]" * 5_000,
        b"\xff\xfe",
        b"[]",
        b"1",
        b"",
    ],
)
def test_a_head_that_is_not_in_the_one_written_form_is_refused(words: bytes) -> None:
    assert refused(signed(words)) == RefusalReason.BAD_HEAD


def test_a_head_is_bounded_whatever_it_announces() -> None:
    assert refused(signed(b" " * (MOST_HEAD + 1)), most=1 << 22) == RefusalReason.BAD_HEAD
    for length in (2**32 - 1, 1000):
        whole = MAGIC + length.to_bytes(4, "little") + b"{}"
        assert refused(whole + KEY.sign(whole)) == RefusalReason.BAD_HEAD
    with pytest.raises(ProtocolError, match="bad-head"):
        messages.write({"a": "x" * MOST_HEAD}, {}, KEY)
    with pytest.raises(ProtocolError, match="bad-head"):
        messages.write({"arrays": []}, {}, KEY)


def test_the_form_of_a_letter_is_as_documented() -> None:
    head = json.loads(LETTER[9 : 9 + int.from_bytes(LETTER[5:9], "little")])
    assert LETTER[:5] == b"DPFL2"
    assert [(one["name"], one["offset"]) for one in head["arrays"]] == [("b", 0), ("model", 32)]
    assert len(LETTER) == 9 + int.from_bytes(LETTER[5:9], "little") + 32 + 28 + SIGNATURE
