"""Sums that show nothing but themselves: Bonawitz et al. 2017 over a complete graph, without I/O
(docs/secagg.md).

`Group` says who sums together, `Member` is the side of the one who has something to hide, `Sum`
that of the server.
"""

from typing import TYPE_CHECKING

from dpfl.deprecation import deprecated_names
from dpfl.secagg.group import SumGroup
from dpfl.secagg.keys import check, present, session
from dpfl.secagg.member import SumMember
from dpfl.secagg.messages import (
    KeyAdvertisement,
    MaskedInput,
    MemberRefusal,
    RefusalCause,
    RepeatSum,
    SumId,
    SurvivorList,
    SurvivorVote,
    SurvivorVotes,
    UnmaskingShares,
)
from dpfl.secagg.sum import MaskedSum

__all__ = [
    "KeyAdvertisement",
    "MaskedInput",
    "MaskedSum",
    "MemberRefusal",
    "RefusalCause",
    "RepeatSum",
    "SumGroup",
    "SumId",
    "SumMember",
    "SurvivorList",
    "SurvivorVote",
    "SurvivorVotes",
    "UnmaskingShares",
    "check",
    "present",
    "session",
]

if not TYPE_CHECKING:
    __getattr__ = deprecated_names(
        __name__,
        {
            "At": "SumId",
            "Card": "KeyAdvertisement",
            "Group": "SumGroup",
            "Masked": "MaskedInput",
            "Member": "SumMember",
            "Opened": "UnmaskingShares",
            "Refusal": "MemberRefusal",
            "Repeat": "RepeatSum",
            "Shown": "SurvivorList",
            "Sum": "MaskedSum",
            "Vote": "SurvivorVote",
            "Votes": "SurvivorVotes",
            "Why": "RefusalCause",
        },
    )
