"""The steps of a secure sum come out of a message as they went in."""

from __future__ import annotations

import numpy as np
import pytest

from dpfl.protocol import secure_sum_messages
from dpfl.refusals import ProtocolError
from dpfl.secagg import UnmaskingShares
from tests.secagg.summing import at, begun, group, met, numbers

OF = group(4, 3)
MEMBERS = met(OF)


def test_keys_come_out_as_they_went_in() -> None:
    for member in MEMBERS.values():
        words = secure_sum_messages.advertisement_to_words(member.advertisement)
        assert secure_sum_messages.advertisement_from_words(words) == member.advertisement
        with pytest.raises(ProtocolError):
            secure_sum_messages.advertisement_from_words(words | {"mask": words["mask"][:-2]})
        with pytest.raises(ProtocolError):
            secure_sum_messages.advertisement_from_words({**words, "more": ""})


def test_a_sum_over_messages_is_the_sum() -> None:
    values, here = numbers(OF), at(MEMBERS)
    total = begun(OF, MEMBERS, values, here, silent=OF.names[3:])
    answers = {}
    for name, one in total.survivor_lists().items():
        words, arrays = secure_sum_messages.survivors_to_fields(one, len(OF.names))
        survivors = secure_sum_messages.survivors_from_fields(
            words["survivors"], arrays, here, name, len(OF.names)
        )
        assert survivors == one
        answers[name] = MEMBERS[name].agree(survivors)
        total.vote(answers[name])
    votes = secure_sum_messages.votes_from_words(
        secure_sum_messages.votes_to_words(total.votes())["votes"], here
    )
    assert votes == total.votes()
    for name in answers:
        shares = MEMBERS[name].open(votes)
        head, arrays = secure_sum_messages.shares_to_fields(shares)
        again = secure_sum_messages.shares_from_fields(head, arrays, here, name)
        assert isinstance(again, UnmaskingShares)
        assert again == shares
        total.open(again)
    assert (total.total() == sum(values[name] for name in OF.names[:3])).all()


def test_arrays_of_another_form_are_refused() -> None:
    for arrays in ({}, {"envelopes": np.zeros((1, 1), np.uint8)}):
        with pytest.raises(ProtocolError):
            secure_sum_messages.survivors_from_fields(
                list(OF.names), arrays, at(MEMBERS), OF.names[0], len(OF.names)
            )
