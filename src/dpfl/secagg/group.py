"""The group of a secure sum: its members, how many of them must survive, and how many may collude
with the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from dpfl.errors import DpflError

FEWEST, MOST = 3, 100
"""The least and the largest number of members."""


def threshold(members: int, colluders: int) -> int:
    """Computes h, the least number with 2 h > K + t.

    Two sets of h members have more than t in common, and so at least one honest member, who
    supports one list of survivors only. The server can therefore get neither h votes for each of
    two lists, nor h shares of what only the other list opens.

    Args:
        members: K.
        colluders: t.

    Returns:
        floor((K + t) / 2) + 1.
    """
    return (members + colluders) // 2 + 1


def check_sizes(members: int, survivors: int, colluders: int) -> None:
    """Refuses sizes for which the guarantee does not hold.

    Args:
        members: K.
        survivors: The fewest members whose sum may be opened.
        colluders: t.

    Raises:
        DpflError: The sizes do not fit together.
    """
    if not FEWEST <= members <= MOST:
        raise DpflError(f"Secure aggregation is for {FEWEST} to {MOST} clients, not {members}.")
    if colluders < 0:
        raise DpflError(f"privacy.colluders must be at least 0, not {colluders}.")
    if survivors > members:
        raise DpflError(
            f"privacy.survivors is {survivors}, but there are {members} clients; set it to "
            f"{members} at most."
        )
    if survivors < (least_members := threshold(members, colluders)):
        raise DpflError(
            f"With {members} clients, {colluders} of whom may collude with the server, {survivors} "
            "survivors could be shown as "
            f"two different sets; set privacy.survivors to at least {least_members}, or "
            "privacy.colluders lower."
        )


@dataclass(frozen=True)
class SumGroup:
    """The members of a run's sums.

    Attributes:
        run: The digest that names the run.
        identities: Each member's Ed25519 key (hexadecimal) by name, as its owner gave it to the
            other owners. A server's word on it counts for nothing.
        survivors: The fewest members whose sum may be opened.
        colluders: How many members may tell the server all that they know.
    """

    run: str
    identities: Mapping[str, str]
    survivors: int
    colluders: int = 0

    def __post_init__(self) -> None:
        check_sizes(len(self.identities), self.survivors, self.colluders)
        if len(set(self.identities.values())) < len(self.identities):
            raise DpflError(
                "Two members of a secure sum have the same key; every member needs one of its own."
            )

    def among(self, names: Iterable[str]) -> SumGroup:
        """Restricts the group to the members who are there.

        Args:
            names: Their names.

        Returns:
            The group with the same rules among them.
        """
        return replace(self, identities={name: self.identities[name] for name in names})

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The members in alphabetical order."""
        return tuple(sorted(self.identities))

    @cached_property
    def number(self) -> Mapping[str, int]:
        """Where each member's shares lie on Shamir's polynomial: from 1, since the secret lies at
        0.
        """
        return {name: number for number, name in enumerate(self.names, start=1)}

    @property
    def threshold(self) -> int:
        """h: shares that open a seed, and members that must support one list of survivors."""
        return threshold(len(self.identities), self.colluders)
