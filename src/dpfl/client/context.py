"""The context that the clients of one machine share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dpfl import tasks
from dpfl.client.dataset import ClientDataset, ClientDatasets
from dpfl.client.disclosure_rules import DisclosureRules
from dpfl.client.task import ClientTask
from dpfl.models import Buildable
from dpfl.privacy import Randomness
from dpfl.privacy.ledger.client_ledgers import ClientLedgers


@dataclass(frozen=True)
class ClientContext:
    """The context that the clients of one machine share.

    Attributes:
        run: The run that the clients work for.
        model: What builds the model.
        task: What the model predicts.
        data: The data of each client.
        randomness: Where batches and noise are drawn from.
        ledgers: The ledgers that the clients pay from; None where nothing is paid for.
        fingerprint: A digest of the model's code, which names its releases; None to take it from
            the model that the runner builds.
        disclosure_rules: What the owners of the data disclose.
        public: Clients with public data, which have nothing to hide.
        arithmetic: "exact" where a unit's numbers are the same in every batch; "fast" where they
            may differ in the last bits.
        timed: Whether somebody sees how long an answer takes, so that no draw may change it.
    """

    run: str
    model: Buildable
    task: tasks.Task
    data: ClientDatasets
    randomness: Randomness
    ledgers: ClientLedgers | None = None
    fingerprint: str | None = ""
    disclosure_rules: DisclosureRules = field(default_factory=DisclosureRules)
    public: Sequence[int] = ()
    arithmetic: str = "exact"
    timed: bool = False

    def dataset(self, task: ClientTask) -> ClientDataset:
        """Finds the data that a task is about.

        Args:
            task: The task; one that asks for a metric is about the data to measure on.

        Returns:
            What the task's client trains on, or what it measures on.
        """
        if task.asks_metric:
            return self.data.evaluation(task.client)
        return self.data.training(task.client)
