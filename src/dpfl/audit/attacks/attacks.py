"""Attacks on trained models of a system: membership inference, with the training that it needs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from dpfl import data, models
from dpfl.algorithms import Algorithm
from dpfl.audit.attacks.membership import RocCurve, likelihood_ratio, loss_threshold, losses, roc
from dpfl.data import IID, Federation
from dpfl.errors import DpflError
from dpfl.models import FlatModel
from dpfl.models.columns import on_columns
from dpfl.privacy import Budget
from dpfl.run.options import Execution, Privacy
from dpfl.run.train import train

MEMBERS, CLIENTS, ROUNDS, SHADOWS = 400, 4, 5, 4
MODEL = models.mlp(hidden=32)


def membership(algorithm: Algorithm, delta: float, seed: int = 0) -> list[RocCurve]:
    """Attacks a model that is trained on some of the embedded images.

    Shadow models are trained on others. The attacks ask which of the members and of as many other
    images were used.

    Args:
        algorithm: The system.
        delta: Delta of the guarantee.
        seed: The seed.

    Returns:
        The curve of each attack.
    """
    source = data.sample()
    x, y = source.train.x, source.train.y
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(x)))
    members, others, *shadows = order.split(MEMBERS)[: 2 + SHADOWS]
    with tempfile.TemporaryDirectory(prefix="dpfl-audit-") as name:
        target, epsilon = _train_model(
            algorithm, x[members], y[members], delta, seed, Path(name) / "target"
        )
        shadow_models = [
            _train_model(
                algorithm,
                x[rows],
                y[rows],
                delta,
                seed + 1 + number,
                Path(name) / f"shadow-{number}",
            )[0]
            for number, rows in enumerate(shadows)
        ]
    samples = (x[members], y[members]), (x[others], y[others])
    return [
        loss_threshold(target, *samples, epsilon, delta),
        likelihood_ratio(target, shadow_models, *samples, epsilon, delta),
    ]


def _train_model(
    algorithm: Algorithm, x: Tensor, y: Tensor, delta: float, seed: int, out: Path
) -> tuple[nn.Module, float]:
    public = MEMBERS // 8
    source = data.tensors(x, y, x[:public], y[:public], name="audit", classes=10)
    clients = max(CLIENTS, algorithm.noise_shares.survivors if algorithm.noise_shares else 0)
    split = source.split(clients=clients, how=IID(), seed=seed, public_clients=1)
    # RDP is quick however little noise a published system has.
    by = None if algorithm.sound else "rdp"
    result = train(
        MODEL,
        split,
        algorithm,
        Budget(delta=delta, rounds=ROUNDS),
        privacy=Privacy(accountant=by),
        execution=Execution(seed=seed, out=out),
    )
    return result.module, result.privacy.proven


def membership_of(
    module: nn.Module, federation: Federation, epsilon: float, delta: float, most: int = 2000
) -> RocCurve | None:
    """Attacks a model that was trained before, by the loss of its task.

    Args:
        module: The model.
        federation: Its training data, and its test set.
        epsilon: Proven epsilon of the run.
        delta: Delta of the guarantee.
        most: Largest number of samples on each side.

    Returns:
        The curve; None without a test set, since no sample is then known to be no member.
    """
    rows = torch.cat(
        [federation.clients[client] for client in range(min(len(federation.clients), 50))]
    )[:most]
    train_set, test = federation.train, federation.test
    if test is None:
        return None
    members, others = (train_set.x[rows], train_set.y[rows]), (test.x[:most], test.y[:most])
    inside, outside = (-losses(module, federation.task, *samples) for samples in (members, others))
    return roc("loss threshold", inside, outside, epsilon, delta)


def load_module(model: models.Model, federation: Federation, path: Path) -> nn.Module:
    """Loads the model of a finished run.

    Args:
        model: The model's architecture.
        federation: The data of the run.
        path: File with the weights.

    Returns:
        The module.

    Raises:
        DpflError: The file is missing or damaged.
    """
    flat = FlatModel(
        on_columns(model, federation.train.features).build(
            federation.shape, federation.task.outputs, 0
        )
    )
    try:
        tensors = load_file(path)
        vector = torch.cat([tensors[name].reshape(-1) for name in flat.layout.names])
    except (SafetensorError, OSError, KeyError) as error:
        raise DpflError(
            f"The model {path} is missing or damaged ({error}); restore it from a copy."
        ) from error
    flat.load(vector)
    return flat.module
