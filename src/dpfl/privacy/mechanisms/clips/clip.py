"""Clips: bounds on what one unit (a sample, a person or a client) can add to a sum.

A clip scales a unit's vector g to g min(1, C / |g|), so that adding or removing the unit moves the
sum by at most C. A clip may bound something else than the norm of the whole vector: each layer,
Haar coefficients, or the client's whole model (`Clip.bounds`). Its clip norm may change between
rounds (`Clip.adapts_to`), and whether that is private depends on what it follows.

`Clip` lists what the rest of the code asks of a clip. `VectorClip` is the base to derive from, also
for a clip of your own:

    @part("clip.positive")
    @dataclass(frozen=True)
    class Positive(VectorClip):
        clip_norm: float  # a field, because other modules replace it
        bounds = "norm"  # the Euclidean norm of a clipped row is at most clip_norm
        adapts_to = ""  # it stays what it is
        own_measure = reshapes = True  # `clip_rows` does the work, and not `factors`

        def clip_rows(self, rows):
            positive = rows.clamp(min=0)
            return positive * self.factors(self.norms(positive)[:, None])

Gaussian noise is calibrated to `clip_norm` as a Euclidean norm. No code can check that a clip keeps
the bound that it declares, so test it (docs/adding-a-system.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dpfl.codec import part
from dpfl.deprecation import keep_old_names, override_renamed_methods
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.privacy.mechanisms.clips.clip_facts import ClipFacts
from dpfl.privacy.mechanisms.clips.rounding import squared_norms

if TYPE_CHECKING:
    from torch import Tensor

Weighting = tuple[str, bool, tuple[float, ...], tuple[int, ...]]
"""Weights of Haar coefficients: their name, whether each layer is transformed by itself, the
energies of the bands, and where each layer ends.
"""
Groups = tuple[tuple[int, ...], ...]
"""Entries of the model's layout that are clipped together."""

MARGIN = 2.0**-16
"""The share of the clip norm that is left to rounding: units are clipped to C (1 - MARGIN), and the
sum of all of them, as it is computed, moves by at most C (docs/privacy.md, "Float arithmetic")."""


SMALLEST = 1e-12
"""Clip norms below it, and factors below its square, are lost in the rounding of float32."""


class Clip(ClipFacts, Protocol):
    """A bound on the vector of one unit."""

    @property
    def clip_norm(self) -> float:
        """The largest norm C of one unit after clipping, which is the sensitivity of a sum to one
        unit.
        """

    @property
    def count_noise(self) -> float | None:
        """The standard deviation of the noise on a count of units inside the clip; None where
        nothing is counted.
        """

    @property
    def own_measure(self) -> bool:
        """Whether the clip bounds something else than the Euclidean norm of the written-out
        vector.
        """

    @property
    def reshapes(self) -> bool:
        """Whether the clip shrinks parts of a vector by factors of their own, and not by layers:
        then `clip_rows` does it, and `factors` does not.
        """

    @property
    def coefficient_bound(self) -> str:
        """What the clip bounds, for noise on Haar coefficients: "gradient" (the vector itself),
        "weighted", "coefficients" or "levels".
        """

    @property
    def weighting(self) -> Weighting | None:
        """The weights of the Haar coefficients whose norm is bounded; None where no weighted norm
        is.
        """

    def groups(self, names: Sequence[str]) -> Groups:
        """Groups the entries of a model's layout that share a bound.

        Args:
            names: The names of the entries.

        Returns:
            One tuple of entry numbers per group.
        """

    def factors(self, norms: Tensor) -> Tensor:
        """Maps norms to the factors that bring each vector inside its bound.

        Args:
            norms: The norms (units, groups).

        Returns:
            Factors of the same shape.
        """

    def norms(self, rows: Tensor) -> Tensor:
        """Measures what the clip bounds.

        Args:
            rows: The vectors (units, n).

        Returns:
            One measure per row, in float64.
        """

    def clip_rows(self, rows: Tensor) -> Tensor:
        """Brings each row inside its bound, where the clip reshapes vectors.

        Args:
            rows: The vectors (units, n).

        Returns:
            The clipped rows.
        """

    def adapt(self: ClipKind, observation: Any, /) -> ClipKind:
        """Adapts the clip to a round.

        Args:
            observation: What was observed in the round: a noisy fraction, or norms.

        Returns:
            The clip of the next round.
        """

    def for_model(self: ClipKind, ends: Sequence[int]) -> ClipKind:
        """Fits the clip to a model.

        Args:
            ends: Where each of the model's parameters ends.

        Returns:
            The clip for that model.
        """

    def vector_multiplier(self, noise_multiplier: float) -> float:
        """Computes the noise multiplier that is left for the vector.

        Args:
            noise_multiplier: The multiplier of the whole release.

        Returns:
            The multiplier of the vector's noise; larger where a noisy count takes a part.
        """


ClipKind = TypeVar("ClipKind", bound=Clip)


def check_clip_norm(clip_norm: float) -> None:
    """Checks that a clip norm is usable.

    Args:
        clip_norm: The clip norm.

    Raises:
        DpflError: If it is not a positive, finite number that float32 can hold.
    """
    if not (clip_norm >= SMALLEST and math.isfinite(clip_norm)):
        raise DpflError(
            f"The clip norm must be a positive number, not {clip_norm}; 1.0 is a common start."
        )


