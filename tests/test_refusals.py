"""Every reason of a refusal has one sentence."""

from dpfl.refusals import PASSING, SENTENCES, ProtocolError, RefusalReason


def test_every_reason_has_a_sentence_of_its_own() -> None:
    assert set(SENTENCES) == set(RefusalReason)
    assert len(set(SENTENCES.values())) == len(SENTENCES)
    assert all(sentence.endswith(".") for sentence in SENTENCES.values())


def test_a_refusal_of_budget_or_policy_does_not_pass() -> None:
    """The server asks again only where the next order may fare better."""
    assert set(RefusalReason) > PASSING
    lasting = {
        RefusalReason.OVER_BUDGET,
        RefusalReason.WITHOUT_NOISE,
        RefusalReason.TOO_LITTLE_NOISE,
        RefusalReason.ROLLED_BACK,
    }
    assert not lasting & PASSING


def test_an_error_carries_its_reason_and_nothing_of_the_message() -> None:
    error = ProtocolError(RefusalReason.BAD_ARRAYS)
    assert error.reason is RefusalReason.BAD_ARRAYS
    assert str(error) == "bad-arrays"
