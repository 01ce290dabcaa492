"""Bounds on what one unit (a sample, or a client) can add to a sum."""

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
    @property
    def clip_norm(self) -> float:
        """The largest norm of one unit after clipping: the sensitivity of a sum of units to adding
        or removing one.
        """

    @property
    def bounds(self) -> str:
        """What has that norm: the vector ("norm"), its "layers" each, its "coefficients", the whole
        "model", or "nothing".
        """

    @property
    def adapts_to(self) -> str:
        """What the level follows: a paid "count", "public" clients, a run without privacy ("raw"),
        or nothing ("").
        """

    def groups(self, names: Sequence[str]) -> Groups:
        """Which entries of the layout share a bound."""

    def factors(self, norms: Tensor) -> Tensor:
        """Norms of (units, groups) to multipliers of the same shape."""


@runtime_checkable
class MeasuringClip(Protocol):
    """A clip that bounds something else than the norm of the vector."""

    def norms(self, rows: Tensor) -> Tensor:
        """What is bounded, for each row (units, n)."""


@runtime_checkable
class ReshapingClip(Protocol):
    """A clip that shrinks parts of a vector by factors of their own, and is not by layers."""

    def clipped(self, rows: Tensor) -> Tensor:
        """Each row (units, n) inside its bound."""


@runtime_checkable
class AdaptiveClip(Protocol):
    """A clip whose level follows what it adapts to."""

    def adapt(self, seen: Any, /) -> Clip:
        """For the next round, by what was seen in this one."""


def adapt_clip(clip: Clip, seen: Any) -> Clip:
    return clip.adapt(seen) if isinstance(clip, AdaptiveClip) else clip


def check_clip_norm(level: float) -> None:
    if not (level >= SMALLEST and math.isfinite(level)):
        raise DpflError(
            f"The clip level must be a positive number, not {level}; 1.0 is a common start."
        )


def shrink_factors(norms: Tensor, bound: float) -> Tensor:
    """clip(g, C) = g min(1, C / |g|)."""
    factors = (bound * (1 - MARGIN) / norms.clamp_min(1e-30)).clamp_max(1.0)
    return factors.where(factors > SMALLEST**2, 0.0)


def public_median(norms: Sequence[float], otherwise: float) -> float:
    """Of public norms, where it can be a level."""
    level = float(torch.tensor(list(norms), dtype=torch.float64).median())
    return level if level >= SMALLEST and math.isfinite(level) else otherwise


def single_group(names: Sequence[str]) -> Groups:
    return (tuple(range(len(names))),)


@part("clip.flat")
@dataclass(frozen=True)
class Flat:
    """One bound on the whole vector."""

    clip_norm: float
    bounds = "norm"
    adapts_to = ""

    def __post_init__(self) -> None:
        check_clip_norm(self.clip_norm)

    def groups(self, names: Sequence[str]) -> Groups:
        return single_group(names)

    def factors(self, norms: Tensor) -> Tensor:
        return shrink_factors(norms, self.clip_norm)


@part("clip.per-layer")
@dataclass(frozen=True)
class PerLayer:
    """The same bound for every layer, chosen so that the whole vector keeps the level: C /
    sqrt(layers) each.
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
class Quantile:
    """A level that follows a quantile of the norms (Andrew et al. 2021), by a noisy count that is
    paid for.

    Each unit also sends b - 1/2, with b = 1 where it was not clipped; the sum of these gets noise
    of standard deviation `count_noise`. Both sums are one Gaussian release of multiplier z, if the
    vector's noise has z_v with z^-2 = z_v^-2 + (2 count_noise)^-2.
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

    def groups(self, names: Sequence[str]) -> Groups:
        return single_group(names)

    def factors(self, norms: Tensor) -> Tensor:
        return shrink_factors(norms, self.clip_norm)

    def vector_multiplier(self, noise_multiplier: float) -> float:
        """The share of the noise that is left for the vector."""
        left = noise_multiplier**-2 - (2 * self.count_noise) ** -2
        if left <= 0:
            raise DpflError(
                f"count_noise = {self.count_noise} spends the whole release on the count of "
                "clipped units; "
                f"raise it above {noise_multiplier / 2:.3g} (a twentieth of a large cohort is "
                "usual), or use a fixed clip."
            )
        return float(left**-0.5)

    def adapt(self, noisy_fraction: float) -> Quantile:
        """C <- C exp(-rate (b - quantile)), with b the noisy fraction that was not clipped."""
        fraction = min(max(noisy_fraction, 0.0), 1.0)
        return replace(
            self, clip_norm=self.clip_norm * math.exp(-self.rate * (fraction - self.quantile))
        )


@part("clip.public-median")
@dataclass(frozen=True)
class PublicMedian:
    """A level equal to the median norm on public clients, found anew each round; costs no
    privacy.
    """

    clip_norm: float = 1.0
    bounds = "norm"
    adapts_to = "public"

    def __post_init__(self) -> None:
        check_clip_norm(self.clip_norm)

    def groups(self, names: Sequence[str]) -> Groups:
        return single_group(names)

    def factors(self, norms: Tensor) -> Tensor:
        return shrink_factors(norms, self.clip_norm)

    def adapt(self, public_norms: Sequence[float]) -> PublicMedian:
        return replace(self, clip_norm=public_median(public_norms, self.clip_norm))


@part("clip.share-of-mean")
@dataclass(frozen=True)
class ShareOfMean(Flat):
    """`share` of the mean norm of an update in a run without privacy, of `rounds` rounds or as many
    as the run (clipping paper, section 2.2): the data decides it, and no noise covers that."""

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
        mean = math.fsum(norms) / len(norms) if norms else 0.0
        return replace(self, clip_norm=self.share * mean) if 0 < mean < math.inf else self


@part("clip.model")
@dataclass(frozen=True)
class ModelClip(Flat):
    """A bound on the client's whole model instead of its update (clipping paper, section 2.1);
    known to bias FedAvg.
    """

    bounds = "model"


@part("clip.none", optional=("clip_norm",))
@dataclass(frozen=True)
class NoClip:
    """No bound: nothing private can be said of a sum of such vectors."""

    clip_norm: float = math.inf
    bounds = "nothing"
    adapts_to = ""

    def groups(self, names: Sequence[str]) -> Groups:
        return single_group(names)

    def factors(self, norms: Tensor) -> Tensor:
        return torch.ones_like(norms)


def group_norms(vector: Tensor, groups: Groups, offsets: Sequence[int]) -> Tensor:
    """Upper bounds on the norm of each group of one flat vector.

    Args:
        vector: The vector.
        groups: Entries that share a bound.
        offsets: Where each entry begins, and the end of the last: one more than entries.

    Returns:
        The norms in float64.
    """
    squares = torch.cat([squared_norms(vector[None, a:b]) for a, b in pairwise(offsets)])
    return torch.stack([squares[list(members)].sum() for members in groups]).sqrt()


def measure_norms(vector: Tensor, clip: Clip | None = None) -> float:
    """The length of one vector, by the clip's own measure where it has one."""
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
    """One unit's vector inside its bound, in new memory or in `out`, and whether it was inside
    before.
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
