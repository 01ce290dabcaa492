"""The old path of `dpfl.views.comparison`; it goes in version 0.3."""

from typing import TYPE_CHECKING

from dpfl.deprecation import deprecated_names

if not TYPE_CHECKING:
    __getattr__ = deprecated_names(
        __name__,
        {
            "Comparison": "dpfl.views.comparison.Comparison",
            "Runs": "dpfl.views.comparison.RunList",
            "compare": "dpfl.views.comparison.compare",
            "runs": "dpfl.views.comparison.runs",
        },
    )
