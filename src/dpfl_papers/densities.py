"""The noise on one element of a gradient, in closed form. Figure 4 of the wavelet paper shows its
densities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from dpfl.privacy.mechanisms.noises.haar_release import HaarClip, HaarNoise
from dpfl_papers.cells import Outcome


@dataclass(frozen=True)
class ElementNoise:
    """The noise on one element of a gradient.

    Attributes:
        kind: "plain" Gaussian noise; noise on Haar coefficients as "published", or by Lemma 2
            ("lemma"); or the noise "needed" for the claim of sigma.
        sigma: Noise multiplier.
        parameters: Number of elements of the gradient.
    """

    kind: str
    sigma: float
    parameters: int
    tag: ClassVar[str] = "NoiseOfAnElement"

    @property
    def content(self) -> Mapping[str, Any]:
        """The attributes by name."""
        return asdict(self)

    def with_settings(self, settings: Sequence[str]) -> ElementNoise:
        """Returns the work unchanged, because it has no experiment.

        Args:
            settings: Settings of the form `section.key=value`.

        Returns:
            This work.
        """
        return self

    def run(self, seed: int, data_dir: Path | None, prefixes: Path | None = None) -> Outcome:
        """Computes the deviation.

        Args:
            seed: Seed of all random draws.
            data_dir: Folder of the data sets; by default `DPFL_DATA`.
            prefixes: Not used.

        Returns:
            The outcome; the same for every seed.
        """
        return Outcome(self.deviation())

    def deviation(self) -> float:
        """Computes the standard deviation of the noise.

        Returns:
            The deviation in units of the clip.
        """
        if self.kind == "plain":
            return self.sigma
        noise = HaarNoise(self.sigma, lemma=self.kind == "lemma").for_model([self.parameters])
        each = self.sigma * math.sqrt(noise.energy(self.parameters) / self.parameters)
        if self.kind != "needed":
            return each
        return (
            each
            * self.sigma
            / noise.effective(HaarClip(1.0, "coefficients").for_model([self.parameters]))
        )