def shrink_factors(norms: Tensor, bound: float) -> Tensor:
    """Computes the factors min(1, C (1 - MARGIN) / |g|).

    Args:
        norms: The norms |g|.
        bound: The clip norm C.

    Returns:
        Factors of the same shape; 0 where a factor would be lost in float32.
    """
    factors = (bound * (1 - MARGIN) / norms.clamp_min(1e-30)).clamp_max(1.0)
    return factors.where(factors > SMALLEST**2, 0.0)


def single_group(names: Sequence[str]) -> Groups:
    """Puts all entries into one group.

    Args:
        names: The names of the entries.

    Returns:
        One group of all entries.
    """
    return (tuple(range(len(names))),)


@keep_old_names(level="clip_norm", clipped="clip_rows")
class VectorClip(ClipFacts):
    """The base of clips with one bound on the whole vector.

    Attributes:
        clip_norm: The bound C.
        bounds: What has that norm (`Clip.bounds`).
        count_noise: The deviation of the noise on a count (`Clip.count_noise`).
        own_measure: Whether `norms` is not the Euclidean norm (`Clip.own_measure`).
        reshapes: Whether `clip_rows` has to be used (`Clip.reshapes`).
    """

    clip_norm: float
    bounds = "norm"
    count_noise: float | None = None
    own_measure = reshapes = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        override_renamed_methods(cls, {"clipped": "clip_rows"})

    @property
    def coefficient_bound(self) -> str:
        """ "gradient": the vector itself (`Clip.coefficient_bound`)."""
        return "gradient"

    @property
    def weighting(self) -> Weighting | None:
        """None: no weighted norm is bounded (`Clip.weighting`)."""
        return None

    def groups(self, names: Sequence[str]) -> Groups:
        """Puts all entries of a model's layout into one group.

        Args:
            names: The names of the entries.

        Returns:
            One group of all entries.
        """
        return single_group(names)

    def factors(self, norms: Tensor) -> Tensor:
        """Maps norms to the factors that bring each vector inside its bound.

        Args:
            norms: The norms (units, groups).

        Returns:
            Factors of the same shape.
        """
        return shrink_factors(norms, self.clip_norm)

    def norms(self, rows: Tensor) -> Tensor:
        """Measures the Euclidean norm of each row, rounded up.

        Args:
            rows: The vectors (units, n).

        Returns:
            One norm per row, in float64.
        """
        return squared_norms(rows).sqrt()

    def clip_rows(self, rows: Tensor) -> Tensor:
        """Brings each row inside its bound, where the clip reshapes vectors.

        Args:
            rows: The vectors (units, n).

        Returns:
            The clipped rows.

        Raises:
            NotImplementedError: This clip scales vectors by `factors`.
        """
        raise NotImplementedError

    def adapt(self: VectorClipKind, observation: Any, /) -> VectorClipKind:
        """Adapts the clip to a round.

        Args:
            observation: What was observed in the round.

        Returns:
            The clip of the next round: the same, where its norm follows nothing.
        """
        return self

    def for_model(self: VectorClipKind, ends: Sequence[int]) -> VectorClipKind:
        """Fits the clip to a model.

        Args:
            ends: Where each of the model's parameters ends.

        Returns:
            The clip for that model: the same, where it depends on none.
        """
        return self

    def vector_multiplier(self, noise_multiplier: float) -> float:
        """Computes the noise multiplier that is left for the vector.

        Args:
            noise_multiplier: The multiplier of the whole release.

        Returns:
            All of it, where nothing is counted.
        """
        return noise_multiplier


VectorClipKind = TypeVar("VectorClipKind", bound=VectorClip)


@keep_old_names(level="clip_norm")
@part("clip.flat")
@dataclass(frozen=True)
class Flat(VectorClip):
    """One bound C on the norm of the whole vector (Abadi et al. 2016).

    Attributes:
        clip_norm: The bound C.
    """

    clip_norm: float
    bounds = "norm"
    adapts_to = ""

    def __post_init__(self) -> None:
        check_clip_norm(self.clip_norm)


@keep_old_names(level="clip_norm")
@part("clip.per-layer")
@dataclass(frozen=True)
class PerLayer(VectorClip):
    """The same bound for every layer: C / sqrt(layers), so that the whole vector stays within C.

    Attributes:
        clip_norm: The bound C on the whole vector.
    """

    clip_norm: float
    bounds = "layers"
    adapts_to = ""

    def __post_init__(self) -> None:
        check_clip_norm(self.clip_norm)

    def groups(self, names: Sequence[str]) -> Groups:
        layers: dict[str, list[int]] = {}
        for index, name in enumerate(names):
            layers.setdefault(name.rpartition(".")[0], []).append(index)
        return tuple(tuple(members) for members in layers.values())

    def factors(self, norms: Tensor) -> Tensor:
        return shrink_factors(norms, self.clip_norm / math.sqrt(norms.shape[1]))


@part("clip.model")
@dataclass(frozen=True)
class ModelClip(Flat):
    """A bound on the client's whole model (clipping paper, section 2.1). It is known to bias
    FedAvg.
    """

    bounds = "model"


@keep_old_names(level="clip_norm")
@part("clip.none", optional=("clip_norm",))
@dataclass(frozen=True)
class NoClip(VectorClip):
    """No bound: a sum of such vectors has no sensitivity, so no noise makes it private."""

    clip_norm: float = math.inf
    bounds = "nothing"
    adapts_to = ""

    def factors(self, norms: Tensor) -> Tensor:
        return torch.ones_like(norms)
