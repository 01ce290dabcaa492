"""Sums that show nothing but themselves: Bonawitz et al. 2017 over a complete graph, without I/O (docs/secagg.md).

`Group` says who sums together, `Member` is the side of the one who has something to hide, `Sum` that of the server.
"""

from dpfl.secagg.group import Group
from dpfl.secagg.keys import check, present, session
from dpfl.secagg.member import Member
from dpfl.secagg.messages import At, Card, Masked, Opened, Refusal, Repeat, Shown, Vote, Votes, Why
from dpfl.secagg.sum import Sum

__all__ = [
    "At",
    "Card",
    "Group",
    "Masked",
    "Member",
    "Opened",
    "Refusal",
    "Repeat",
    "Shown",
    "Sum",
    "Vote",
    "Votes",
    "Why",
    "check",
    "present",
    "session",
]
