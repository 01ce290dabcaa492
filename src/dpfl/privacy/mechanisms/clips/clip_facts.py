"""What a clip bounds and what its clip norm follows, as words and as questions about them."""

from __future__ import annotations

from typing import Protocol


class ClipFacts(Protocol):
    """A clip gives both words; the answers to the questions follow from them."""

    @property
    def bounds(self) -> str:
        """What has that norm: "norm", "layers", "coefficients", "model", or "nothing"."""

    @property
    def adapts_to(self) -> str:
        """What the clip norm follows: a paid "count", "public" clients, a "raw" run, or nothing
        ("").
        """

    @property
    def bounds_vector(self) -> bool:
        """Whether the Euclidean norm of the vector itself is bounded, as a whole or by layer."""
        return self.bounds in ("norm", "layers")

    @property
    def bounds_nothing(self) -> bool:
        """Whether there is no bound."""
        return self.bounds == "nothing"

    @property
    def bounds_model(self) -> bool:
        """Whether the client's whole model is bounded, and not its update."""
        return self.bounds == "model"

    @property
    def bounds_coefficients(self) -> bool:
        """Whether Haar coefficients are bounded."""
        return self.bounds == "coefficients"

    @property
    def follows_count(self) -> bool:
        """Whether the clip norm follows a noisy count that is paid for."""
        return self.adapts_to == "count"

    @property
    def follows_public(self) -> bool:
        """Whether the clip norm follows clients whose data is public."""
        return self.adapts_to == "public"

    @property
    def follows_raw(self) -> bool:
        """Whether the clip norm follows raw values of a run without privacy."""
        return self.adapts_to == "raw"

    @property
    def pilot_rounds(self) -> int | None:
        """How many rounds that run without privacy has; None for as many as the run itself."""
        return None
