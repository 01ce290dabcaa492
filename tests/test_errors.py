"""What a user can act on is one kind of error."""

from dpfl.errors import DivergenceError, DpflError


def test_divergence_is_an_error_that_a_user_can_act_on() -> None:
    assert issubclass(DivergenceError, DpflError)
    assert not issubclass(DpflError, ValueError), "a bug must not be taken for a sentence"
