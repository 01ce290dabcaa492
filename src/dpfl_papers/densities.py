"""The noise on one number of a gradient, in closed form: what Figure 4 of the wavelet paper draws
the densities of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from dpfl.privacy.mechanisms.haar_release import HaarClip, HaarNoise
from dpfl_papers.cells import Outcome


@dataclass(frozen=True)
class ElementNoise:
    """Its deviation over the clip: `plain`, on Haar coefficients as `published` or by its `lemma`,
    or as `needed` for sigma.
    """

    kind: str
    sigma: float
    parameters: int
    tag: ClassVar[str] = "NoiseOfAnElement"

    @property
    def content(self) -> Mapping[str, Any]:
        return asdict(self)

    def scaled(self, settings: Sequence[str]) -> ElementNoise:
        return self

    def run(self, seed: int, data_dir: Path | None, beginnings: Path | None = None) -> Outcome:
        return Outcome(self.deviation())

    def deviation(self) -> float:
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
