"""The old path of `dpfl.privacy.accounting.events`; it goes in version 0.3."""

from typing import TYPE_CHECKING

from dpfl.deprecation import deprecated_names

if not TYPE_CHECKING:
    __getattr__ = deprecated_names(
        __name__,
        {
            "gaussian": "dpfl.privacy.accounting.events.gaussian",
        },
    )
