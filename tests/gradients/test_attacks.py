"""Attacks on float arithmetic: a server that chooses weights and layers, and persons that choose
their rows.

Each measures the moved length, that is, how far one unit moves the sum of clipped gradients, in
clip norms. It also compares the bits of all other units.
"""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpfl.client.descent.local_training import clipped_sum
from dpfl.client.task import ClientReply
from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel
from dpfl.models.sequences import build_transformer
from dpfl.privacy import Flat
from dpfl.privacy.mechanisms.clips.clip import PerLayer
from dpfl.privacy.mechanisms.clips.vector_clipping import clip_vector
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip
from dpfl.server.aggregation.aggregate import weighted_sum

LEVEL = 0.5
CLIP = Flat(LEVEL)
ALONE, PADDED = "exact: one unit at a time", "exact: padded chunks that passed the self-test"


class Composed(nn.Module):
    """Modules and a function that puts them together."""

    def __init__(self, together: Callable[..., Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.parts, self.together = nn.ModuleList(parts), together

    def forward(self, x: Tensor) -> Tensor:
        return self.together(x, *self.parts)


def recurrent() -> nn.Module:
    layers = nn.Embedding(20, 4), nn.LSTM(4, 3, batch_first=True), nn.Linear(3, 3)
    return Composed(lambda x, words, memory, head: head(memory(words(x))[0][:, -1]), *layers)


def transposed() -> nn.Module:
    layers = nn.Embedding(20, 6), nn.MultiheadAttention(6, 2), nn.Linear(6, 3)
    return Composed(
        lambda x, words, look, head: head(look(*[words(x).transpose(0, 1)] * 3)[0].mean(0)), *layers
    )


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bool]] = {
    "lstm": (recurrent, (2,), True),
    "attention, time first": (transposed, (6,), True),
    "transformer of the catalogue": (lambda: build_transformer((6,), 3, 8, 1, 2, 20), (6,), True),
    "sum of embeddings": (
        lambda: Composed(lambda x, e, h: h(e(x).sum(1)), nn.Embedding(20, 9), nn.Linear(9, 3)),
        (33,),
        True,
    ),
    "dilated, grouped, in one dimension": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 6, 3, 2, 1, dilation=2),
            nn.ReLU(),
            nn.Conv1d(6, 4, 3, groups=2),
            nn.Flatten(),
            nn.Linear(20, 3),
        ),
        (2, 15),
        False,
    ),
    "depthwise": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 1),
            nn.Conv2d(4, 4, 3, groups=4),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(36, 3),
        ),
        (2, 5, 5),
        False,
    ),
    "convolutions by Gram matrices": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 32, 3, 2), nn.ReLU(), nn.Conv2d(32, 16, 2), nn.Flatten(), nn.Linear(16, 3)
        ),
        (3, 6, 6),
        False,
    ),
    "instance norm": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.Flatten(), nn.Linear(36, 3)
        ),
        (1, 5, 5),
        False,
    ),
    "a sequence by one layer": (
        lambda: Composed(
            lambda x, a, h: h(a(x).sin().mean(1)), nn.Linear(40, 50), nn.Linear(50, 3)
        ),
        (3, 40),
        False,
    ),
}


