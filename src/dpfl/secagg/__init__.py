"""Secure aggregation: a server learns the sum of its clients' vectors, and nothing else of them.

This is the protocol of Bonawitz et al., *Practical secure aggregation for privacy-preserving
machine learning* (CCS 2017), over a complete graph of 3 to 100 members, as state machines without
I/O. `SumMember` is a client, `MaskedSum` is the server, `SumGroup` says who sums together.

Member u hides its integers x_u behind its own mask, from a seed b_u, and behind one mask per pair,
from a seed s_uv that only u and v know:

    y_u = x_u + PRG(b_u) + sum_(v > u) PRG(s_uv) - sum_(v < u) PRG(s_uv)    modulo 2^32 or 2^64

In the sum over all members, the masks of pairs cancel. The server subtracts PRG(b_u), for which the
members send it shares of b_u. If a member w is missing, its masks with the others do not cancel, so
the members also send the seeds s_uw. The seed b_w of a missing member and the seed of a pair of
survivors are never revealed. The steps, with the paper's names:

| step | member | server |
|---|---|---|
| set-up (AdvertiseKeys) | `SumMember.advertisement, receive_keys` | `present`, `check`, `session` |
| exchange 1 (ShareKeys and MaskedInputCollection) | `expect`, `mask` | `MaskedSum.take` |
| exchange 2 (the survivors, U3) | `agree` | `survivor_lists`, and `vote` or `open` |
| exchange 3 (ConsistencyCheck, Unmasking), if somebody is missing | `open` | `votes`, `open` |
| the sum | | `total` |

`present` restricts the group to the members who advertised keys, `check` verifies that a member
signed its keys, and `session` digests run, members and keys: another session has other masks.

What differs from the paper:

- Keys are agreed once per session, and seeds are derived from them for each sum. A round takes two
  exchanges, or three with drop-outs, instead of five.
- *Seeds* are shared out, not keys: what is opened belongs to one sum, and no key is ever opened.
- Shares and masked numbers travel together. A member whose shares do not open counts as missing.
- The threshold h = floor((K + t) / 2) + 1 of K members, t of whom may collude with the server,
  makes two lists of survivors impossible. No signatures are needed if nobody is missing.
- Digests of the seeds let the server find wrong shares. In the paper, a wrong share gives a wrong
  sum.

`server/aggregation/round_sum.py` (`SimulatedMaskedSum`) drives a whole sum in one process, and
`engines/secure_sum.py` drives it over nodes. docs/secagg.md has the security argument, and what is
not proven.
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
