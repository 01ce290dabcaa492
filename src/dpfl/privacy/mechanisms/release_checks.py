"""Checks which parts of a release may be together: a table of what no proof covers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from dpfl.errors import DpflError

if TYPE_CHECKING:
    from dpfl.privacy.mechanisms.release import Release

Objection = tuple[Callable[["Release"], object], str]
"""Whether an objection applies to a release, and what to say. `{0}` stands for the release."""


def _clip_bounds_what_noise_covers(release: Release) -> bool:
    if _is_haar(release):
        return release.clip.coefficient_bound == "weighted"
    return release.clip.bounds in ("norm", "layers")


def _is_haar(release: Release) -> bool:
    return release.noise_kind is not None and release.noise_kind.on_coefficients


OBJECTIONS: tuple[Objection, ...] = (
    (
        lambda one: one.private and one.clip.bounds == "nothing",
        "Noise without a clip protects nothing; choose a clip, for example a flat level of 1.0.",
    ),
    (
        lambda one: one.private and one.clip.bounds == "model" and not one.of_models,
        "Noise on clipped models has no proof here; clip the difference instead.",
    ),
    (
        lambda one: one.private and one.clip.bounds == "coefficients" and not _is_haar(one),
        "A clip of Haar coefficients does not bound the vector itself; use Haar noise with it.",
    ),
    (
        lambda one: one.shared_by is not None and one.shared_by < 2,
        "Noise must be shared by at least 2 clients, not {0.shared_by}: each of them can subtract "
        "its own share.",
    ),
    (
        lambda one: one.whole_run != one.sampling.takes_turns,
        "Noise that later rounds take back needs clients in fixed turns, and they need such noise.",
    ),
    (
        lambda one: one.shared_by is not None and one.clip.adapts_to == "count",
        "Quantile clipping needs its noise at the server, or privacy.aggregation = 'secure'; "
        "choose noise = 'server' for both, or a fixed clip.",
    ),
    (
        lambda one: one.whole_run and (one.clip.adapts_to or one.shared_by),
        "Noise that later rounds take back needs one clip level for all of them, and is made in "
        "one place.",
    ),
)
"""Objections to any release."""

SUM_OBJECTIONS: tuple[Objection, ...] = (
    (
        lambda one: (
            one.noise is None
            or one.shared_by
            or one.divide_by_drawn
            or one.divisor
            or one.of_models
        ),
        "A secure sum is of clipped vectors with noise that all clients share, divided by nothing "
        "that was drawn.",
    ),
    (
        lambda one: one.noise_kind is not None and not one.noise_kind.can_be_shared,
        "A secure sum is not proven for noise that later rounds take back, or that follows what "
        "was released; set privacy.aggregation = 'plain'.",
    ),
    (
        lambda one: not _clip_bounds_what_noise_covers(one),
        "In a secure sum the clip must bound what the noise is added to; choose a flat one, or "
        "variant = 'sound'.",
    ),
    (
        lambda one: one.clip.adapts_to not in ("", "count"),
        "A clip that follows public clients is not made for secure sums; choose a fixed one, or a "
        "quantile, or set privacy.aggregation = 'plain'.",
    ),
)
"""Objections to a release whose noise clients share inside a secure sum."""

LAST_OBJECTIONS: tuple[Objection, ...] = (
    (
        lambda one: (
            one.divisor is not None and (one.divide_by_drawn or not 0 < one.divisor < math.inf)
        ),
        "A noisy sum is divided by a number above 0 or by what was drawn, not by {0.divisor}.",
    ),
    (
        lambda one: one.clip.adapts_to == "count" and _is_haar(one),
        "The count of quantile clipping is one release with Gaussian noise; use that, or a fixed "
        "clip.",
    ),
)
"""Objections to any release, after those to secure sums."""


def check_parts(release: Release) -> None:
    """Checks that a release has a proof for the parts that it is made of.

    Args:
        release: The release.

    Raises:
        DpflError: If an objection applies. The message is that of the first one.
    """
    sums = SUM_OBJECTIONS if release.noise_shares is not None else ()
    for applies, message in (*OBJECTIONS, *sums, *LAST_OBJECTIONS):
        if applies(release):
            raise DpflError(message.format(release))