def rows_for(name: str, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator, (_, shape, tokens) = torch.Generator().manual_seed(seed), MODELS[name]
    labels = torch.randint(3, (count,), generator=generator)
    if tokens:
        return torch.randint(20, (count, *shape), generator=generator), labels
    return torch.randn(count, *shape, generator=generator), labels


def gradients_of(name: str) -> ClippedGradients:
    """With weights of very different sizes, some of which cancel."""
    torch.manual_seed(0)
    computed = ClippedGradients(FlatModel(MODELS[name][0]()))
    weights = computed.model.read()
    powers = torch.rand(weights.shape, generator=torch.Generator().manual_seed(5)) * 8 - 4
    computed.model.load(weights * 10**powers)
    return computed


def check_unit(computed: ClippedGradients, x: Tensor, y: Tensor, whose: Tensor, unit: int) -> float:
    """Removes a unit: all others keep their bits. Returns the moved length."""
    rest = whose != unit
    others = torch.unique(whose[rest], return_inverse=True)[1]
    within, without = (
        computed(x, y, CLIP.factors, whose),
        computed(x[rest], y[rest], CLIP.factors, others),
    )
    left = torch.arange(len(within.norms)) != unit
    assert torch.equal(within.norms[left], without.norms)
    assert torch.equal(within.losses[left], without.losses)
    moved = float((within.total - without.total).norm()) / LEVEL
    assert moved <= 1
    return moved


@pytest.mark.parametrize("name", MODELS)
def test_layers_and_sizes(name: str) -> None:
    """Rows and persons of 1, 2, 3, 5 and 33 rows; one clip for all, one per layer, and one of Haar
    coefficients.
    """
    computed = gradients_of(name)
    layout = computed.model.layout
    layered, by_layer = (
        PerLayer(LEVEL),
        ClippedGradients(computed.model, PerLayer(LEVEL).groups(layout.names)),
    )
    haar = HaarClip(LEVEL, weights="paper").for_model([layout.trainable])
    x, y = rows_for(name, 50)
    whole, written = (
        computed(x, y, CLIP.factors),
        torch.cat([part for _, part in computed.rows(x, y)]),
    )
    for count in (1, 3, 33):
        order = torch.randperm(50, generator=torch.Generator().manual_seed(count))[:count]
        some, rest = (x[order], y[order]), (x[order[1:]], y[order[1:]])
        assert torch.equal(computed(*some, CLIP.factors).norms, whole.norms[order])
        assert torch.equal(torch.cat([part for _, part in computed.rows(*some)]), written[order])
        moved = computed(*some, CLIP.factors).total - computed(*rest, CLIP.factors).total
        assert float(moved.norm()) <= LEVEL
        moved = by_layer(*some, layered.factors).total - by_layer(*rest, layered.factors).total
        assert float(moved.norm()) <= LEVEL
        moved = clipped_sum(computed, haar, *some) - clipped_sum(computed, haar, *rest)
        assert float(haar.norms(moved[None])) <= LEVEL
    whose = torch.repeat_interleave(torch.tensor([1, 2, 33, 3, 5]))
    for unit in (0, 2, 3):
        check_unit(computed, x[: len(whose)], y[: len(whose)], whose, unit)


@pytest.mark.parametrize("name", ["depthwise", "a sequence by one layer", "instance norm"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e38, 1e-42, -0.0])
def test_one_number_of_a_person_changes_nobody_else(name: str, value: float) -> None:
    """In a person of one row, of three, and of more than a chunk has."""
    computed = gradients_of(name)
    x, y = rows_for(name, 150)
    for sizes in ([1, 1, 1, 1], [2, 1, 3, 1], [1, 2, 140]):
        whose = torch.repeat_interleave(torch.tensor(sizes))
        some = x[: len(whose)].clone()
        some[(whose == 2).nonzero()[-1]] = value
        moved = check_unit(computed, some, y[: len(whose)], whose, 2)
        assert moved == 0 or not math.isnan(value)


@pytest.mark.parametrize("name", ["lstm", "convolutions by Gram matrices", "sum of embeddings"])
@pytest.mark.parametrize("rows", [2, 140])
def test_a_person_of_many_rows_beside_persons_of_one(name: str, rows: int) -> None:
    """Where nobody has two rows, units are computed as rows: another path, with the same bits."""
    computed = gradients_of(name)
    x, y = rows_for(name, 150)
    for sizes, unit in (([rows, 1, 1, 1], 0), ([1, 1, 1, rows], 3)):
        whose = torch.repeat_interleave(torch.tensor(sizes))
        check_unit(computed, x[: len(whose)], y[: len(whose)], whose, unit)


ELEMENTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in (
            "sin",
            "cos",
            "tan",
            "exp",
            "log1p",
            "erf",
            "tanh",
            "sigmoid",
            "lgamma",
            "rsqrt",
        )
    },
    **{
        name: getattr(F, name) for name in ("gelu", "silu", "mish", "softplus", "elu", "logsigmoid")
    },
    "pow": lambda x: x.abs().pow(2.5),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_no_function_heeds_the_neighbours_of_a_number(name: str) -> None:
    """Vector code may take another branch for all numbers of a register where one of them is large
    or not finite.
    """
    generator = torch.Generator().manual_seed(0)
    for size in (1.0, 30.0):
        x = torch.randn(1024, generator=generator) * size
        expected = _with_slopes(ELEMENTWISE[name], x)
        for value in (math.nan, math.inf, 130.0, 4e4, 1e30, -1e30, 1e-42, -0.0):
            changed = torch.rand(1024, generator=generator) < 0.1
            found = _with_slopes(ELEMENTWISE[name], x.masked_fill(changed, value))
            assert torch.equal(found[:, ~changed].nan_to_num(), expected[:, ~changed].nan_to_num())


