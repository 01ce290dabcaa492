"""The place where noise is added: at every step, to a client's update, or to the sum of a round.

DP-SGD and DP-FedAvg are the same release at different places. An algorithm and a task each carry
three releases (of the samples in a step, of a client's update, of the clients in a round), and at
most one of them has noise. `PlacedRelease.of` finds that one. Everything else follows from it: whom
the noise protects, whose ledger pays, and whether the server is trusted. No other code looks for
the release that has noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.mechanisms.release import Release
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.privacy.units import CLIENT_UNIT, NO_UNIT


class NoisePlacement(StrEnum):
    """The place where noise is added; the values are the words that tables and games use."""

    EVERY_STEP = "step"
    """In every step, by the client (DP-SGD)."""
    CLIENT_UPDATE = "upload"
    """On a client's whole update, by the client."""
    ROUND_SUM = "round"
    """On the sum of a round, by the server or by shares of the clients (DP-FedAvg)."""
    NONE = "none"
    """Nowhere."""

    @property
    def at_client(self) -> bool:
        """Whether each client adds all of the noise by itself."""
        return self in (NoisePlacement.EVERY_STEP, NoisePlacement.CLIENT_UPDATE)

    @property
    def covers_update(self) -> bool:
        """Whether the noise covers the client's whole update, whatever its steps did."""
        return self in (NoisePlacement.CLIENT_UPDATE, NoisePlacement.ROUND_SUM)


@dataclass(frozen=True)
class PlacedRelease:
    """The one release that has noise, and where its noise is added.

    Attributes:
        placement: Where the noise is added.
        release: The release; None where there is no noise.
        protects_client: Whether the noise is for all that a client has, and not for one unit of it.
    """

    placement: NoisePlacement
    release: Release | None = None
    protects_client: bool = False

    @classmethod
    def of(
        cls, samples: Release | None, update: UpdateRelease | None, clients: Release
    ) -> PlacedRelease:
        """Finds the release that has noise.

        Args:
            samples: The release of the samples in a step, if samples are clipped.
            update: The release of a client's whole update, if it is one.
            clients: The release of the clients of a round.

        Returns:
            The first of the three that has noise. Compositions with several are refused
            elsewhere: algorithms by `server/rules.py`, tasks by `DisclosureRules`.
        """
        noisy = cls.list_all(samples, update, clients)
        return noisy[0] if noisy else cls(NoisePlacement.NONE)

    @classmethod
    def list_all(
        cls, samples: Release | None, update: UpdateRelease | None, clients: Release
    ) -> tuple[PlacedRelease, ...]:
        """Lists every release that has noise, so that several can be refused.

        Args:
            samples: The release of the samples in a step, if samples are clipped.
            update: The release of a client's whole update, if it is one.
            clients: The release of the clients of a round.

        Returns:
            Those that have noise, in the order in which the noise is added.
        """
        candidates = (
            (NoisePlacement.EVERY_STEP, samples, False),
            (NoisePlacement.CLIENT_UPDATE, update, update is not None and update.protects_client),
            (NoisePlacement.ROUND_SUM, clients, True),
        )
        return tuple(
            cls(placement, release, protects_client)
            for placement, release, protects_client in candidates
            if release and release.has_noise
        )

    @property
    def has_noise(self) -> bool:
        """Whether there is noise, and so anybody who is protected."""
        return self.placement is not NoisePlacement.NONE

    def release_at(self, *placements: NoisePlacement) -> Release | None:
        """Gives the release if its noise is added at one of these places.

        Args:
            placements: The places.

        Returns:
            The release; None where the noise is elsewhere, or nowhere.
        """
        return self.release if self.placement in placements else None

    @property
    def noise_shares(self) -> NoiseShares | None:
        """How clients share the noise of a secure sum; None where one party adds all of it."""
        return self.release.noise_shares if self.release else None

    @property
    def client_pays(self) -> bool:
        """Whether every client pays from a ledger of its own, and not the federation for all."""
        return self.placement.at_client or self.noise_shares is not None

    @property
    def trusts_server(self) -> bool:
        """Whether the server sees single updates and adds the noise to their sum itself."""
        return self.placement is NoisePlacement.ROUND_SUM and self.noise_shares is None

    def unit(self, sample_unit: str = "sample") -> str:
        """Says whom the noise protects.

        Args:
            sample_unit: What a unit inside a client is: "sample" or "person".

        Returns:
            The unit inside a client, "client", or "none".
        """
        if not self.has_noise:
            return NO_UNIT
        return CLIENT_UNIT if self.protects_client else sample_unit
