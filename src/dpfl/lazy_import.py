"""torch, dp-accounting and SciPy, each imported when one of its names is first used.

Importing them takes seconds, and commands such as `dpfl --version` or `dpfl runs` need none of
them. So a module whose parts are also described without computing anything writes `from
dpfl.lazy_import import torch` in place of `import torch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import dp_accounting as dp
    import torch
    from dp_accounting import pld
    from scipy import fft, special
    from torch import nn
    from torch.nn import functional

__all__ = [
    "dp",
    "fft",
    "functional",
    "nn",
    "on_demand",
    "pld",
    "special",
    "torch",
]


def on_demand(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Makes the functions `__getattr__` and `__dir__` of a package whose names are imported on
    demand.

    Args:
        package: The name of the package.
        homes: For each public name the module that it is imported from. The module may be the
            name's own, `package.name`.

    Returns:
        Both functions, for the namespace of the package.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(homes[name])
        return home if home.__name__ == f"{package}.{name}" else getattr(home, name)

    return get, lambda: sorted(import_module(package).__all__)


class _Lazy(ModuleType):
    """Stands for a module, and imports it at the first use of one of its names."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if not TYPE_CHECKING:
    dp, pld = _Lazy("dp_accounting"), _Lazy("dp_accounting.pld")
    fft, special = _Lazy("scipy.fft"), _Lazy("scipy.special")
    torch, nn, functional = _Lazy("torch"), _Lazy("torch.nn"), _Lazy("torch.nn.functional")
