"""A search for inputs that make one unit move a clipped sum further than its clip norm."""

from typing import TYPE_CHECKING

from dpfl.deprecation import deprecated_names

if not TYPE_CHECKING:
    __getattr__ = deprecated_names(
        __name__,
        {
            "Played": "dpfl.audit.amplification.search.AmplificationTrial",
            "Sums": "dpfl.audit.amplification.search.Sums",
            "furthest_movement": "dpfl.audit.amplification.search.furthest_movement",
        },
    )
