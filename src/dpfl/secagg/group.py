"""Who sums together, how many of them must be left, and how many may be the server's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from dpfl.errors import DpflError

FEWEST, MOST = 3, 100


def threshold(members: int, colluders: int) -> int:
    """The least h with 2 h > K + t. Two sets of h members then share more than t, so one honest
    member at least, who stands for one list of survivors only: the server cannot have h voices for
    two lists, nor h shares of what only the other list opens.
    """
    return (members + colluders) // 2 + 1


def check_sizes(members: int, survivors: int, colluders: int) -> None:
    """Refuses what cannot be kept, in one sentence; also for those who plan a run and have no group
    yet.
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
    if survivors < (needed := threshold(members, colluders)):
        raise DpflError(
            f"With {members} clients, {colluders} of whom may collude with the server, {survivors} "
            "survivors could be shown as "
            f"two different sets; set privacy.survivors to at least {needed}, or privacy.colluders "
            "lower."
        )


@dataclass(frozen=True)
class SumGroup:
    """The members of a run by name, with their Ed25519 keys (hexadecimal) as each owner was given
    them, not as a server says.

    No sum is opened of fewer than `survivors`; up to `colluders` may tell the server all that they
    know.
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
        """The same rules among those of its members who are there."""
        return replace(self, identities={name: self.identities[name] for name in names})

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.identities))

    @cached_property
    def number(self) -> Mapping[str, int]:
        """Where each member's shares lie on the polynomial: from 1, since the secret lies at 0."""
        return {name: number for number, name in enumerate(self.names, start=1)}

    @property
    def threshold(self) -> int:
        return threshold(len(self.identities), self.colluders)
