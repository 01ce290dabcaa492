"""Which parts of one release may be together: tables of what no proof covers.

A release whose own parts have no sensitivity refuses itself, so that `privacy/` can be read alone.
What several releases, or a release and other parts of an algorithm, may not be together is in
`server/rules.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from dpfl.errors import DpflError

if TYPE_CHECKING:
    from dpfl.privacy.mechanisms.release import Release
    from dpfl.privacy.mechanisms.update_release import UpdateRelease

Objection = tuple[Callable[["Release"], object], str]
"""Whether an objection applies to a release, and what to say. `{0}` stands for the release."""
UpdateObjection = tuple[Callable[["UpdateRelease"], object], str]
"""The same for the release of a client's whole update."""


def _clip_bounds_what_noise_covers(release: Release) -> bool:
    if _is_haar(release):
        return release.clip.coefficient_bound == "weighted"
    return release.clip.bounds_vector


def _is_haar(release: Release) -> bool:
    return release.noise_kind is not None and release.noise_kind.on_coefficients


OBJECTIONS: tuple[Objection, ...] = (
    (
        lambda release: release.has_noise and release.clip.bounds_nothing,
        "Noise without a clip protects nothing; choose a clip, for example a flat level of 1.0.",
    ),
    (
        lambda release: release.has_noise and release.clip.bounds_model and not release.is_update,
        "Noise on clipped models has no proof here; clip the difference instead.",
    ),
    (
        lambda release: (
            release.has_noise and release.clip.bounds_coefficients and not _is_haar(release)
        ),
        "A clip of Haar coefficients does not bound the vector itself; use Haar noise with it.",
    ),
    (
        lambda release: release.shared_by is not None and release.shared_by < 2,
        "Noise must be shared by at least 2 clients, not {0.shared_by}: each of them can subtract "
        "its own share.",
    ),
    (
        lambda release: release.whole_run != release.sampling.takes_turns,
        "Correlated noise needs clients that take fixed turns, and only such noise works with "
        "them; choose BandedNoise together with Cyclic.",
    ),
    (
        lambda release: release.shared_by is not None and release.clip.follows_count,
        "Quantile clipping needs its noise at the server, or privacy.aggregation = 'secure'; "
        "choose noise = 'server' for both, or a fixed clip.",
    ),
    (
        lambda release: release.whole_run and (release.clip.adapts_to or release.shared_by),
        "Correlated noise needs one clip norm for all rounds and one place that adds it; use a "
        "fixed clip, and leave out shared_by.",
    ),
)
"""Objections to any release."""

SUM_OBJECTIONS: tuple[Objection, ...] = (
    (
        lambda release: (
            release.noise is None
            or release.shared_by
            or release.divide_by_drawn
            or release.divisor
            or release.is_update
        ),
        "A secure sum needs clipped gradients or updates with noise, and no divisor of its own; "
        "leave out shared_by, divisor and divide_by_drawn.",
    ),
    (
        lambda release: release.noise_kind is not None and not release.noise_kind.can_be_shared,
        "A secure sum is not proven for noise that later rounds take back, or that follows what "
        "was released; set privacy.aggregation = 'plain'.",
    ),
    (
        lambda release: not _clip_bounds_what_noise_covers(release),
        "In a secure sum the clip must bound what the noise is added to; choose a flat one, or "
        "variant = 'sound'.",
    ),
    (
        lambda release: release.clip.adapts_to and not release.clip.follows_count,
        "A clip that follows public clients is not made for secure sums; choose a fixed one, or a "
        "quantile, or set privacy.aggregation = 'plain'.",
    ),
)
"""Objections to a release whose noise clients share inside a secure sum."""

LAST_OBJECTIONS: tuple[Objection, ...] = (
    (
        lambda release: (
            release.divisor is not None
            and (release.divide_by_drawn or not 0 < release.divisor < math.inf)
        ),
        "A noisy sum is divided by a number above 0 or by what was drawn, not by {0.divisor}.",
    ),
    (
        lambda release: release.clip.follows_count and _is_haar(release),
        "The count of quantile clipping is one release with Gaussian noise; use that, or a fixed "
        "clip.",
    ),
)
"""Objections to any release, after those to secure sums."""


UPDATE_OBJECTIONS: tuple[UpdateObjection, ...] = (
    (
        lambda release: not 0 < release.sensitivity_bound < math.inf,
        "The noise of an update needs a bound on how far one unit can change it; set "
        "sensitivity_bound to a positive number.",
    ),
    (
        lambda release: release.protects not in ("sample", "client"),
        "The noise of an update protects a sample or a client, not {0.protects!r}.",
    ),
    (
        lambda release: not release.sampling.takes_all,
        "No units are sampled for an update, so sampling does not lower its cost; set sampling to "
        "All().",
    ),
    (
        lambda release: (
            release.shared_by is not None or release.divide_by_drawn or release.divisor is not None
        ),
        "An update has noise of its own and no divisor; leave out divisor, shared_by and "
        "divide_by_drawn.",
    ),
    (
        lambda release: _is_haar(release),
        "The bound on an update does not bound its Haar coefficients; add Haar noise in every step "
        "or to the sum of a round.",
    ),
    (
        lambda release: release.protects_client and not release.covers(release.diameter),
        "Two updates inside the clip can be twice its norm apart, but sensitivity_bound = "
        "{0.sensitivity_bound:g}; give at least {0.diameter:g}.",
    ),
)
"""Objections to the release of a client's whole update, after those to any release."""


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


def check_update_parts(release: UpdateRelease) -> None:
    """Checks that the release of an update has a proof, after `check_parts`.

    Args:
        release: The release.

    Raises:
        DpflError: If an objection applies. The message is that of the first one.
    """
    for applies, message in UPDATE_OBJECTIONS:
        if applies(release):
            raise DpflError(message.format(release))
