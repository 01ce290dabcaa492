"""What holds for every way to compute gradients: what the self-test compares, for which shapes, and
that ways are not mixed.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dpfl.errors import DpflError
from dpfl.gradients import unit_rows
from dpfl.gradients.clipped import ClippedGradients
from dpfl.gradients.layers import rules
from dpfl.gradients.layers.rules import embedding
from dpfl.gradients.losses import losses_and_slopes
from dpfl.gradients.passes.row_pass import RowPass
from dpfl.gradients.unit_gradients import UnsupportedLayer, from_rows
from dpfl.models import FlatModel
from dpfl.privacy.mechanisms.clips.rounding import TERMS
from dpfl_papers.haar_energies import haar_energies
from tests.gradients.gradient_reference import CLASSES, batch, check, clip, one_by_one


class Means(nn.Module):
    """Reads sequences of any length."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.mean(1))


def test_chunks_are_tested_for_samples_of_every_shape() -> None:
    computed = ClippedGradients(FlatModel(Means()))
    for length in (3, 4, 3):
        computed(*batch(2, length, 5), clip(1.0))
    assert len(computed._sizes) == 2


def test_the_self_test_compares_what_gradients_are_made_of() -> None:
    module = nn.Linear(5, CLASSES)
    x, y = batch(3, 5)
    computed = ClippedGradients(FlatModel(module))
    for _ in range(2):
        losses, weight, bias, *parts = computed._outputs(x, y, None)
        assert losses.shape == weight.shape == bias.shape == (3,)
        assert any(torch.equal(part, x) for part in parts), "what the layer read"
        assert sum(part.shape == (3, CLASSES) for part in parts) == 2, (
            "slopes at its outputs, and the bias written out"
        )
        computed.passes.fall_back(UnsupportedLayer("not chosen here"))


def test_the_self_test_compares_all_of_a_gradient_that_is_written_out() -> None:
    module = nn.Linear(5, CLASSES)
    x, y = batch(3, 5)
    rows = one_by_one(module, x, y)
    computed = ClippedGradients(FlatModel(module))
    while not isinstance(computed.passes.current, RowPass):
        computed.passes.fall_back(UnsupportedLayer("not chosen here"))
    _, weight, bias, *written = computed._outputs(x, y, None)
    torch.testing.assert_close((weight + bias).float(), rows.square().sum(1), rtol=1e-3, atol=0)
    torch.testing.assert_close(torch.cat(written, dim=1), rows, rtol=1e-5, atol=1e-6)


def test_rows_of_a_batch_are_not_computed_in_two_ways() -> None:
    computed = ClippedGradients(FlatModel(nn.Linear(5, CLASSES)), chunk=1, arithmetic="fast")
    x, y = batch(3, 5)
    usual = computed.passes.current

    def picky(x: Tensor, *others: object) -> object:
        if x.max() > 1e6:
            raise UnsupportedLayer("a sample that it cannot do")
        return usual(x, *others)  # type: ignore[arg-type]

    picky.writes_rows = False  # type: ignore[attr-defined]
    for odd in range(3):
        computed.passes.current = picky  # type: ignore[assignment]
        spoilt = x.clone()
        spoilt[odd] = 1e7
        if odd:
            with pytest.raises(
                DpflError, match=r"another way for some samples \(a sample that it cannot do\)"
            ):
                list(computed.rows(spoilt, y))
        else:
            assert len(list(computed.rows(spoilt, y))) == 3
        computed = ClippedGradients(FlatModel(nn.Linear(5, CLASSES)), chunk=1, arithmetic="fast")


class Shifted(nn.Module):
    """Its running statistic is a number of the model, and no gradient has it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(5, CLASSES)
        self.register_buffer("running_mean", torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x - self.running_mean)


def test_energies_are_of_what_is_trained_alone() -> None:
    x, y = batch(4, 5)
    module = Shifted()
    assert haar_energies(module, x, y) == pytest.approx(haar_energies(module.head, x, y), rel=1e-5)


def test_losses_and_slopes_without_a_task_are_those_of_cross_entropy_for_every_label() -> None:
    """With more than a hundred classes: no label may be taken for one that torch ignores."""
    scores = torch.randn(130, 130, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = torch.arange(130)
    expected = nn.functional.cross_entropy(scores, labels, reduction="none")
    (slopes,) = torch.autograd.grad(expected.sum(), scores)
    found, by_hand = losses_and_slopes(scores.detach(), labels)
    torch.testing.assert_close(found, expected.detach())
    torch.testing.assert_close(by_hand, slopes)


class Gated(nn.Module):
    """One of its layers reads no sample at all."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate, self.head = nn.Linear(3, CLASSES), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x) * self.gate(torch.ones(3))


def test_a_layer_that_reads_no_batch_is_left_to_a_way_that_takes_it() -> None:
    assert isinstance(check(Gated(), *batch(3, 5)).passes.current, RowPass)


@pytest.mark.parametrize("length", [1, 7, TERMS, TERMS + 1])
def test_embeddings_of_texts_of_any_length(length: int) -> None:
    generator = torch.Generator().manual_seed(0)
    module = nn.Embedding(4, 3)
    words = torch.randint(4, (3, length), generator=generator)
    slopes = torch.randn(3, length, 3, generator=generator)
    written = torch.zeros(3, 4, 3).double()
    for unit in range(3):
        written[unit].index_add_(0, words[unit], slopes[unit].double())
    found = embedding(module, words, slopes)["weight"]
    weights = torch.tensor([0.5, 1.0, 2.0]).double()
    torch.testing.assert_close(
        found.weighted_sum(slice(0, 3), weights), weights @ written.flatten(1), rtol=1e-9, atol=1e-9
    )
    assert (found.squares >= written.flatten(1).square().sum(1) * (1 - 1e-6)).all()


def test_words_are_compared_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    words, slopes = (
        torch.randint(4, (5, 6), generator=generator),
        torch.randn(5, 6, 3, generator=generator),
    )
    whole = embedding(nn.Embedding(4, 3), words, slopes)["weight"].squares
    for pairs in (1, 36, 100):
        monkeypatch.setattr(rules, "_WORD_PAIRS", pairs)
        torch.testing.assert_close(
            embedding(nn.Embedding(4, 3), words, slopes)["weight"].squares, whole
        )


@pytest.mark.parametrize("keep", [1, 12, 30, 1 << 25])
def test_gradients_of_units_are_sums_of_rows_in_blocks_of_any_size(
    monkeypatch: pytest.MonkeyPatch, keep: int
) -> None:
    monkeypatch.setattr(unit_rows, "_KEEP", keep)
    rows = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    units = rows.view(5, 2, 3).sum(1)
    found = unit_rows.UnitRows(2, torch.full((10,), 0.5)).sum_over_rows(from_rows(rows))
    torch.testing.assert_close(found.squares, units.double().square().sum(1), rtol=1e-4, atol=0)
    torch.testing.assert_close(found.rows(slice(1, 4)), units[1:4])
    for chosen in (slice(0, 5), slice(0, 2), torch.tensor([0, 3, 4])):
        weights = torch.linspace(0.5, 1.0, len(units[chosen])).double()
        torch.testing.assert_close(
            found.weighted_sum(chosen, weights), weights @ units[chosen].double()
        )
