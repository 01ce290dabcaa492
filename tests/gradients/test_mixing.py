"""Models that have no per-sample guarantee are refused, and norms are not below the truth."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dpfl.data.tables.schema import FeatureLayout
from dpfl.errors import DpflError
from dpfl.gradients import products, unit_gradients
from dpfl.gradients.clipped import ClippedGradients
from dpfl.gradients.layers.rules import embedding
from dpfl.gradients.mixing import random_weights, refuse_mixing
from dpfl.models import FlatModel, from_module
from dpfl.models.columns import on_columns
from dpfl.privacy.mechanisms.clips.rounding import COVER
from tests.gradients.gradient_reference import CLASSES, batch, check, clip


class Calling(nn.Module):
    """A function between two linear layers."""

    def __init__(self, function: Callable[[nn.Module, Tensor], Tensor], own: bool = False) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(5, 5), nn.Linear(5, CLASSES)
        self.function = function
        self.scale = nn.Parameter(torch.ones(5)) if own else 1.0
        self.register_buffer("memory", torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.function(self, self.first(x) * self.scale))


def attends_to_the_batch(_: nn.Module, x: Tensor) -> Tensor:
    return (x @ x.T).softmax(1) @ x


def remembers(module: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        module.memory.lerp_(x.mean(0), 0.1)
    return x - module.memory


def swaps_gradients(_: nn.Module, x: Tensor) -> Tensor:
    """The scores are each sample's own, the gradients are not."""
    return x + (x.mean(0) - x.mean(0).detach())


MIXTURES = {
    "mean": lambda _, x: x - x.mean(0),
    "softmax": lambda _, x: x.softmax(0),
    "attention": attends_to_the_batch,
    "detached": lambda _, x: x - x.detach().mean(0),
    "last": lambda _, x: x + x[-1].sin(),
    "neighbour": lambda _, x: x + x.roll(1, 0),
    "size": lambda _, x: x / len(x),
    "training": lambda module, x: x - x.mean(0) if module.training else x,
    "evaluation": lambda module, x: x if module.training else x - x.mean(0),
    "dropout": lambda module, x: nn.functional.dropout(x, 0.2, module.training) - x.mean(0),
    "memory": remembers,
    "small": lambda _, x: x + 1e-2 * x.mean(0),
}


