"""A reconstruction is drawn into a file per system."""

from __future__ import annotations

from pathlib import Path

import torch

from dpfl.audit.attacks.inversion import Reconstruction
from dpfl.views.figures.inversion_figure import draw_into


def test_every_system_has_a_picture_of_its_own(tmp_path: Path) -> None:
    image = torch.arange(16.0).reshape(4, 4)
    draw = draw_into(tmp_path / "new")
    paths = [draw(Reconstruction(image, image, -image), name) for name in ("a, sound", "b")]
    assert [Path(path).name for path in paths] == ["a-sound-inversion.png", "b-inversion.png"]
    assert all(Path(path).read_bytes().startswith(b"\x89PNG") for path in paths)
