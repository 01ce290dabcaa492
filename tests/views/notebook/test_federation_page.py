"""A federation in a notebook: the sizes of its clients, and no label."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib import image

import dpfl
from dpfl.data import Federation
from dpfl.data.remote_federation import RemoteFederation
from dpfl.errors import DpflError
from dpfl.views.notebook.federation_page import draw
from tests.conftest import small_federation
from tests.views.notebook.html_reader import words
from tests.views.terminal.test_federation_table import federation as small_classes


def test_a_federation_shows_sizes_and_no_label(federation: Federation) -> None:
    shown = words(federation)
    assert "1,000 in all; 250 to 250 per client" in shown
    assert "400 samples" in shown
    (axis,) = federation.plot().axes
    assert axis.get_ylabel() == "client"


def test_clients_that_are_drawn_and_clients_elsewhere_are_shown_by_their_sizes() -> None:
    drawn = dpfl.data.sample().split(clients=5000, how=dpfl.data.RandomClients(images=20))
    assert "5,000, split by" in words(drawn)
    assert "20 to 20" in words(drawn)
    elsewhere = RemoteFederation.of(small_federation().train, None, ("boston", "lyon"), (30, 50))
    shown = words(elsewhere)
    assert "80 in all; 30 to 50 per client" in shown
    assert "boston" not in shown
    with pytest.raises(DpflError, match="Only the nodes know"):
        elsewhere.plot()


@pytest.mark.parametrize(("clients", "classes"), [(1, 2), (10, 10), (20, 20), (100, 47)])
def test_the_picture_is_a_png_with_colours(tmp_path, clients, classes):
    path = tmp_path / "deep" / "holdings.png"
    draw(small_classes(clients, classes)).save(path)
    pixels = image.imread(path)
    assert pixels.shape[1] == 1170
    assert len(np.unique((pixels @ [1, 10, 100, 0]).round(3))) > classes
