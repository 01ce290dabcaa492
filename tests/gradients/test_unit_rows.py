"""Units of several rows: their gradients are means over their rows, clipped as one, by every rule,
every way and every task.
"""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dpfl import tasks
from dpfl.errors import DpflError
from dpfl.gradients import clipped, products, self_test, unit_rows
from dpfl.gradients.clip_factors import NonFinite
from dpfl.gradients.clipped import ClippedGradients
from dpfl.gradients.layers import rules
from dpfl.gradients.passes.chain import ChainPass
from dpfl.gradients.passes.layer_pass import LayerPass
from dpfl.gradients.passes.row_pass import RowPass
from dpfl.gradients.unit_gradients import UnsupportedLayer
from dpfl.models import FlatModel
from dpfl.privacy import Flat
from tests.gradients import test_losses as of_tasks
from tests.gradients.gradient_reference import (
    CLASSES,
    batch,
    bounds,
    clip,
    close,
    hooks_of,
    one_by_one,
)

SIZES = (3, 1, 5, 2, 1)
ROWS = sum(SIZES)


def whose(sizes: tuple[int, ...] = SIZES) -> Tensor:
    return torch.repeat_interleave(torch.tensor(sizes))


def means(rows: Tensor, group: Tensor) -> Tensor:
    return torch.stack(
        [rows[group == unit].double().mean(0).float() for unit in range(int(group.max()) + 1)]
    )


def compare(computed: ClippedGradients, x: Tensor, y: Tensor, rows: Tensor, group: Tensor) -> None:
    """Against the written-out gradients of rows: norms of means, losses, and sums with no, some and
    every unit clipped.
    """
    expected = means(rows, group)
    norms = expected.double().norm(dim=1)
    for bound in (1e9, float(norms.median()), 1e-3):
        found = computed(x, y, clip(bound), group)
        assert bounds(found.norms, norms[:, None])
        assert close(found.total, clip(bound)(found.norms[:, 0]) @ expected.double())
        assert found.losses.shape == (len(expected),)
    seen = torch.cat([units for units, _ in computed.unit_rows(x, y, group)])
    matrix = torch.cat([part for _, part in computed.unit_rows(x, y, group)])
    assert seen.sort().values.tolist() == list(range(len(expected)))
    assert close(matrix, expected[seen])
    assert hooks_of(computed.model.module) == 0


def check(
    module: nn.Module, x: Tensor, y: Tensor, sizes: tuple[int, ...] = SIZES, **options: int
) -> ClippedGradients:
    rows, group = one_by_one(module, x, y), whose(sizes)
    computed = ClippedGradients(FlatModel(module), **options)
    compare(computed, x, y, rows, group)
    if isinstance(computed.passes.current, ChainPass):
        computed.passes.fall_back(UnsupportedLayer("not chosen here"))
        compare(computed, x, y, rows, group)
    return computed


@pytest.fixture(autouse=True)
def _same_weights_every_time() -> None:
    torch.manual_seed(0)


