"""Attention and recurrent layers, computed from linear maps, against gradients sample by sample."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dpfl.gradients.passes.layer_pass import LayerPass
from dpfl.gradients.passes.row_pass import RowPass
from tests.gradients.gradient_reference import (
    CLASSES,
    batch,
    by_opacus,
    by_rule,
    check,
    close,
    one_by_one,
)


class Attention(nn.Module):
    """Self-attention, or attention of the first places to all, with the options of torch's
    layer.
    """

    def __init__(self, cross: bool = False, **options: object) -> None:
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(6, 2, **options), nn.Linear(6, CLASSES)  # type: ignore[arg-type]
        self.cross, self.call = cross, {}

    def forward(self, x: Tensor) -> Tensor:
        first = self.attention.batch_first
        memory = x if first else x.transpose(0, 1)
        query = (x[:, :2] if first else x[:, :2].transpose(0, 1)) if self.cross else memory
        key, value = memory[..., : self.attention.kdim], memory[..., : self.attention.vdim]
        found, weights = self.attention(query[..., :6], key, value, **self.call)
        scores = self.head(found.mean(1 if first else 0))
        return (
            scores
            if weights is None
            else scores + weights.square().flatten(1).sum(1, keepdim=True) * scores
        )


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("cross", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("size", [1, 7])
def test_attention(first: bool, cross: bool, bias: bool, size: int) -> None:
    by_rule(Attention(cross, batch_first=first, bias=bias), *batch(size, 4, 6))


@pytest.mark.parametrize("options", [{"kdim": 5, "vdim": 3}, {"add_zero_attn": True}])
def test_attention_with_other_widths(options: dict[str, object]) -> None:
    by_rule(Attention(cross=True, batch_first=True, **options), *batch(7, 4, 6))


@pytest.mark.parametrize(
    "call",
    [{"need_weights": False}, {"average_attn_weights": False}, {"is_causal": True}, {"mask": True}],
)
def test_attention_with_masks_and_weights(call: dict[str, object]) -> None:
    module = Attention(batch_first=True)
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    module.call = {"attn_mask": causal, "is_causal": True} if "is_causal" in call else call
    if "mask" in call:
        module.call = {"attn_mask": torch.eye(4, dtype=torch.bool)}
    by_rule(module, *batch(7, 4, 6))


def test_a_transformer_with_partly_frozen_attention() -> None:
    layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, activation="gelu", batch_first=True)
    layer.self_attn.in_proj_bias.requires_grad_(False)
    layer.self_attn.out_proj.weight.requires_grad_(False)
    by_rule(nn.Sequential(layer, nn.Flatten(), nn.Linear(24, CLASSES)), *batch(7, 4, 6))


def test_attention_with_keys_of_its_own_falls_back() -> None:
    check(Attention(batch_first=True, add_bias_kv=True), *batch(3, 4, 6))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], last_state: bool, **options: object) -> None:
        super().__init__()
        self.inner = kind(5, 3, **options)  # type: ignore[arg-type]
        self.head = nn.Linear(3 * (2 if self.inner.bidirectional else 1), CLASSES)
        self.last_state = last_state

    def forward(self, x: Tensor) -> Tensor:
        output, state = self.inner(x if self.inner.batch_first else x.transpose(0, 1))
        if self.last_state:
            hidden = sum(state) if isinstance(state, tuple) else state
            return self.head(
                hidden[-2:].transpose(0, 1).flatten(1) if self.inner.bidirectional else hidden[-1]
            )
        return self.head(output.mean(1 if self.inner.batch_first else 0))


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_recurrent_layers(data: st.DataObject) -> None:
    torch.manual_seed(0)
    kind = data.draw(st.sampled_from([nn.LSTM, nn.GRU, nn.RNN]))
    options = {name: data.draw(st.booleans()) for name in ("bias", "batch_first", "bidirectional")}
    if kind is nn.RNN:
        options["nonlinearity"] = data.draw(st.sampled_from(["tanh", "relu"]))
    module = Recurrent(
        kind, data.draw(st.booleans()), num_layers=data.draw(st.integers(1, 2)), **options
    )
    for parameter in module.inner.parameters():
        parameter.requires_grad_(data.draw(st.integers(0, 4)) > 0)
    by_rule(module, *batch(data.draw(st.sampled_from([0, 1, 7])), data.draw(st.integers(1, 4)), 5))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_equal_opacus(kind: type[nn.RNNBase]) -> None:
    from opacus.layers import DPGRU, DPLSTM

    module = Recurrent(kind, False, batch_first=True)
    theirs = copy.deepcopy(module)
    theirs.inner = (DPLSTM if kind is nn.LSTM else DPGRU)(5, 3, batch_first=True)
    theirs.inner.load_state_dict(module.inner.state_dict())
    theirs.inner.bidirectional = False
    x, y = batch(7, 4, 5)
    rows = one_by_one(module, x, y)
    by_rule(module, x, y, rows=rows)
    assert close(by_opacus(theirs, x, y).norm(dim=1), rows.norm(dim=1))


def test_recurrent_layers_from_a_given_state() -> None:
    class Started(Recurrent):
        def forward(self, x: Tensor) -> Tensor:
            start = x[:, 0, :3].unsqueeze(0).contiguous()
            return self.head(self.inner(x, (start, start.sin()))[0].mean(1))

    by_rule(Started(nn.LSTM, False, batch_first=True), *batch(7, 4, 5))


class Cells(nn.Module):
    def __init__(self, kind: type[nn.RNNCellBase], bias: bool) -> None:
        super().__init__()
        self.cell, self.head = kind(5, 3, bias=bias), nn.Linear(3, CLASSES)  # type: ignore[call-arg]

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for place in x.unbind(1):
            state = self.cell(place, state)
        return self.head(state[0] if isinstance(state, tuple) else state)


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("size", [1, 90])
def test_cells(kind: type[nn.RNNCellBase], bias: bool, size: int) -> None:
    by_rule(Cells(kind, bias), *batch(size, 4, 5))


class Projected(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.LSTM(5, 4, batch_first=True, proj_size=3), nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x)[0].mean(1))


def test_a_projected_lstm_falls_back() -> None:
    check(Projected(), *batch(3, 4, 5))


class Reading(nn.Module):
    """Sequences whose steps come first, as torch's recurrent layers have them by default."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x.transpose(0, 1))[0][-1])


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_recurrent_layers_whose_steps_come_first(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    assert isinstance(check(Reading(kind(5, 4)), *batch(2, 3, 5)).passes.current, LayerPass)


class Looping(nn.Module):
    """Calls a cell for one sample after another, without a batch dimension."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell, self.head = cell, nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        states = [self.cell(row) for row in x]
        return self.head(
            torch.stack([state[0] if isinstance(state, tuple) else state for state in states])
        )


@pytest.mark.parametrize("kind", [nn.RNNCell, nn.GRUCell, nn.LSTMCell])
def test_cells_that_read_one_sample_at_a_time_are_left_to_a_way_that_takes_them(
    kind: type[nn.Module],
) -> None:
    torch.manual_seed(0)
    assert isinstance(check(Looping(kind(5, 4)), *batch(2, 5)).passes.current, RowPass)
