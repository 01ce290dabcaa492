"""Keys: made once, read by their user alone; and one written form for a value."""

from __future__ import annotations

import json
import os
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.codec import canonical
from dpfl.errors import DpflError
from dpfl.protocol.keys import (
    default_key,
    fingerprint,
    is_signed,
    load_private,
    load_public,
    new_key,
    public_key_hex,
    sign,
)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def test_the_written_form_has_sorted_keys_no_spaces_and_utf8():
    assert canonical({"ü": [1, 2.5], "a": None}) == '{"a":null,"ü":[1,2.5]}'.encode()


@settings(max_examples=40)
@given(st.dictionaries(st.text(), VALUES))
def test_the_written_form_does_not_depend_on_how_a_file_was_laid_out(value):
    try:
        first = canonical(value)
    except UnicodeEncodeError:  # a lone surrogate, which is no text
        return
    again = json.loads(json.dumps(dict(reversed(list(value.items()))), indent=3))
    assert canonical(again) == first


def test_infinity_has_no_written_form():
    with pytest.raises(ValueError, match="JSON"):
        canonical({"epsilon": float("inf")})


def test_a_new_key_is_read_by_its_user_alone_and_never_overwritten(tmp_path):
    path = tmp_path / "folder" / "key.pem"
    told = new_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert public_key_hex(load_private(path).public_key()) == load_public(
        tmp_path / "folder" / "key.pem.pub"
    )
    assert fingerprint(load_public(tmp_path / "folder" / "key.pem.pub")) == told
    before = path.read_bytes()
    with pytest.raises(DpflError, match="never overwritten"):
        new_key(path)
    assert path.read_bytes() == before


def test_a_key_that_others_can_read_does_not_sign(tmp_path):
    new_key(tmp_path / "key.pem")
    os.chmod(tmp_path / "key.pem", 0o644)
    with pytest.raises(DpflError, match="chmod 600"):
        load_private(tmp_path / "key.pem")


def test_without_a_key_a_sentence_says_how_to_make_one(tmp_path, monkeypatch):
    monkeypatch.setenv("DPFL_KEY", str(tmp_path / "mine.pem"))
    assert default_key() == tmp_path / "mine.pem"
    with pytest.raises(DpflError, match=r"dpfl key new .*mine\.pem"):
        load_private(None)


def test_a_file_that_is_no_key_is_refused(tmp_path):
    (tmp_path / "key.pem").write_text("words")
    os.chmod(tmp_path / "key.pem", 0o600)
    with pytest.raises(DpflError, match="cannot be read"):
        load_private(tmp_path / "key.pem")
    with pytest.raises(DpflError, match="cannot be read"):
        load_public(tmp_path / "key.pem")


def test_a_signature_fits_its_value_and_key_and_nothing_else(tmp_path):
    keys = []
    for name in ("a", "b"):
        new_key(tmp_path / name)
        keys.append(load_private(tmp_path / name))
    signature, publics = (
        sign({"epsilon": 2}, keys[0]),
        [public_key_hex(key.public_key()) for key in keys],
    )
    assert is_signed({"epsilon": 2}, signature, publics[0])
    assert not is_signed({"epsilon": 3}, signature, publics[0])
    assert not is_signed({"epsilon": 2}, signature, publics[1])
    assert not is_signed({"epsilon": 2}, "zz", publics[0])
    assert not is_signed({"epsilon": 2}, signature, "00")
