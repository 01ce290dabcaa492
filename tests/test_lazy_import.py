"""Names of a package are imported when they are first used."""

import sys
from types import ModuleType

import pytest

from dpfl.lazy_import import on_demand


def test_a_name_comes_from_its_home_and_a_module_is_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    package, home = ModuleType("shop"), ModuleType("shop.goods")
    package.__all__ = ["goods", "apple"]
    home.apple = "an apple"
    monkeypatch.setitem(sys.modules, "shop", package)
    monkeypatch.setitem(sys.modules, "shop.goods", home)
    get, names = on_demand("shop", {"apple": "shop.goods", "goods": "shop.goods"})
    assert get("apple") == "an apple"
    assert get("goods") is home
    assert names() == ["apple", "goods"]
    with pytest.raises(AttributeError, match="module 'shop' has no attribute 'pear'"):
        get("pear")
