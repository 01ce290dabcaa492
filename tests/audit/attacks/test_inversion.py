"""Gradient inversion: it reads an image off a bare update, and nothing off a release with noise."""

from pathlib import Path

import pytest

from dpfl.algorithms import fedavg, fedavg_dp, hw_dpfl, ldp_fl
from dpfl.audit.attacks.inversion import invert
from dpfl.views.figures.inversion_figure import draw


@pytest.mark.parametrize(
    "made",
    [fedavg_dp(noise_multiplier=1.0), ldp_fl(noise_multiplier=1.0), hw_dpfl(noise_multiplier=1.0)],
)
def test_an_image_is_read_off_a_bare_update_and_not_off_a_release(made, tmp_path: Path) -> None:
    rebuilt = invert(made)
    without, released = rebuilt.likeness
    assert without > 0.99
    assert abs(released) < 0.2
    draw(rebuilt, tmp_path / "pictures" / "inversion.png", "test")
    assert (tmp_path / "pictures" / "inversion.png").read_bytes()[:4] == b"\x89PNG"


def test_where_there_is_no_noise_the_release_hides_nothing() -> None:
    assert invert(fedavg(tau=1)).likeness[1] > 0.99
