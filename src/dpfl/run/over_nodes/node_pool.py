"""The interface between a run and the nodes on other machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dpfl.engines.remote import RemoteEngine
    from dpfl.privacy.ledger.client_ledgers import ClientLedgers
    from dpfl.run.records.folder import RunFolder


class NodePool(Protocol):
    """The nodes of one run, whoever found them."""

    @property
    def nonce(self) -> str:
        """The random name that the nodes know the run by."""

    def engine(
        self, run: str, ledgers: ClientLedgers | None, folder: RunFolder, size: int
    ) -> RemoteEngine:
        """Builds the engine that sends rounds to the nodes.

        Args:
            run: The name of the run.
            ledgers: Where the server counts what it orders; None if no client pays by itself.
            folder: The run's folder.
            size: How many numbers the model has.

        Returns:
            The engine.
        """

    def collect_statements(self, folder: RunFolder) -> None:
        """Asks each node at the end, while it is still there, for its own signed statement.

        Args:
            folder: The run's folder, which keeps the statements.
        """
