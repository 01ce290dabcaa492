"""How the server gets the sum of a round: from every client's own update, or as a sum only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpfl.algorithms import Algorithm
from dpfl.errors import DpflError
from dpfl.privacy.mechanisms.noise_shares import NoiseShares
from dpfl.secagg.group import check_sizes
from dpfl.server.round_sum import Add, SimulatedMaskedSum, plain


@dataclass(frozen=True)
class Aggregation:
    """`plain`, or `secure`: sums over at least `survivors` clients (all, if not said), `colluders`
    of whom may be the server's.

    In a simulation the sum is the same with the protocol or without it; `masks` runs it. Nodes
    elsewhere always do.
    """

    kind: str = "plain"
    survivors: int | None = None
    colluders: int | None = None
    masks: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("plain", "secure"):
            raise DpflError(
                "privacy.aggregation is 'plain' or 'secure' (the server sees sums only), not "
                f"{self.kind!r}."
            )
        if self.kind == "plain" and (
            self.survivors is not None or self.colluders is not None or self.masks
        ):
            raise DpflError(
                "privacy.survivors, privacy.colluders and engine.masks are for secure sums: set "
                "privacy.aggregation = 'secure'."
            )

    def of(self, algorithm: Algorithm, clients: int) -> Algorithm:
        """The algorithm with noise that clients share; refused where the sum would not be secure,
        or its noise has no proof.
        """
        if self.kind == "plain":
            return algorithm
        survivors, colluders = (
            clients if self.survivors is None else self.survivors,
            self.colluders or 0,
        )
        check_sizes(clients, survivors, colluders)
        return algorithm.with_secure_sums(NoiseShares(survivors, colluders))

    def adding(self, run: str, names: Sequence[str], algorithm: Algorithm) -> Add:
        return (
            SimulatedMaskedSum(run, names, algorithm.noise_shares)
            if self.masks and algorithm.noise_shares
            else plain
        )
