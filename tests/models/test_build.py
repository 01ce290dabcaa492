"""Why a module cannot be built, as a sentence for the user."""

import pytest
from torch import nn

from dpfl import models
from dpfl.errors import DpflError
from dpfl.models.build import build_module


class Broken:
    """A description whose module cannot be built."""

    name = "broken"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def build(self, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
        raise self.error


def test_a_module_is_that_of_its_description() -> None:
    module = build_module(models.mlp(hidden=3), (4,), 2, 0)
    assert [tuple(parameter.shape) for parameter in module.parameters()] == [
        (3, 4),
        (3,),
        (2, 3),
        (2,),
    ]


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RuntimeError("not enough memory\nin a trace"), r"\(not enough memory\)"),
        (MemoryError(), r"\(MemoryError\)"),
        (ValueError("sizes differ"), r"\(sizes differ\)"),
    ],
)
def test_the_cause_is_named_in_one_line(error: Exception, cause: str) -> None:
    with pytest.raises(DpflError, match=rf"broken cannot be built for .* {cause}: choose"):
        build_module(Broken(error), (4,), 2, 0)


def test_a_sentence_for_the_user_stays_as_it_is() -> None:
    with pytest.raises(DpflError, match=r"^Give it a layer\.$"):
        build_module(Broken(DpflError("Give it a layer.")), (4,), 2, 0)