@pytest.mark.parametrize("own", [False, True], ids=["rules", "fallback"])
@pytest.mark.parametrize("mixture", MIXTURES)
def test_models_that_mix_samples_are_refused(mixture: str, own: bool) -> None:
    module = Calling(MIXTURES[mixture], own)
    model = FlatModel(module)
    before, state = model.read(), torch.get_rng_state()
    for size in (
        0,
        1,
        7,
    ):  # an empty batch as well: whether it was is for nobody who can choose a model
        with pytest.raises(DpflError, match=r"mixes the samples.*no per-sample guarantee"):
            ClippedGradients(model)(*batch(size, 5), clip(1))
    assert torch.equal(model.vector, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert not module.memory.any()
    assert module.training


def test_mixed_gradients_are_refused() -> None:
    with pytest.raises(DpflError, match="the gradients of one sample reach another"):
        ClippedGradients(FlatModel(Calling(swaps_gradients)))(*batch(7, 5), clip(1))


def test_a_mixture_behind_zero_weights_is_refused() -> None:
    module = Calling(MIXTURES["mean"])
    nn.init.zeros_(module.head.weight)
    with pytest.raises(DpflError, match="mixes the samples"):
        ClippedGradients(FlatModel(module))(*batch(7, 5), clip(1))


@pytest.mark.parametrize(
    "words", [torch.arange(12).view(4, 3) % 5, torch.ones(1, 3, dtype=torch.long)], ids=["4", "1"]
)
def test_a_mixture_of_words_is_refused(words: Tensor) -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(5, 4), nn.Linear(12, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            found = self.table(x).flatten(1)
            return self.head(found - found.mean(0))

    with pytest.raises(DpflError, match="mixes the samples"):
        ClippedGradients(FlatModel(Words()))(
            words, torch.zeros(len(words), dtype=torch.long), clip(1)
        )


class Watching(nn.Module):
    """Keeps what it is given, and takes some of it for the places of words."""

    def __init__(self, words: int = 0, mixes: bool = False, takes_codes: bool = False) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(7, 2), nn.Linear(2 * words or 5, CLASSES)
        self.words, self.mixes, self.takes_codes = words, mixes, takes_codes
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.detach().clone())
        found = self.table(x[:, : self.words].long()).flatten(1) if self.words else x
        return self.head(found - found.mean(0) if self.mixes else found)


@pytest.mark.parametrize("kind", ["numbers", "tokens", "numbers that stand for words"])
def test_what_is_tried_before_private_data_is_none_of_it(kind: str) -> None:
    """Fault: the range of the samples was taken from the first batch, so that a refusal could tell
    of it.
    """
    seen = []
    for seed in (1, 2):
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(7, (4, 5), generator=generator)
        x = {"numbers": seed * torch.rand(4, 5, generator=generator), "tokens": drawn}.get(
            kind, drawn.float()
        )
        module = Watching(words=0 if kind == "numbers" else 5)
        refuse_mixing(FlatModel(module), x)
        seen.append(torch.stack([part.sum(0).float() for part in module.seen]))
    assert torch.equal(*seen)


@pytest.mark.parametrize("takes_codes", [True, False])
@pytest.mark.parametrize("numbers", [0, 2])
def test_a_mixture_of_codes_is_refused(numbers: int, takes_codes: bool) -> None:
    """Of a table that may have no numbers: a row that differs in its codes alone is another."""
    words = 3 if takes_codes else 0
    module = Watching(words, mixes=True, takes_codes=takes_codes)
    if not takes_codes:
        module.head = nn.Linear(numbers + 15, CLASSES)
    described = on_columns(from_module(module), FeatureLayout(numbers, (7, 6, 2)))
    model = FlatModel(described.build((numbers + 3,), CLASSES, seed=0))
    with pytest.raises(DpflError, match="mixes the samples"):
        refuse_mixing(model, torch.zeros(4, numbers + 3))
    module.mixes = False
    refuse_mixing(
        FlatModel(
            on_columns(from_module(module), FeatureLayout(numbers, (7, 6, 2))).build(
                (numbers + 3,), CLASSES, 0
            )
        ),
        torch.zeros(4, numbers + 3),
    )


@pytest.mark.parametrize("value", [0.0, 1.0, 1e30, float("nan")])
def test_honest_models_pass_on_odd_data(value: float) -> None:
    module = nn.Sequential(
        nn.Linear(5, 6), nn.Dropout(), nn.Softmax(1), nn.LayerNorm(6), nn.Linear(6, CLASSES)
    )
    x, y = batch(7, 5)
    computed = ClippedGradients(FlatModel(module))
    x[3:] = value
    found = computed(x, y, clip(1))
    assert torch.isfinite(found.total).all()
    assert found.norms[:3].all()
    assert abs(value) <= 1 or not found.norms[3:].any(), "what is not finite counts as nothing"


def exact_norms(x: Tensor, g: Tensor) -> Tensor:
    return (g.double().mT @ x.double()).flatten(1).norm(dim=1)


@pytest.mark.parametrize("small", [1e-30, 2.6e-23, 1e-20])
def test_norms_are_not_below_the_truth_where_squares_are_too_small_for_float32(
    small: float,
) -> None:
    """What is small has no square, and what it is multiplied with is large."""
    x, g = torch.full((1, 784), small), torch.full((1, 16), 4e18)
    for one, other in ((x, g), (g, x)):
        truth = one.double().norm() * other.double().norm()
        assert products.outer(one, other).squares.double().sqrt() >= truth * (1 - 1e-5)
    usual = torch.randn(3, 784, generator=torch.Generator().manual_seed(0))
    above = products.outer(usual, usual).squares / usual.double().square().sum(1) ** 2 - 1
    assert (above > 0).all()
    assert (above < 1e-4).all(), "and little more where they are usual"


@settings(max_examples=60, deadline=None)
@given(
    terms=st.integers(2, 12),
    width=st.integers(1, 200),
    height=st.integers(1, 40),
    gap=st.floats(-7, 0),
    size=st.floats(-3, 3),
    advantage=st.sampled_from([0, 10**9]),
    seed=st.integers(0, 2**31),
)
def test_norms_are_not_below_the_truth_where_outer_products_cancel(
    terms: int, width: int, height: int, gap: float, size: float, advantage: int, seed: int
) -> None:
    """Inputs alike but for 10^gap, output gradients that sum to about 0."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(5, 1, width, generator=generator) + 10**gap * torch.randn(
        5, terms, width, generator=generator
    )
    g = torch.randn(5, terms, height, generator=generator) * 10**size
    g[:, -1] = -g[:, :-1].sum(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "_GRAM_ADVANTAGE", advantage)
        found = products.sum_of_outer(x, g)
    truth = exact_norms(x, g)
    # What a float32 sum of these products can be off by, whatever the norm is.
    rounding = 4e-7 * (x.double().norm(dim=2) * g.double().norm(dim=2)).sum(1)
    measured = found.squares.sqrt()
    if advantage:
        assert (measured >= truth).all()
        assert (measured <= truth * (1 + 1e-5) + 1.1 * COVER * rounding / 4e-7).all()
        return
    rows = found.rows(slice(0, 5)).double().norm(dim=1)
    assert (measured >= rows).all(), "of the numbers that are summed"
    assert (measured <= truth * (1 + 1e-4) + rounding).all()


def test_float32_gram_matrices_would_fail_here() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 1, 100, generator=generator) + 1e-4 * torch.randn(
        50, 2, 100, generator=generator
    )
    g = torch.randn(50, 1, 30, generator=generator) * torch.tensor([1.0, -1.0]).view(1, 2, 1)
    naive = ((x @ x.mT) * (g @ g.mT)).sum((1, 2)).clamp_min(0).sqrt()
    assert (naive < 0.9 * exact_norms(x, g)).any()
    lengths = (x.double().norm(dim=2) * g.double().norm(dim=2)).sum(1)
    above = products.sum_of_outer(x, g).squares.double().sqrt() - exact_norms(x, g)
    assert (above > 0).all(), "a norm covers what rounding adds to it"
    assert (above < 1e-5 * exact_norms(x, g) + 1.01 * COVER * lengths).all()


def test_words_whose_gradients_cancel() -> None:
    module = nn.Embedding(3, 40)
    g = torch.randn(6, 1, 40) * torch.tensor([1.0, -1.0, 1.0]).view(1, 3, 1)
    g[:, 1] += 1e-4 * torch.randn(6, 40)
    g[:, 2] *= 1e-5
    words = torch.tensor([[1, 1, 2]]).expand(6, -1)
    truth = torch.cat([g[:, 0].double() + g[:, 1].double(), g[:, 2].double()], dim=1).norm(dim=1)
    above = embedding(module, words, g)["weight"].squares.double().sqrt() - truth
    assert (above > 0).all(), "a norm covers what rounding adds to it"
    assert (above < 1e-5 * truth + 1.01 * COVER * g.double().norm(dim=2).sum(1)).all()


def test_norms_of_many_numbers_are_not_low() -> None:
    rows = torch.randn(2, 4_000_000)
    above = unit_gradients.from_rows(rows).squares.sqrt() / rows.double().norm(dim=1) - 1
    assert (above > 0).all()
    assert (above < 2e-5).all()


def test_rows_come_in_chunks_that_bound_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpfl.gradients.clipped._ROWS_BLOCK", 100)
    module = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, CLASSES))
    computed = check(module, *batch(7, 5))
    sizes = [(part, matrix.shape) for part, matrix in computed.rows(*batch(4, 5))]
    assert sizes == [(slice(i, i + 1), (1, 64)) for i in range(4)]
    assert list(computed.rows(*batch(0, 5))) == []
    spoilt = list(computed.rows(torch.full((2, 5), torch.nan), torch.zeros(2, dtype=torch.long)))
    assert not any(matrix.any() for _, matrix in spoilt)


def test_the_weights_of_a_test_are_usual_ones_and_no_variance_is_negative() -> None:
    """A root of a negative number would make every score NaN, and scores that are all NaN hide a
    mixture.
    """
    model = FlatModel(nn.Sequential(nn.Linear(400, 300), nn.BatchNorm1d(300)))
    layout, weights = model.layout, random_weights(model)
    spans = {
        name: weights[layout.offsets[place] :][: torch.Size(layout.shapes[place]).numel()]
        for place, name in enumerate(layout.names)
    }
    assert spans["1.running_var"].min() >= 0.5
    assert float(spans["0.weight"].std()) == pytest.approx(1 / 20, rel=0.05), (
        "one over the root of what a number reads"
    )
    assert float(spans["0.bias"].std()) == pytest.approx(1, rel=0.2)
    assert not torch.equal(weights, model.vector)
