"""A notebook shows an object by a module that is imported when it is asked for."""

import sys
from types import ModuleType

import pytest

from dpfl.notebook_repr import NotebookView


class Basket(NotebookView, shown_by="basket_page"):
    """Has a page of its own."""


class SmallBasket(Basket):
    """Has the page of its base."""


@pytest.mark.parametrize("kind", [Basket, SmallBasket])
def test_page_and_picture_come_from_the_module_that_a_class_names(
    monkeypatch: pytest.MonkeyPatch, kind: type[Basket]
) -> None:
    page = ModuleType("dpfl.views.notebook.basket_page")
    page.html = lambda shown: f"<p>{type(shown).__name__}</p>"
    page.plot = lambda shown: shown
    basket = kind()
    assert page.__name__ not in sys.modules, "nothing is imported before it is asked for"
    monkeypatch.setitem(sys.modules, page.__name__, page)
    assert basket._repr_html_() == f"<p>{kind.__name__}</p>"
    assert basket.plot() is basket
