"""Refuses models for which no per-sample guarantee exists."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from dpfl.errors import DpflError


def refuse_batch_statistics(module: nn.Module) -> None:
    """Refuses a model with a layer that lets one sample change the gradients, or the state, of
    others.

    Args:
        module: The model.

    Raises:
        DpflError: A layer has batch statistics, or rewrites or rescales by what the batch holds.
    """
    for name, layer in module.named_modules():
        where = (
            f"Layer {name!r} ({type(layer).__name__})"
            if name
            else f"The model ({type(layer).__name__})"
        )
        if isinstance(layer, _BatchNorm):
            raise DpflError(
                f"{where} mixes the samples of a batch, so no per-sample guarantee is possible; "
                'use GroupNorm (norm = "group" in this catalogue) or LayerNorm instead.'
            )
        if isinstance(layer, _InstanceNorm) and layer.track_running_stats:
            raise DpflError(
                f"{where} releases running statistics of the samples without noise, so no "
                "per-sample guarantee is "
                "possible; set track_running_stats=False or use GroupNorm."
            )
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
            _refuse_embedding(layer, where)


def _refuse_embedding(layer: nn.Embedding | nn.EmbeddingBag, where: str) -> None:
    if layer.scale_grad_by_freq:
        raise DpflError(
            f"{where} scales gradients by how often a word is in the batch, which mixes the "
            "samples, so no per-sample "
            "guarantee is possible; set scale_grad_by_freq=False."
        )
    if layer.max_norm is not None:
        raise DpflError(
            f"{where} rewrites the rows that the samples look up, without noise, so no per-sample "
            "guarantee is "
            "possible; set max_norm=None."
        )
