"""Terms that FedProx and SCAFFOLD add to a client's gradients. They depend on models alone, so they
cost no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Drift:
    """The term prox (x - x_0) of FedProx and the term c - c_i of SCAFFOLD.

    Attributes:
        start: The global model x_0.
        prox: The weight of the pull back to it; 0 for none.
        correction: The difference c - c_i of control variates, or None.
    """

    start: Tensor
    prox: float = 0.0
    correction: Tensor | None = None

    def __bool__(self) -> bool:
        return bool(self.prox) or self.correction is not None

    def add_to(self, gradient: Tensor, here: Tensor) -> Tensor:
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
