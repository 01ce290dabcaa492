"""A unit's gradient is a function of that unit alone, bit for bit, and one unit moves the sum by
the clip norm at most.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dpfl.errors import DpflError
from dpfl.gradients import products, self_test, unit_gradients
from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel
from dpfl.privacy import Flat
from dpfl.privacy.mechanisms.clips.rounding import TERMS


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.attention = (
            nn.Embedding(20, 12),
            nn.MultiheadAttention(12, 3, batch_first=True),
        )
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.embedding(x)
        return self.head(self.norm(seen + self.attention(seen, seen, seen)[0]).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.memory, self.head = (
            nn.Embedding(20, 7),
            nn.GRU(7, 11, batch_first=True),
            nn.Linear(11, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.memory(self.embedding(x))[0][:, -1])


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(13, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x @ self.weight, 1)


MODELS = {
    "13 columns": (lambda: nn.Linear(13, 3), (13,)),
    "105 columns": (lambda: nn.Sequential(nn.Linear(105, 65), nn.Tanh(), nn.Linear(65, 3)), (105,)),
    "3,969 features": (lambda: nn.Linear(3969, 10), (3969,)),
    "gelu": (lambda: nn.Sequential(nn.Linear(31, 33), nn.GELU(), nn.Linear(33, 3)), (31,)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 5, 3),
            nn.ReLU(),
            nn.Conv2d(5, 7, 3, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(63, 3),
        ),
        (1, 9, 9),
    ),
    "group norm": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 6, 3), nn.GroupNorm(2, 6), nn.Flatten(), nn.Linear(150, 3)
        ),
        (2, 7, 7),
    ),
    "attention": (Attention, (6,)),
    "gru": (Recurrent, (5,)),
    "torch.func": (Own, (13,)),
}


def samples(name: str, count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator, shape = torch.Generator().manual_seed(seed), MODELS[name][1]
    labels = torch.randint(3, (count,), generator=generator)
    if name in ("attention", "gru"):
        return torch.randint(20, (count, *shape), generator=generator), labels
    return torch.randn(count, *shape, generator=generator), labels


@pytest.mark.parametrize("name", MODELS)
def test_a_units_bits_depend_on_nothing_else(name: str) -> None:
    """At any place, in any batch, beside samples that are not finite, as a row and as a person."""
    torch.manual_seed(0)
    computed, clip = ClippedGradients(FlatModel(MODELS[name][0]())), Flat(0.5)
    x, y = samples(name, 40, 0)
    whole, persons = (
        computed(x, y, clip.factors),
        computed(x, y, clip.factors, torch.arange(40) // 3),
    )
    rows = torch.cat([part for _, part in computed.rows(x, y)])
    generator = torch.Generator().manual_seed(1)
    for count in (1, 2, 3, 17, 33):
        order = torch.randperm(40, generator=generator)[:count]
        part = computed(x[order], y[order], clip.factors)
        assert torch.equal(part.norms, whole.norms[order])
        assert torch.equal(part.losses, whole.losses[order])
        assert torch.equal(
            torch.cat([part for _, part in computed.rows(x[order], y[order])]), rows[order]
        )
    own = computed(x[3:9], y[3:9], clip.factors, torch.arange(6) // 3)
    assert torch.equal(own.norms, persons.norms[1:3])
    if x.is_floating_point():
        beside = x.clone()
        beside[::2] = math.nan
        beside[1] = -math.inf
        assert torch.equal(computed(beside, y, clip.factors).norms[3::2], whole.norms[3::2])
        beside[::2], beside[1] = 1e30, 1e-42
        assert torch.equal(computed(beside, y, clip.factors).norms[3::2], whole.norms[3::2])
    assert computed.path.startswith("exact")


@pytest.mark.parametrize("activation", [nn.Sigmoid, nn.SiLU, nn.ELU, nn.Softplus, nn.GELU, nn.Mish])
def test_activations_have_the_same_bits_in_every_batch(activation: type[nn.Module]) -> None:
    """One number a row, so that most sizes of a batch would leave some over for a scalar
    function.
    """
    torch.manual_seed(0)
    computed = ClippedGradients(
        FlatModel(nn.Sequential(nn.Linear(1, 1), activation(), nn.Linear(1, 2)))
    )
    x, y = torch.randn(400, 1), torch.arange(400) % 2
    whole = computed(x, y, Flat(0.5).factors)
    for first in range(0, 390, 13):
        part = computed(x[first : first + 13], y[first : first + 13], Flat(0.5).factors)
        assert torch.equal(part.norms, whole.norms[first : first + 13])
        assert torch.equal(part.losses, whole.losses[first : first + 13])


@pytest.mark.parametrize("name", MODELS)
def test_one_unit_more_moves_the_sum_by_the_clip_norm_at_most(name: str) -> None:
    """Weights of 1e6, so that what is rounded decides."""
    torch.manual_seed(0)
    computed, clip = ClippedGradients(FlatModel(MODELS[name][0]())), Flat(0.5)
    computed.model.load(computed.model.read() * 1e6)
    x, y = samples(name, 21, 3)
    for place in (0, 7, 20):
        rest = torch.arange(21) != place
        moved = computed(x, y, clip.factors).total - computed(x[rest], y[rest], clip.factors).total
        assert float(moved.norm()) <= 0.5


def test_where_no_size_passes_units_are_computed_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A module whose results depend on the place in the batch fails the self-test, and has the same
    bits all the same.
    """

    class Placed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            scores = self.inner(x)
            return scores * (1 + (torch.arange(len(x)) % 2 == 1).float() * 1e-6)[:, None]

    computed, clip = ClippedGradients(FlatModel(Placed())), Flat(0.5)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(9, 6, generator=generator), torch.arange(9) % 3
    whole = computed(x, y, clip.factors)
    assert computed.path == "exact: one unit at a time"
    assert torch.equal(computed(x[3:4], y[3:4], clip.factors).norms, whole.norms[3:4])
    monkeypatch.setattr(self_test, "_references", {})
    fast = ClippedGradients(computed.model, arithmetic="fast")
    found = fast(x, y, clip.factors)
    assert fast.path.startswith("fast")
    assert not torch.equal(found.norms[1::2], whole.norms[1::2])


