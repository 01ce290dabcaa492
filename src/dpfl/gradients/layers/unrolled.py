"""Layers that hide their linear maps from hooks: attention and recurrent layers.

torch computes such a layer in one call, so a hook sees neither the input nor the output gradient of
the linear maps inside. Here the layer is computed from linear maps that are recorded one by one.
Each map then follows the rule of a linear layer, and a recurrent layer's steps are positions of its
maps: dL/dW = sum_t g_t x_t^T.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from dpfl.gradients.products import sum_of_outer
from dpfl.gradients.unit_gradients import UnitGradients, UnsupportedLayer, from_rows, stack

_ALL = slice(None)
_ATTENTION_OPTIONS = (
    "key_padding_mask",
    "need_weights",
    "attn_mask",
    "average_attn_weights",
    "is_causal",
)
# What `nn.MultiheadAttention.forward` takes after the value, in its order.
State = tuple[Tensor, ...]
Project = Callable[[str, Tensor], Tensor]
"""The name of a linear map and its input (B, ..., in) to its output (B, ..., out), which is
recorded.
"""


@dataclass(frozen=True)
class LinearMap:
    """x W^T + b with some rows of a weight and of a bias.

    Attributes:
        weight: The name of the weight.
        bias: The name of the bias, or None.
        weight_rows: The rows of the weight that the map uses.
        bias_rows: The rows of the bias that it uses.
    """

    weight: str
    bias: str | None
    weight_rows: slice = field(default_factory=lambda: _ALL)
    bias_rows: slice = field(default_factory=lambda: _ALL)


@dataclass(frozen=True)
class UnrolledLayer:
    """A layer as a composition of linear maps.

    Attributes:
        maps: The linear maps by name, in the order of the rows of their weights.
        forward: Computes the layer, states the module, a `Project` that applies a map, and the
            layer's own arguments.
    """

    maps: dict[str, LinearMap] = field(repr=False)
    forward: Callable[..., Any]

    def gradients(
        self, trained_names: set[str], terms: dict[str, tuple[Tensor, Tensor]]
    ) -> dict[str, UnitGradients]:
        """Computes the gradients of the layer's parameters.

        Args:
            trained_names: The names of the parameters that are trained.
            terms: For each map, its inputs (B, T, in) and the gradients (B, T, out) at its outputs.

        Returns:
            The gradients by parameter name.
        """
        weights: dict[str, list[UnitGradients]] = {}
        biases: dict[str, list[Tensor]] = {}
        for name, (x, g) in terms.items():
            linear_map = self.maps[name]
            if linear_map.weight in trained_names:
                weights.setdefault(linear_map.weight, []).append(sum_of_outer(x, g))
            if linear_map.bias is not None and linear_map.bias in trained_names:
                biases.setdefault(linear_map.bias, []).append(g.sum(1))
        return {name: stack(parts) for name, parts in weights.items()} | {
            name: from_rows(torch.cat(parts, dim=1)) for name, parts in biases.items()
        }


def unrolled_for(module: nn.Module) -> UnrolledLayer | None:
    """Describes how to compute a layer from linear maps.

    Args:
        module: The layer.

    Returns:
        The description, or None where the type is not known here, or the module may compute
        something else than its type says.
    """
    if type(module) not in _MAPS or "forward" in module.__dict__:
        return None
    children = list(module.children())
    if any(
        type(child) is not NonDynamicallyQuantizableLinear or "forward" in child.__dict__
        for child in children
    ):
        return None
    maps = _MAPS[type(module)](module)
    names = {
        name
        for linear_map in maps.values()
        for name in (linear_map.weight, linear_map.bias)
        if name is not None
    }
    complete = names == {name for name, _ in module.named_parameters()}
    return UnrolledLayer(maps, _FORWARDS[type(module)]) if complete else None


def _attention_maps(module: Any) -> dict[str, LinearMap]:
    width = module.embed_dim
    bias = None if module.in_proj_bias is None else "in_proj_bias"
    maps = {}
    for place, name in enumerate("qkv"):
        rows = slice(place * width, (place + 1) * width)
        own = not module._qkv_same_embed_dim
        maps[name] = LinearMap(
            f"{name}_proj_weight" if own else "in_proj_weight", bias, _ALL if own else rows, rows
        )
    return maps | {
        "out": LinearMap(
            "out_proj.weight", None if module.out_proj.bias is None else "out_proj.bias"
        )
    }


def _attention(
    module: Any,
    project: Project,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *masks: Any,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Runs torch's own attention, with identities in place of the projections.

    The projections are computed and recorded around it. `masks` and `options` are what
    `nn.MultiheadAttention.forward` takes after the value.
    """
    if query.dim() != 3:
        raise UnsupportedLayer("an attention layer without a batch dimension")
    options |= dict(zip(_ATTENTION_OPTIONS, masks, strict=False))
    inputs = [x if module.batch_first else x.transpose(0, 1) for x in (query, key, value)]
    q, k, v = (project(name, x).transpose(0, 1) for name, x in zip("qkv", inputs, strict=True))
    identity = torch.eye(module.embed_dim, dtype=q.dtype, device=q.device)
    heads, weights = F.multi_head_attention_forward(
        q,
        k,
        v,
        module.embed_dim,
        module.num_heads,
        in_proj_weight=None,
        in_proj_bias=None,
        bias_k=None,
        bias_v=None,
        add_zero_attn=module.add_zero_attn,
        dropout_p=module.dropout,
        out_proj_weight=identity,
        out_proj_bias=None,
        training=module.training,
        use_separate_proj_weight=True,
        q_proj_weight=identity,
        k_proj_weight=identity,
        v_proj_weight=identity,
        **options,
    )
    output = project("out", heads.transpose(0, 1))
    return output if module.batch_first else output.transpose(0, 1), weights