def _with_slopes(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    y = function(x)
    return torch.stack([y.detach(), torch.autograd.grad(y.sum(), x)[0]])


def test_modules_that_differ_by_a_setting_are_tested_each() -> None:
    """The same class, layers and words, but another number: what one passed says nothing of the
    other.
    """

    class Placed(nn.Module):
        def __init__(self, step: float) -> None:
            super().__init__()
            self.inner, self.step = nn.Linear(5, 3), step

        def forward(self, x: Tensor) -> Tensor:
            return (
                self.inner(x) * (1 + (torch.arange(len(x)) % 2 == 1).float() * self.step)[:, None]
            )

    paths = []
    for step in (0.0, 1e-6):
        computed = ClippedGradients(FlatModel(Placed(step)))
        check_unit(computed, torch.ones(9, 5), torch.arange(9) % 3, torch.arange(9), 0)
        paths.append(computed.path)
    assert paths == [PADDED, ALONE]


def test_rows_that_a_module_computes_apart() -> None:
    """Where large rows take a product of their own, its size is their number, and one large row is
    a vector.
    """

    class Routed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = nn.Linear(40, 24), nn.Linear(24, 3)
            self.register_buffer("turn", torch.randn(24, 24))

        def forward(self, x: Tensor) -> Tensor:
            states, large = self.inner(x), x[:, 0] > 2
            states = states.clone()
            states[large] = torch.tanh(
                states[large] @ self.turn + states[large] * large.sum() * 1e-7
            )
            return self.head(states)

    torch.manual_seed(0)
    computed = ClippedGradients(FlatModel(Routed()))
    x, y = torch.randn(60, 40), torch.arange(60) % 3
    x[:, 0] *= 4
    for unit in range(6):
        check_unit(computed, x, y, torch.arange(60), unit)
    assert computed.path == ALONE


def test_layers_in_training_are_tested_as_they_are_in_training() -> None:
    """Beside dropout, another kernel may run in evaluation mode than in training."""

    class Moody(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.inner = nn.Dropout(0.5), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            scores = self.inner(self.drop(x))
            return (
                scores * (1 + (torch.arange(len(x)) % 2 == 1).float() * 1e-6)[:, None]
                if self.training
                else scores
            )

    computed = ClippedGradients(FlatModel(Moody().train()))
    computed(torch.ones(9, 6), torch.arange(9) % 3, CLIP.factors)
    assert computed.path == ALONE
    assert computed.model.module.drop.p == 0.5
    steady = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)).train()
    computed = ClippedGradients(FlatModel(steady))
    computed(torch.ones(9, 6), torch.arange(9) % 3, CLIP.factors)
    assert computed.path == PADDED, "masks alone do not make units be computed one by one"


def test_a_transformer_with_dropout_has_the_same_bits_where_nothing_is_dropped() -> None:
    """Its training kernels are those that were tested: a rate that drops nothing leaves them as
    they are.
    """
    torch.manual_seed(0)
    encoder = nn.TransformerEncoderLayer(16, 4, 33, dropout=0.1, batch_first=True)
    module = Composed(
        lambda x, e, a, h: h(a(e(x)).mean(1)), nn.Embedding(20, 16), encoder, nn.Linear(16, 3)
    ).train()
    computed, x, y = (
        ClippedGradients(FlatModel(module)),
        torch.randint(20, (40, 7)),
        torch.arange(40) % 3,
    )
    computed(x, y, CLIP.factors)
    for layer in module.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 2.0**-60
        if isinstance(layer, nn.MultiheadAttention):
            layer.dropout = 2.0**-60
    whole = computed(x, y, CLIP.factors)
    for part in (slice(0, 1), slice(3, 6), slice(4, 37)):
        assert torch.equal(computed(x[part], y[part], CLIP.factors).norms, whole.norms[part])


def test_one_client_more_in_a_sum_of_clients() -> None:
    """Updates that cancel, of very different lengths, in both orders."""
    generator = torch.Generator().manual_seed(0)
    sizes = 10 ** (torch.rand(600, generator=generator) * 30 - 10)
    updates = torch.randn(600, 50, generator=generator) * sizes[:, None]
    updates[1::2] = -updates[::2] * (1 + 2.0**-22)
    replies = [
        ClientReply(i, clip_vector(update, CLIP, ("w",), (0, 50))[0])
        for i, update in enumerate(updates)
    ]
    weights = torch.ones(600)
    for own in (0, 299, 599):
        others = [reply for reply in replies if reply.client != own]
        moved = weighted_sum(replies, weights, 50) - weighted_sum(others, weights, 50)
        assert float(moved.norm()) <= LEVEL