class Words(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.embedding, self.inner, self.head = (
            nn.Embedding(7, 6, padding_idx=0),
            inner,
            nn.Linear(6, CLASSES),
        )

    def forward(self, x: Tensor) -> Tensor:
        seen = self.embedding(x)
        out = (
            self.inner(seen, seen, seen)[0]
            if isinstance(self.inner, nn.MultiheadAttention)
            else self.inner(seen)
        )
        return self.head((out[0] if isinstance(out, tuple) else out).mean(1))


class Own(nn.Module):
    """A parameter that no rule knows."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.ones(6)), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(x * self.scale))


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(6, CLASSES), (6,)),
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, CLASSES)), (6,)),
    "places": (
        lambda: nn.Sequential(nn.Linear(5, 6, bias=False), nn.Flatten(), nn.Linear(18, CLASSES)),
        (3, 5),
    ),
    "places of places": (
        lambda: nn.Sequential(nn.Linear(5, 6), nn.Flatten(), nn.Linear(72, CLASSES)),
        (3, 4, 5),
    ),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, 2, 1, groups=2), nn.Tanh(), nn.Flatten(), nn.Linear(36, CLASSES)
        ),
        (2, 5, 5),
    ),
    "depthwise": (
        lambda: nn.Sequential(
            nn.Conv1d(3, 3, 2, groups=3), nn.Tanh(), nn.Flatten(), nn.Linear(12, CLASSES)
        ),
        (3, 5),
    ),
    "group norm": (
        lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(12, CLASSES)),
        (4, 3),
    ),
    "layer norm": (
        lambda: nn.Sequential(nn.LayerNorm(5), nn.Flatten(), nn.Linear(15, CLASSES)),
        (3, 5),
    ),
    "rms norm": (
        lambda: nn.Sequential(nn.RMSNorm((3, 5)), nn.Flatten(), nn.Linear(15, CLASSES)),
        (3, 5),
    ),
    "no rule": (Own, (6,)),
}


def take(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """How the gradients of a linear layer are summed over the rows of a unit, whatever their
    size.
    """
    monkeypatch.setattr(rules, "_SMALL", 1 << 30 if way == "units" else 0)
    monkeypatch.setattr(products, "_GRAM_ADVANTAGE", 1 << 30 if way == "compared" else 0)
    monkeypatch.setattr(products, "_KEEP", 0 if way == "blocks" else 1 << 25)
    monkeypatch.setattr(unit_rows, "_KEEP", 0 if way == "blocks" else 1 << 25)
    monkeypatch.setattr(self_test, "_references", {})


WAYS = ("units", "compared", "kept", "blocks")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LAYERS)
def test_every_rule_clips_the_mean_over_the_rows_of_a_unit(
    monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    """Written out at once, compared, kept, or written out again in blocks."""
    take(monkeypatch, way)
    make, shape = LAYERS[name]
    found = check(make(), *batch(ROWS, *shape))
    assert isinstance(found.passes.current, RowPass if name == "no rule" else LayerPass)


@pytest.mark.parametrize("inner", [nn.GRU, nn.LSTM, nn.RNN, "attention", nn.Identity])
def test_sequences_and_words(inner: object) -> None:
    made = (
        nn.MultiheadAttention(6, 2, batch_first=True)
        if inner == "attention"
        else inner(6, 6, batch_first=True)
    )  # type: ignore[operator]
    x, y = (
        torch.randint(0, 7, (ROWS, 4), generator=torch.Generator().manual_seed(3)),
        torch.arange(ROWS) % CLASSES,
    )
    assert isinstance(check(Words(made), x, y).passes.current, LayerPass)


@pytest.mark.parametrize("small", [0, 1 << 30])
@pytest.mark.parametrize("words", [0, 1 << 30])
def test_written_out_or_compared(monkeypatch: pytest.MonkeyPatch, small: int, words: int) -> None:
    monkeypatch.setattr(rules, "_SMALL", small)
    monkeypatch.setattr(rules, "_MOST_WORDS", words)
    x, y = (
        torch.randint(0, 7, (ROWS, 4), generator=torch.Generator().manual_seed(3)),
        torch.arange(ROWS) % CLASSES,
    )
    check(Words(nn.Identity()), x, y)
    check(LAYERS["mlp"][0](), *batch(ROWS, 6))


@pytest.mark.parametrize("make", [of_tasks.linear, of_tasks.mlp])
@pytest.mark.parametrize(("task", "y"), of_tasks.TASKS, ids=of_tasks.IDS)
def test_every_task(task, y, make) -> None:
    x, _ = batch(of_tasks.COUNT, of_tasks.WIDTH)
    module = make(task.outputs)
    rows, group = of_tasks.one_by_one(module, task, x, y), whose((4, 1, 3, 1))
    for way in (ChainPass, LayerPass, RowPass):
        computed = ClippedGradients(FlatModel(module, task))
        computed.passes.current = way(computed.model)
        compare(computed, x, y, rows, group)
        assert isinstance(computed.passes.current, way)


def test_sequences_whose_loss_is_a_mean_over_tokens() -> None:
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randint(0, 8, (9, of_tasks.PLACES), generator=generator) for _ in range(2))
    y[0, 2:] = y[1] = -100
    module, task = of_tasks.Words(8, True), tasks.NextToken(8)
    rows = of_tasks.one_by_one(module, task, x, y)
    compare(ClippedGradients(FlatModel(module, task)), x, y, rows, whose((4, 1, 3, 1)))


@pytest.mark.parametrize("chunk", [2, 7, 100])
@pytest.mark.parametrize("written", [60, 10**6])
def test_chunks_hold_whole_units_and_the_largest_come_alone(
    monkeypatch: pytest.MonkeyPatch, chunk: int, written: int
) -> None:
    monkeypatch.setattr(clipped, "_ROWS_BLOCK", written)
    for name in ("mlp", "convolution", "no rule"):
        make, shape = LAYERS[name]
        check(make(), *batch(ROWS, *shape), chunk=chunk)


def test_layers_that_are_clipped_by_themselves() -> None:
    module, (x, y) = LAYERS["mlp"][0](), batch(ROWS, 6)
    expected = means(one_by_one(module, x, y), whose())
    for chunk in (2, 100):
        computed = ClippedGradients(FlatModel(module), [(0, 1), (2, 3)], chunk=chunk)
        found = computed(x, y, lambda norms: 0.1 / norms.clamp_min(0.1), whose())
        parts = [expected[:, :35], expected[:, 35:]]
        norms = torch.stack([part.double().norm(dim=1) for part in parts], dim=1)
        assert bounds(found.norms, norms)
        total = torch.cat(
            [clip(0.1)(found.norms[:, place]) @ part.double() for place, part in enumerate(parts)]
        )
        assert close(found.total, total)


def test_a_row_by_itself_is_a_unit_to_the_last_bit() -> None:
    module, (x, y) = LAYERS["mlp"][0](), batch(ROWS, 6)
    computed = ClippedGradients(FlatModel(module))
    assert torch.equal(
        computed(x, y, clip(0.1), torch.arange(ROWS)).total, computed(x, y, clip(0.1)).total
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("chunk", [2, 100])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["mlp", "convolution", "no rule"])
def test_a_unit_with_a_row_that_is_not_finite_counts_as_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str, bad: float, chunk: int, way: str
) -> None:
    take(monkeypatch, way)
    make, shape = LAYERS[name]
    module, (x, y) = make(), batch(ROWS, *shape)
    rows = one_by_one(module, x, y)
    rows[whose() == 2] = 0
    x[5] = bad  # of the unit with five rows
    computed = ClippedGradients(FlatModel(module), chunk=chunk)
    found, expected = computed(x, y, clip(0.1), whose()), means(rows, whose())
    assert close(found.total, clip(0.1)(found.norms[:, 0]) @ expected.double())
    assert float(found.norms[2]) == float(found.losses[2]) == 0.0
    assert torch.isfinite(torch.cat([part for _, part in computed.unit_rows(x, y, whose())])).all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("of_one", [2, 4])
@pytest.mark.parametrize("name", ["linear", "convolution"])
def test_rows_that_cancel_within_a_unit_are_rounded_within_its_clip(
    monkeypatch: pytest.MonkeyPatch, name: str, of_one: int, way: str
) -> None:
    """A unit of far rows whose mean is next to nothing: its norm says nothing of what they do to
    the digits of all others.
    """
    take(monkeypatch, way)
    for seed in range(12):
        torch.manual_seed(seed)
        first = nn.Linear(40, 2) if name == "linear" else nn.Conv2d(3, 8, 3, padding=1)
        module = (
            first
            if name == "linear"
            else nn.Sequential(first, nn.Flatten(), nn.Linear(288, 2, bias=False))
        )
        for parameter in first.parameters():
            nn.init.zeros_(parameter)  # both labels are as likely, so that slopes cancel
        x, y = torch.randn(30, *((40,) if name == "linear" else (3, 6, 6))), torch.randint(2, (30,))
        far = 10 ** (7 + 2 * torch.rand(1)) * torch.randn(1, *x.shape[1:])
        near = far * (
            1 + 10 ** (-8 + 3 * torch.rand(1)) * torch.randn(of_one, *[1] * (x.dim() - 1))
        )
        more, labels = (
            torch.cat([x[:15], near, x[15:]]),
            torch.cat([y[:15], torch.arange(of_one) % 2, y[15:]]),
        )
        sizes, computed = [3] * 10, ClippedGradients(FlatModel(module))
        both = computed(
            more, labels, clip(1.0), whose([*sizes[:5], of_one, *sizes[5:]])
        ).total.double()
        assert (
            float((both - computed(x, y, clip(1.0), whose(sizes)).total.double()).norm())
            <= 1 + 1e-6
        )


def test_no_unit_and_units_that_are_not_in_order() -> None:
    computed = ClippedGradients(FlatModel(LAYERS["mlp"][0]()))
    x, y = batch(3, 6)
    nothing = computed(x[:0], y[:0], clip(1.0), torch.zeros(0, dtype=torch.int64))
    assert not nothing.total.any()
    assert nothing.norms.shape == (0, 1)
    for wrong in ([0, 0], [1, 0, 0], [0, 2, 2]):
        with pytest.raises(DpflError, match="numbered 0, 1, 2"):
            computed(x, y, clip(1.0), torch.tensor(wrong))
    computed.model.vector[0] = float("nan")
    with pytest.raises(NonFinite):
        computed(x[:0], y[:0], clip(1.0), torch.zeros(0, dtype=torch.int64))


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from([1, 2, 3, 7]), max_size=4),
    st.sampled_from([1, 3, 50]),
    st.floats(1e-3, 1e6),
    st.integers(0, 5),
    st.sampled_from(["linear", "mlp", "convolution", "no rule"]),
)
def test_one_unit_more_moves_the_sum_by_the_level_at_most(
    others: list[int], added: int, scale: float, seed: int, name: str
) -> None:
    """A person with 1, 3 or 50 rows, however large they are and however they cancel."""
    make, shape = LAYERS[name]
    clipping, sizes = Flat(0.5), (*others, added)
    x, y = batch(sum(sizes), *shape, seed=seed)
    x[-added:] *= scale
    if added > 1:
        x[-1] = -x[-2]
    computed, group = ClippedGradients(FlatModel(make()), chunk=16), whose(sizes)
    total = partial(computed, factors=clipping.factors)
    moved = (
        total(x, y, unit_ids=group).total.double()
        - total(x[:-added], y[:-added], unit_ids=group[:-added]).total.double()
    )
    assert moved.norm() <= clipping.clip_norm


def test_a_person_with_thousands_of_rows_takes_the_memory_of_a_chunk() -> None:
    """Forward passes see a chunk at a time, and nothing is written out for more rows than that."""
    seen: list[int] = []

    class Watching(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(len(x))
            return super().forward(x)

    module = Watching(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, CLASSES))
    x, y = batch(5003, 6)
    sizes = (1, 5000, 2)
    found = ClippedGradients(FlatModel(module), chunk=64)(x, y, clip(0.01), whose(sizes))
    assert max(seen) <= 96, "a chunk has 64 rows, and the self-test three times 32"
    plain = nn.Sequential(*module)
    expected = []
    for part in torch.split(torch.arange(5003), sizes):
        loss = nn.functional.cross_entropy(plain(x[part]), y[part])
        expected.append(
            torch.cat(
                [
                    gradient.flatten()
                    for gradient in torch.autograd.grad(loss, list(plain.parameters()))
                ]
            )
        )
    rows = torch.stack(expected)
    assert bounds(found.norms[:, 0], rows.double().norm(dim=1))
    assert close(found.total, clip(0.01)(found.norms[:, 0]) @ rows.double())
