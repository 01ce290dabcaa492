"""Networks on sequences of tokens.

Scores are at every place, for the next token, or after the last place, for a label of the whole. A
token beyond the vocabulary counts as the nearest one. So whoever names a vocabulary cannot learn
from a failure who is beyond it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpfl.errors import DpflError

Shape = tuple[int, ...]


class Recurrent(nn.Module):
    """An embedding, one gated recurrent layer, and scores.

    Args:
        vocabulary: The number of tokens.
        width: The width of the embedding and of the layer.
        outputs: The number of scores.
        at_end: Whether scores are after the last place only.
    """

    written_as = "recurrent"

    def __init__(self, vocabulary: int, width: int, outputs: int, at_end: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, outputs)
        self.at_end = at_end

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores a batch of sequences. Padding, which is below 0, is read as token 0.

        Args:
            tokens: Token numbers (B, places).

        Returns:
            The scores (B, places, outputs), or (B, outputs) after the last place only.
        """
        states = self.gru(
            self.embedding(tokens.long().clamp(0, self.embedding.num_embeddings - 1))
        )[0]
        return self.head(states[:, -1] if self.at_end else states)


class Attention(nn.Module):
    """Causal self-attention: every place sees itself and those before it.

    Args:
        width: The width of a place.
        heads: The number of heads.
    """

    written_as = "attention"

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inwards, self.outwards = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Computes softmax(Q K^T / sqrt(width / heads)) V per head, up to each place.

        Args:
            x: The places (B, places, width).

        Returns:
            The mixed places (B, places, width).
        """
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.inwards(x).chunk(3, 2)
        )
        values = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.outwards(values.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A transformer block, normalised before each part (Xiong et al. 2020), which needs no warm-up.

    Args:
        width: The width of a place.
        heads: The number of heads.
    """

    written_as = "transformer-block"

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width, heads))
        self.dense = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Adds attention to every place, and then a dense layer of it.

        Args:
            x: The places (B, places, width).

        Returns:
            The places (B, places, width).
        """
        x = x + self.attention(x)
        return x + self.dense(x)


class Transformer(nn.Module):
    """A causal transformer. Sines and cosines (Vaswani et al. 2017) tell its places apart.

    They are constants, which need no noise.

    Args:
        vocabulary: The number of tokens.
        places: The largest number of places.
        width: The width of a place.
        layers: The number of blocks.
        heads: The number of heads of each.
        outputs: The number of scores.
        at_end: Whether scores are after the last place only.
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
        """Scores a batch of sequences. Padding, which is below 0, is read as token 0.

        Args:
            tokens: Token numbers (B, places).

        Returns:
            The scores (B, places, outputs), or (B, outputs) after the last place only.
        """
        tokens = tokens.long().clamp(0, self.embedding.num_embeddings - 1)
        states = self.blocks(self.embedding(tokens) + self.waves[: tokens.shape[1]])
        return self.head(states[:, -1] if self.at_end else states)


def build_gru(shape: Shape, outputs: int, width: int, vocabulary: int | None = None) -> nn.Module:
    """Builds a recurrent network.

    Args:
        shape: The shape of a sample, a row of tokens.
        outputs: The number of scores.
        width: The width of the embedding and of the layer.
        vocabulary: The number of tokens, where scores are for a label of the whole sequence.

    Returns:
        The module.

    Raises:
        DpflError: Samples are no rows of tokens.
    """
    _places(shape)
    return Recurrent(vocabulary or outputs, width, outputs, at_end=vocabulary is not None)


def build_transformer(
    shape: Shape, outputs: int, width: int, layers: int, heads: int, vocabulary: int | None = None
) -> nn.Module:
    """Builds a transformer.

    Args:
        shape: The shape of a sample, a row of tokens.
        outputs: The number of scores.
        width: The width of a place.
        layers: The number of blocks.
        heads: The number of heads of each.
        vocabulary: The number of tokens, where scores are for a label of the whole sequence.

    Returns:
        The module.

    Raises:
        DpflError: Samples are no rows of tokens.
    """
    at_end = vocabulary is not None
    return Transformer(vocabulary or outputs, _places(shape), width, layers, heads, outputs, at_end)


def _waves(places: int, width: int) -> Tensor:
    """Computes sines and cosines (places, width) of the place, at wavelengths from 2 pi to 10,000
    times as long.
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