def _recurrent_maps(module: Any) -> dict[str, LinearMap]:
    if module.proj_size:
        return {}
    ends = [f"_l{layer}{end}" for layer in range(module.num_layers) for end in _directions(module)]
    return {kind + end: _map(kind + end, module.bias) for end in ends for kind in ("ih", "hh")}


def _cell_maps(module: Any) -> dict[str, LinearMap]:
    return {kind: _map(kind, module.bias) for kind in ("ih", "hh")}


def _map(name: str, bias: bool) -> LinearMap:
    return LinearMap(f"weight_{name}", f"bias_{name}" if bias else None)


def _directions(module: Any) -> tuple[str, ...]:
    return ("", "_reverse") if module.bidirectional else ("",)


def _recurrent(module: Any, project: Project, x: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
    if not isinstance(x, Tensor) or x.dim() != 3:
        raise UnsupportedLayer(f"a {type(module).__name__} on a packed or a single sequence")
    x = x if module.batch_first else x.transpose(0, 1)
    starts = _starts(module, x, hx)
    finals: list[State] = []
    for layer in range(module.num_layers):
        outputs = []
        for end in _directions(module):
            steps = x.flip(1) if end else x
            output, final = _scan(module, project, f"_l{layer}{end}", steps, starts[len(finals)])
            outputs.append(output.flip(1) if end else output)
            finals.append(final)
        x = torch.cat(outputs, dim=2)
        if module.dropout and layer + 1 < module.num_layers:
            x = F.dropout(x, module.dropout, module.training)
    last = tuple(torch.stack(states) for states in zip(*finals, strict=True))
    return x if module.batch_first else x.transpose(0, 1), last if len(last) > 1 else last[0]


def _starts(module: Any, x: Tensor, hx: Any) -> list[State]:
    """Returns the initial state of each layer and direction."""
    count = module.num_layers * len(_directions(module))
    kinds = 2 if isinstance(module, nn.LSTM) else 1
    if hx is None:
        return [(x.new_zeros(len(x), module.hidden_size),) * kinds] * count
    states = hx if isinstance(hx, tuple) else (hx,)
    return list(zip(*(state.unbind(0) for state in states), strict=True))


def _scan(module: Any, project: Project, end: str, x: Tensor, state: State) -> tuple[Tensor, State]:
    outputs = []
    for inputs in project("ih" + end, x).unbind(1):
        state = _STEPS[type(module)](module, inputs, project("hh" + end, state[0]), state)
        outputs.append(state[0])
    return torch.stack(outputs, dim=1), state


def _cell(module: Any, project: Project, x: Tensor, hx: Any = None) -> Any:
    if x.dim() != 2:
        raise UnsupportedLayer(f"a {type(module).__name__} without a batch dimension")
    lstm = isinstance(module, nn.LSTMCell)
    if hx is None:
        hx = (x.new_zeros(len(x), module.hidden_size),) * (2 if lstm else 1)
    state = hx if isinstance(hx, tuple) else (hx,)
    state = _STEPS[type(module)](module, project("ih", x), project("hh", state[0]), state)
    return state if lstm else state[0]


def _lstm_step(module: Any, x: Tensor, h: Tensor, state: State) -> State:
    keep_in, forget, new, out = (x + h).chunk(4, dim=1)
    memory = forget.sigmoid() * state[1] + keep_in.sigmoid() * new.tanh()
    return out.sigmoid() * memory.tanh(), memory


def _gru_step(module: Any, x: Tensor, h: Tensor, state: State) -> State:
    (x_reset, x_update, x_new), (h_reset, h_update, h_new) = x.chunk(3, dim=1), h.chunk(3, dim=1)
    update = (x_update + h_update).sigmoid()
    new = (x_new + (x_reset + h_reset).sigmoid() * h_new).tanh()
    return (new + update * (state[0] - new),)


def _rnn_step(module: Any, x: Tensor, h: Tensor, state: State) -> State:
    return ((x + h).tanh() if module.nonlinearity == "tanh" else (x + h).relu(),)


_MAPS: dict[type[nn.Module], Callable[[Any], dict[str, LinearMap]]] = {
    nn.MultiheadAttention: _attention_maps,
    nn.LSTM: _recurrent_maps,
    nn.GRU: _recurrent_maps,
    nn.RNN: _recurrent_maps,
    nn.LSTMCell: _cell_maps,
    nn.GRUCell: _cell_maps,
    nn.RNNCell: _cell_maps,
}
_FORWARDS: dict[type[nn.Module], Callable[..., Any]] = {
    kind: _attention
    if maps is _attention_maps
    else _recurrent
    if maps is _recurrent_maps
    else _cell
    for kind, maps in _MAPS.items()
}
_STEPS: dict[type[nn.Module], Callable[[Any, Tensor, Tensor, State], State]] = {
    nn.LSTM: _lstm_step,
    nn.LSTMCell: _lstm_step,
    nn.GRU: _gru_step,
    nn.GRUCell: _gru_step,
    nn.RNN: _rnn_step,
    nn.RNNCell: _rnn_step,
}
