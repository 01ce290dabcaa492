"""Networks on sequences of tokens: scores at every place, for the next token, or after the last,
for a label of the whole.

A token beyond the vocabulary counts as the nearest: whoever names a vocabulary cannot learn from a
failure who is beyond it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpfl.errors import DpflError

Shape = tuple[int, ...]


class Recurrent(nn.Module):
    """Embedding, one gated recurrent layer, scores."""

    written_as = "recurrent"

    def __init__(self, vocabulary: int, width: int, outputs: int, at_end: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, outputs)
        self.at_end = at_end

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.gru(
            self.embedding(tokens.long().clamp(0, self.embedding.num_embeddings - 1))
        )[0]
        return self.head(states[:, -1] if self.at_end else states)


class Attention(nn.Module):
    """Every place looks at itself and at those before it."""

    written_as = "attention"

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inwards, self.outwards = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.inwards(x).chunk(3, 2)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.outwards(seen.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Normalised before each part (Xiong et al. 2020), so that no warm-up is needed."""

    written_as = "transformer-block"

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width, heads))
        self.dense = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        return x + self.dense(x)


class Transformer(nn.Module):
    """Places are told apart by sines and cosines (Vaswani et al. 2017), which are constants and
    need no noise.
    """

    written_as = "transformer"

    def __init__(
        self,
        vocabulary: int,
        places: int,
        width: int,
        layers: int,
        heads: int,
        outputs: int,
        at_end: bool,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.waves: Tensor
        self.register_buffer("waves", _waves(places, width), persistent=False)
        self.blocks = nn.Sequential(
            *(Block(width, heads) for _ in range(layers)), nn.LayerNorm(width)
        )
        self.head = nn.Linear(width, outputs)
        self.at_end = at_end

    def forward(self, tokens: Tensor) -> Tensor:
        known = tokens.long().clamp(0, self.embedding.num_embeddings - 1)
        states = self.blocks(self.embedding(known) + self.waves[: tokens.shape[1]])
        return self.head(states[:, -1] if self.at_end else states)


def build_gru(shape: Shape, outputs: int, width: int, vocabulary: int | None = None) -> nn.Module:
    _places(shape)
    return Recurrent(vocabulary or outputs, width, outputs, at_end=vocabulary is not None)


def build_transformer(
    shape: Shape, outputs: int, width: int, layers: int, heads: int, vocabulary: int | None = None
) -> nn.Module:
    at_end = vocabulary is not None
    return Transformer(vocabulary or outputs, _places(shape), width, layers, heads, outputs, at_end)


def _waves(places: int, width: int) -> Tensor:
    """(places, width): sin and cos of the place at wavelengths from 2 pi to 10,000 times as
    long.
    """
    frequencies = torch.exp(-math.log(10_000.0) * torch.arange(0, width, 2) / width)
    angles = torch.arange(places).unsqueeze(1) * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width]


def _places(shape: Shape) -> int:
    if len(shape) != 1:
        raise DpflError(
            "A model of sequences takes samples that are rows of tokens, but a sample has shape "
            f"{shape}: "
            'use the task "tokens", or another model.'
        )
    return shape[0]
