"""The base of all noise parts, and the attributes by which they tell what they can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

    from dpfl.privacy.mechanisms.noises.matrix_release import BandedNoise

NoiseKind = TypeVar("NoiseKind", bound="AdditiveNoise")


class AdditiveNoise:
    """The base of noise parts: what holds for noise on the coordinates of a vector.

    Attributes:
        gaussian: Whether the noise is normal in every direction.
        by_coordinate: Whether the noise of each coordinate is drawn by itself, with one deviation
            whatever the length of the vector. Then vectors that are laid end to end have the noise
            that each would have by itself.
        on_grid: Whether the noise and what it is added to are multiples of one step.
        calibrated: Whether its multiplier is known.
        on_coefficients: Whether the noise is independent on Haar coefficients, and not on the
            coordinates.
        whole_run: Whether the noise of all rounds of a run is one release.
        has_secure_form: Whether there is noise like it on a grid.
        can_be_shared: Whether shares of it inside a secure sum are proven.
    """

    gaussian = by_coordinate = on_grid = on_coefficients = whole_run = has_secure_form = False
    calibrated: ClassVar[bool] = True
    can_be_shared = True

    @property
    def kind(self) -> Any:
        """The noise itself, or what uncalibrated noise will be like; None for Gaussian noise that
        is not calibrated.
        """
        return self

    @property
    def banded_noise(self) -> BandedNoise | None:
        """The noise itself if later rounds take it back; None otherwise."""
        return None

    def for_model(self: NoiseKind, ends: Sequence[int]) -> NoiseKind:
        """Fits the noise to a model.

        Args:
            ends: Where each of the model's parameters ends.

        Returns:
            The noise for that model: the same, unless it is on coefficients of the model.
        """
        return self

    def for_rounds(self: NoiseKind, rounds: int, turns: int) -> NoiseKind:
        """Fits the noise to a run.

        Args:
            rounds: The rounds of the run.
            turns: How many rounds are between two participations of a unit.

        Returns:
            The noise for that run: the same, unless later rounds take it back.
        """
        return self

    @property
    def share(self) -> float:
        """The added noise over the stated noise."""
        return 1.0

    def outward(self, vector: Tensor) -> Tensor:
        """Maps a vector to the coefficients that the noise is added to.

        Args:
            vector: The vector (n,).

        Returns:
            The vector itself, where the noise is added to its coordinates.
        """
        return vector

    def inward(self, total: Tensor) -> Tensor:
        """Maps coefficients back to a vector.

        Args:
            total: The coefficients, as `outward` gives them.

        Returns:
            The vector (n,).
        """
        return total

    def energy(self, size: int) -> float:
        """Computes E |noise|^2 of a vector in units of variance.

        Args:
            size: The number of coordinates.

        Returns:
            The energy.
        """
        return float(size)

    def standard(self, noise: Tensor, stddev: float) -> Tensor:
        """Divides such noise by its standard deviation.

        Args:
            noise: The noise (n,).
            stddev: The stated standard deviation.

        Returns:
            Independent standard normal numbers, if the noise is what is stated.
        """
        return noise / stddev
