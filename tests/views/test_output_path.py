"""Places for files are refused before anything is computed for them."""

from pathlib import Path

import pytest

from dpfl.errors import DpflError
from dpfl.views.output_path import check_folder, check_place


def test_a_place_that_can_be_written_is_accepted(tmp_path: Path) -> None:
    check_place(tmp_path / "a.png", "--png", ".png")
    check_place(None, "--png")
    check_folder(tmp_path / "new" / "folder", "--png")
    assert (tmp_path / "new" / "folder").is_dir()


@pytest.mark.parametrize("name", ["a.pdf", "none/a.png", "", "x" * 300 + "/a.png"])
def test_another_place_is_one_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(DpflError, match="--png"):
        check_place(tmp_path / name, "--png", ".png")
