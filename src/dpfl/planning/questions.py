"""The old path of `dpfl.planning.paid_queries`; it goes in version 0.3."""

from typing import TYPE_CHECKING

from dpfl.deprecation import deprecated_names

if not TYPE_CHECKING:
    __getattr__ = deprecated_names(
        __name__,
        {
            "PrivateMetric": "dpfl.planning.paid_queries.PrivateMetric",
        },
    )
