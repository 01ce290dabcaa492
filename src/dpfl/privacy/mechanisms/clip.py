"""Clips: bounds on what one unit (a sample, a person or a client) can add to a sum.

A clip scales a unit's vector g to g min(1, C / |g|), so that adding or removing the unit moves the
sum by at most C. A clip may bound something else than the norm of the whole vector: each layer,
Haar coefficients, or the client's whole model (`Clip.bounds`). Its clip norm may change between
rounds (`Clip.adapts_to`), and whether that is private depends on what it follows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.privacy.mechanisms.rounding import squared_norms

if TYPE_CHECKING:
    from torch import Tensor

Groups = tuple[tuple[int, ...], ...]
"""Entries of the model's layout that are clipped together."""

MARGIN = 2.0**-16
"""The share of the clip norm that is left to rounding: units are clipped to C (1 - MARGIN), and the
sum of all of them, as it is computed, moves by at most C (docs/privacy.md, "Float arithmetic")."""


SMALLEST = 1e-12
"""Levels below it, and factors below its square, drown in float32."""


class Clip(Protocol):
    """A bound on the vector of one unit."""

    @property
    def clip_norm(self) -> float:
        """The largest norm C of one unit after clipping, which is the sensitivity of a sum to one
        unit.
        """

    @property
    def bounds(self) -> str:
        """What has that norm: "norm", "layers", "coefficients", "model", or "nothing"."""

    @property
    def adapts_to(self) -> str:
        """What the clip norm follows: a paid "count", "public" clients, a "raw" run, or nothing
        ("").
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


@runtime_checkable
class MeasuringClip(Protocol):
    """A clip that bounds something else than the norm of the vector."""

    def norms(self, rows: Tensor) -> Tensor:
        """Measures what the clip bounds.

        Args:
            rows: The vectors (units, n).

        Returns:
            One measure per row, in float64.
        """


@runtime_checkable
class ReshapingClip(Protocol):
    """A clip that shrinks parts of a vector by factors of their own, and not by layers."""

    def clipped(self, rows: Tensor) -> Tensor:
        """Brings each row inside its bound.

        Args:
            rows: The vectors (units, n).

        Returns:
            The clipped rows.
        """


@runtime_checkable
class AdaptiveClip(Protocol):
    """A clip whose clip norm follows what it adapts to."""

    def adapt(self, observation: Any, /) -> Clip:
        """Adapts the clip to a round.

        Args:
            observation: What was observed in the round: a noisy fraction, or norms.

        Returns:
            The clip of the next round.
        """


def adapt_clip(clip: Clip, observation: Any) -> Clip:
    """Adapts a clip to a round, if it is adaptive.

    Args:
        clip: The clip of this round.
        observation: What was observed in it.

    Returns:
        The clip of the next round.
    """
    return clip.adapt(observation) if isinstance(clip, AdaptiveClip) else clip


def check_clip_norm(level: float) -> None:
    """Checks that a clip norm is usable.

    Args:
        clip_norm: The clip norm.

    Raises:
        DpflError: If it is not a positive, finite number that float32 can hold.
    """
    if not (level >= SMALLEST and math.isfinite(level)):
        raise DpflError(
            f"The clip level must be a positive number, not {level}; 1.0 is a common start."
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


def public_median(norms: Sequence[float], otherwise: float) -> float:
    """Computes the median of public norms.

    Args:
        norms: The norms of public units.
        otherwise: The clip norm to keep where the median is none.

    Returns:
        The median if it is a usable clip norm.
    """
    level = float(torch.tensor(list(norms), dtype=torch.float64).median())
    return level if level >= SMALLEST and math.isfinite(level) else otherwise


def single_group(names: Sequence[str]) -> Groups:
    """Puts all entries into one group.

    Args:
        names: The names of the entries.

    Returns:
        One group of all entries.
    """
    return (tuple(range(len(names))),)


class VectorClip:
    """The base of clips with one bound on the whole vector.

    Attributes:
        clip_norm: The bound C.
        bounds: What has that norm (`Clip.bounds`).
    """

    clip_norm: float
    bounds = "norm"

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


@part("clip.quantile", learning_rate="rate", count_stddev="count_noise")
@dataclass(frozen=True)
class Quantile(VectorClip):
    """A clip norm that follows a quantile of the norms (Andrew et al. 2021) by a paid, noisy count.

    Each unit also sends b - 1/2, with b = 1 if it was not clipped. The sum of these gets noise of
    standard deviation `count_noise`. A unit moves it by 1/2. Both sums together are one Gaussian
    release with multiplier z if the vector's multiplier z_v satisfies z^-2 = z_v^-2 + (2
    count_noise)^-2.

    Attributes:
        clip_norm: The clip norm of this round.
        quantile: The share of units that should not be clipped.
        rate: The learning rate of the clip norm.
        count_noise: The standard deviation of the noise on the count.
    """

    clip_norm: float
    quantile: float = 0.5
    rate: float = 0.2
    count_noise: float = 4.0
    bounds = "norm"
    adapts_to = "count"

    def __post_init__(self) -> None:
        check_clip_norm(self.clip_norm)
        if not 0 < self.quantile < 1:
            raise DpflError(f"The quantile must lie between 0 and 1, not {self.quantile}.")
        if not 0 < self.count_noise < math.inf:
            raise DpflError(
                f"count_noise must be above 0, not {self.count_noise}; a twentieth of the cohort "
                "is usual."
            )
        if not 0 < self.rate < math.inf:
            raise DpflError(
                f"The rate of the quantile must be a positive number, not {self.rate}; 0.2 is "
                "usual."
            )

    def vector_multiplier(self, noise_multiplier: float) -> float:
        """Computes the multiplier z_v that is left for the vector: (z^-2 - (2
        count_noise)^-2)^(-1/2).

        Args:
            noise_multiplier: The multiplier z of the whole release.

        Returns:
            The multiplier of the vector's noise, larger than z.

        Raises:
            DpflError: If the count alone spends the whole release.
        """
        precision = noise_multiplier**-2 - (2 * self.count_noise) ** -2
        if precision <= 0:
            raise DpflError(
                f"count_noise = {self.count_noise} spends the whole release on the count of "
                "clipped units; "
                f"raise it above {noise_multiplier / 2:.3g} (a twentieth of a large cohort is "
                "usual), or use a fixed clip."
            )
        return float(precision**-0.5)

    def adapt(self, noisy_fraction: float) -> Quantile:
        """Updates C <- C exp(-rate (b - quantile)).

        Args:
            noisy_fraction: The noisy fraction b of units that were not clipped.

        Returns:
            The clip of the next round.
        """
        fraction = min(max(noisy_fraction, 0.0), 1.0)
        return replace(
            self, clip_norm=self.clip_norm * math.exp(-self.rate * (fraction - self.quantile))
        )


@part("clip.public-median")
@dataclass(frozen=True)
class PublicMedian(VectorClip):
    """A clip norm equal to the median norm on public clients, found anew each round. It costs no
    privacy.

    Attributes:
        clip_norm: The clip norm of this round.
    """

    clip_norm: float = 1.0
    bounds = "norm"
    adapts_to = "public"

    def __post_init__(self) -> None:
        check_clip_norm(self.clip_norm)

    def adapt(self, public_norms: Sequence[float]) -> PublicMedian:
        """Takes the median of public norms as the clip norm.

        Args:
            public_norms: The norms of the public clients' updates.

        Returns:
            The clip of the next round.
        """
        return replace(self, clip_norm=public_median(public_norms, self.clip_norm))


@part("clip.share-of-mean")
@dataclass(frozen=True)
class ShareOfMean(Flat):
    """A share of the mean norm of an update in a run without privacy (clipping paper, section 2.2).

    Private data decides the clip norm, and no noise covers that. So a release with it has no
    guarantee.

    Attributes:
        share: The share of the mean norm.
        rounds: The rounds of the run without privacy; None for as many as the run.
    """

    share: float = 0.5
    rounds: int | None = None
    adapts_to = "raw"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share < math.inf or (self.rounds is not None and self.rounds < 1):
            raise DpflError(
                "A clip from a run without privacy has a share above 0 of the mean, and 1 round of "
                "it or more."
            )

    def adapt(self, norms: Sequence[float]) -> ShareOfMean:
        """Takes a share of the mean norm as the clip norm.

        Args:
            norms: The norms of the updates in the run without privacy.

        Returns:
            The clip of the run; unchanged if the mean is no number.
        """
        mean = math.fsum(norms) / len(norms) if norms else 0.0
        return replace(self, clip_norm=self.share * mean) if 0 < mean < math.inf else self


@part("clip.model")
@dataclass(frozen=True)
class ModelClip(Flat):
    """A bound on the client's whole model (clipping paper, section 2.1). It is known to bias
    FedAvg.
    """

    bounds = "model"


@part("clip.none", optional=("clip_norm",))
@dataclass(frozen=True)
class NoClip(VectorClip):
    """No bound: a sum of such vectors has no sensitivity, so no noise makes it private."""

    clip_norm: float = math.inf
    bounds = "nothing"
    adapts_to = ""

    def factors(self, norms: Tensor) -> Tensor:
        return torch.ones_like(norms)


def group_norms(vector: Tensor, groups: Groups, offsets: Sequence[int]) -> Tensor:
    """Bounds the norm of each group of one flat vector from above.

    Args:
        vector: The vector.
        groups: The entries that share a bound.
        offsets: Where each entry begins, and the end of the last: one more than entries.

    Returns:
        The norms in float64.
    """
    squares = torch.cat([squared_norms(vector[None, a:b]) for a, b in pairwise(offsets)])
    return torch.stack([squares[list(members)].sum() for members in groups]).sqrt()


def measure_norms(vector: Tensor, clip: Clip | None = None) -> float:
    """Measures one vector, by the clip's own measure if it has one.

    Args:
        vector: The vector.
        clip: The clip; None for the Euclidean norm.

    Returns:
        An upper bound on the measure.
    """
    return float(_norm(vector, clip))


def _norm(vector: Tensor, clip: Clip | None) -> Tensor:
    """By the clip's own measure, where it has one; an upper bound, in float64."""
    return (
        clip.norms(vector[None])
        if isinstance(clip, MeasuringClip)
        else squared_norms(vector[None]).sqrt()
    )


def clip_vector(
    vector: Tensor,
    clip: Clip,
    names: Sequence[str],
    offsets: Sequence[int],
    out: Tensor | None = None,
) -> tuple[Tensor, bool]:
    """Brings one unit's vector inside its bound.

    Args:
        vector: The vector.
        clip: The clip.
        names: The names of the layout's entries.
        offsets: Where each entry begins, and the end of the last.
        out: Memory for the result; None for new memory.

    Returns:
        The clipped vector, and whether it was inside before.
    """
    if isinstance(clip, ReshapingClip):
        shaped = clip.clipped(vector[None])[0]
        inside = torch.equal(shaped, vector)
        return shaped if out is None else out.copy_(shaped), inside
    groups = clip.groups(names)
    if len(groups) == 1:
        factor = float(clip.factors(_norm(vector, clip)[None]))
        return torch.mul(vector, factor, out=out), factor >= 1
    factors = clip.factors(group_norms(vector, groups, offsets)[None])[0]
    clipped = vector.clone() if out is None else out.copy_(vector)
    for factor, members in zip(factors, groups, strict=True):
        for index in members:
            clipped[offsets[index] : offsets[index + 1]] *= float(factor)
    return clipped, bool((factors >= 1).all())
