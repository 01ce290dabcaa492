"""What is added to a gradient that a client goes along: it leads back to the global model, and
costs no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Drift:
    """prox (x - x_0) of FedProx, and the c - c_i of SCAFFOLD, where there are any."""

    start: Tensor
    prox: float = 0.0
    correction: Tensor | None = None

    def __bool__(self) -> bool:
        return bool(self.prox) or self.correction is not None

    def added(self, gradient: Tensor, here: Tensor) -> Tensor:
        """Adds the drift to a gradient.

        Args:
            gradient: The gradient; it is changed in place.
            here: The model that it was taken at.

        Returns:
            The gradient + prox (x - x_0) + (c - c_i).
        """
        if self.prox:
            gradient.add_(here - self.start, alpha=self.prox)
        return gradient if self.correction is None else gradient.add_(self.correction)
