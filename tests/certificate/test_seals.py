"""The salt of a run's seals: made once, long enough, and its user's alone."""

from __future__ import annotations

import stat
from pathlib import Path

from dpfl.certificate.seals import SALT, _without_times, make_salt
from dpfl.run.records.folder import RunFolder


def test_a_salt_is_made_once_has_256_bits_and_is_its_user_s_alone(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    make_salt(folder)
    salt = (tmp_path / SALT).read_text()
    assert len(bytes.fromhex(salt)) == 32
    assert stat.S_IMODE((tmp_path / SALT).stat().st_mode) == 0o600
    make_salt(folder)
    assert (tmp_path / SALT).read_text() == salt


def test_only_the_time_of_the_end_is_left_out_of_a_digest() -> None:
    assert _without_times({"ended": "now", "rounds": 3}) == {"rounds": 3}
    assert _without_times([1]) == [1]
