"""Replaces samples by the fixed features that a model is trained on."""

from __future__ import annotations

from dataclasses import replace

import torch

from dpfl.data import Dataset, Federation
from dpfl.engines import one_thread
from dpfl.models import Buildable, feature_map


def with_features(model: Buildable, federation: Federation) -> Federation:
    """Replaces every sample by the fixed features that a model is trained on.

    A feature is a function of its own sample alone, so neighbours stay neighbours and no guarantee
    changes. Features are computed once for runs one after another on the same data.

    Args:
        model: The description of the model.
        federation: The federation with its samples as they were brought.

    Returns:
        The federation with features; the same federation where the model takes samples as they are.
    """
    # One thread: the pieces of work are small, and a second thread could change the sums.
    with one_thread():
        features = feature_map(model, federation.shape)
        if features is None:
            return federation
        train, test = federation.train, federation.test
        key = (model.name, model.options, train.sha256, test.sha256 if test else "")
        if key not in _FEATURES:
            _FEATURES.clear()
            _FEATURES[key] = tuple(
                replace(dataset, x=_finite(features(dataset.x))) if dataset else None
                for dataset in (train, test)
            )
    train_features, test_features = _FEATURES[key]
    assert train_features is not None
    return replace(federation, train=train_features, test=test_features)


def _finite(features: torch.Tensor) -> torch.Tensor:
    """Replaces features that are not finite by 0. The presence of a sample with such features must
    not end a run.
    """
    return features.nan_to_num(0.0, 0.0, 0.0)


_FEATURES: dict[tuple[object, ...], tuple[Dataset | None, ...]] = {}
"""The features of the last run, by its model and its data."""
