"""What the clients of one machine share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpfl import tasks
from dpfl.client.disclosure_rules import DisclosureRules
from dpfl.models import Buildable
from dpfl.privacy import Randomness
from dpfl.privacy.ledger.client_ledgers import ClientLedgers

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ClientContext:
    """Everything that the clients of one machine share; the tensors may lie in shared memory."""

    run: str
    model: Buildable
    task: tasks.Task
    x: Tensor
    y: Tensor
    clients: Sequence[Tensor]
    declared_sizes: Sequence[int]
    randomness: Randomness
    ledgers: ClientLedgers | None = None
    fingerprint: str = ""
    policy: DisclosureRules = field(default_factory=DisclosureRules)
    public: Sequence[int] = ()
    """Clients whose data is nobody's secret."""
    held_out: int | None = None
    """Where in `clients` those samples begin that each client keeps out of training, for a
    metric.
    """
    unit_ids: Tensor | None = None
    """Whose each row is, where the unit is a person: all that one has at a client. Sizes are
    declared in persons then.
    """
    rows_per_person: int | None = None
    arithmetic: str = "exact"
    """Whether a unit's numbers are the same in every batch ("exact"), or may differ in the last
    bits ("fast").
    """
    timed: bool = False
    """Whether somebody sees how long an answer takes, so that no draw may change it."""