def test_the_self_test_uses_weights_of_its_own() -> None:
    """Weights of zero would hide everything; and what the model had is put back, with torch's
    random state.
    """
    computed, clip = ClippedGradients(FlatModel(nn.Linear(23, 3))), Flat(0.5)
    computed.model.vector.zero_()
    state = torch.get_rng_state()
    computed(torch.ones(3, 23), torch.zeros(3, dtype=torch.int64), clip.factors)
    assert not computed.model.vector.any()
    assert torch.equal(torch.get_rng_state(), state)


def test_arithmetic_is_exact_or_fast() -> None:
    with pytest.raises(DpflError, match="choose one of exact, fast"):
        ClippedGradients(FlatModel(nn.Linear(2, 2)), arithmetic="quick")


@pytest.mark.parametrize("advantage", [0, 10**9], ids=["written", "compared"])
def test_a_gradient_says_how_many_results_it_adds(
    advantage: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    units, terms = 20, 300
    monkeypatch.setattr(products, "_GRAM_ADVANTAGE", advantage)
    monkeypatch.setattr(products, "_KEEP", 0)
    monkeypatch.setattr(products, "_BLOCK", 5 * 4 * terms)
    gradient = products.sum_of_outer(torch.randn(units, terms, 4), torch.randn(units, terms, 3))
    assert gradient.additions >= (units / 5 + 5 * terms / TERMS if advantage else units / 5)
    assert products.outer(torch.randn(3 * TERMS, 2), torch.randn(3 * TERMS, 2)).additions >= 3
    assert unit_gradients.stack([gradient, gradient]).additions == gradient.additions


def moved_length(x: Tensor, g: Tensor, others: tuple[Tensor, Tensor], advantage: int) -> float:
    """How far a unit of terms g_t x_t^T, clipped to 1, moves the computed sum of its own and
    others' gradients.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "_GRAM_ADVANTAGE", advantage)
        both = products.sum_of_outer(
            torch.cat([x[None], others[0]]), torch.cat([g[None], others[1]])
        )
    factors = Flat(1.0).factors(both.squares.sqrt()[:, None])[:, 0]
    alone = both.weighted_sum(slice(0, len(factors)), torch.cat([factors[:1] * 0, factors[1:]]))
    return float((both.weighted_sum(slice(0, len(factors)), factors) - alone).norm())


@pytest.mark.parametrize("advantage", [0, 10**9], ids=["written", "compared"])
@pytest.mark.parametrize(
    ("terms", "classes", "width"),
    [(48, 200, 784), (30, 62, 784), (96, 10, 50), (300, 3, 20), (2, 2, 3)],
)
def test_systematic_rounding_moves_nothing_further(
    terms: int, classes: int, width: int, advantage: int
) -> None:
    """Rows alike but for their last bits and slopes that cancel: each addition rounds the same way.
    The search keeps what moves the sum further."""
    generator = torch.Generator().manual_seed(terms)
    labels = torch.arange(terms) % classes
    slopes = torch.full((terms, classes), 1 / classes)
    slopes[torch.arange(terms), labels] -= 1
    slopes -= slopes.mean(0)
    others = (
        torch.randn(2, terms, width, generator=generator),
        torch.randn(2, terms, classes, generator=generator),
    )
    best, x, g = 0.0, torch.ones(terms, width), slopes
    for step in range(12):
        bits = torch.randint(-3, 4, (terms, width), generator=generator) * 2.0**-23
        size = 10.0 ** float(torch.randint(-3, 8, (1,), generator=generator))
        candidate = (x / x.abs().max() + bits) * size
        turned = g * (1 + 2.0**-22 * torch.randn(terms, 1, generator=generator)) if step % 2 else g
        moved = moved_length(candidate, turned, others, advantage)
        assert moved <= 1 + 1e-6
        if moved > best:
            best, x, g = moved, candidate, turned
    assert best > 0


@settings(max_examples=20, deadline=None)
@given(
    st.integers(2, 60),
    st.integers(2, 80),
    st.integers(1, 90),
    st.floats(-6, 0),
    st.floats(-6, 8),
    st.integers(0, 2**20),
    st.sampled_from([0, 10**9]),
)
def test_cancelling_terms_move_the_sum_by_the_clip_norm_at_most(
    terms: int, classes: int, width: int, gap: float, size: float, seed: int, advantage: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, width, generator=generator) + 10**gap * torch.randn(
        terms, width, generator=generator
    )
    g = torch.randn(terms, classes, generator=generator)
    g[-1] = -g[:-1].sum(0)
    others = (
        torch.randn(3, terms, width, generator=generator),
        torch.randn(3, terms, classes, generator=generator),
    )
    assert moved_length(x * 10**size, g, others, advantage) <= 1 + 1e-6


def test_two_modules_that_look_alike_are_tested_each() -> None:
    """The same name and the same layers, but another forward pass."""

    def make(placed: bool) -> nn.Module:
        class Alike(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = nn.Linear(5, 3)

            def forward(self, x: Tensor) -> Tensor:
                scores = self.inner(x)
                return (
                    scores * (1 + (torch.arange(len(x)) % 2 == 1).float() * 1e-6)[:, None]
                    if placed
                    else scores
                )

        return Alike()

    x, y = torch.ones(3, 5), torch.zeros(3, dtype=torch.int64)
    paths = []
    for placed in (False, True):
        computed = ClippedGradients(FlatModel(make(placed)))
        computed(x, y, Flat(1.0).factors)
        paths.append(computed.path)
    assert paths == ["exact: padded chunks that passed the self-test", "exact: one unit at a time"]
