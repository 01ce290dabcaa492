"""What a partition says of itself before it deals."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpfl.data.partition_kinds import Partition


class PartitionKind:
    """The base of the partitions that dpfl has. A user's partition may be a plain function."""

    @property
    def deals_by_class(self) -> bool:
        """Whether it deals by classes, and so needs labels that are classes."""
        return False

    @property
    def assigns_rows(self) -> bool:
        """Whether it is the user's own word on every row, whosever the row is."""
        return False

    @property
    def names(self) -> tuple[str, ...]:
        """The names that it gives to the clients; none for most."""
        return ()


def kind_of(how: Partition) -> PartitionKind:
    """Says what kind of partition it is.

    Args:
        how: The partition.

    Returns:
        The partition itself; for a user's own function, the kind that has no traits.
    """
    return how if isinstance(how, PartitionKind) else PartitionKind()
