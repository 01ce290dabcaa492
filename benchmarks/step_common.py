"""The same model, weights, batch and settings for every contender of a step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import dpfl
from benchmarks import datasets

CLIP, NOISE, RATE = 1.0, 1.0, 0.05


def module_of(model: str) -> nn.Module:
    """Returns a model at its start."""
    return dpfl.models.from_name(model).build(shape_of(model), 10, seed=0)


def shape_of(model: str) -> tuple[int, ...]:
    """Returns the shape of a model's images."""
    return (3, 32, 32) if model == "resnet-18" else (1, 28, 28)


def batch_of(model: str, batch: int) -> tuple[Tensor, Tensor]:
    """Returns a batch of images and labels."""
    train = (datasets.cifar10() if model == "resnet-18" else datasets.mnist()).train
    return train.x[:batch].clone(), train.y[:batch].clone()


def flat(module: nn.Module) -> Tensor:
    """Returns the parameters as one vector."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


def memory_format_of(name: str) -> torch.memory_format:
    """Returns a memory format by its name."""
    return torch.channels_last if name == "channels_last" else torch.contiguous_format
