"""Names of clients. A client's ledger is found by its name, in whatever order clients are
listed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dpfl.errors import DpflError

RESERVED_NAMES = ("federation", "metrics")
"""Names that other files have."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_OTHER = re.compile(r"[^A-Za-z0-9._-]")


def client_names(count: int) -> tuple[str, ...]:
    """Makes default client names.

    Args:
        count: The number of clients.

    Returns:
        client-00000, client-00001, and so on.
    """
    return tuple(f"client-{number:05d}" for number in range(count))


def names_of_sites(sites: Sequence[str]) -> tuple[str, ...]:
    """Makes client names that are as near to the names of sites as file names can be.

    Args:
        sites: The names of the sites.

    Returns:
        The names; none where two would be equal, or one is reserved.
    """
    near = tuple(_OTHER.sub("_", site).lstrip(".-")[:64] for site in sites)
    small = {name.lower() for name in near}
    return (
        near if len(small) == len(near) and all(small) and not small & set(RESERVED_NAMES) else ()
    )


def checked_names(names: Sequence[str], count: int) -> tuple[str, ...]:
    """Checks that the names that a user gave the clients can be file names.

    Args:
        names: The names.
        count: The number of clients.

    Returns:
        The names.

    Raises:
        DpflError: There is not one name for each client, a name cannot be a file's, or two are
            equal where a disk ignores case.
    """
    if isinstance(names, str) or len(names) != count:
        raise DpflError(
            f"{len(names)} names were given for {count} clients: give one each (data.names)."
        )
    if odd := [name for name in names if not isinstance(name, str) or not _NAME.fullmatch(name)]:
        raise DpflError(
            f"{odd[0]!r} cannot be a client's name, because its ledger file has the same name: use "
            "up to 64 letters, digits, dots, dashes and underscores."
        )
    small = [name.lower() for name in names]
    if repeated_name := next(
        (name for name in small if name in RESERVED_NAMES or small.count(name) > 1), None
    ):
        raise DpflError(
            f"The client's name {repeated_name!r} is taken: give every client one of its own."
        )
    return tuple(names)
