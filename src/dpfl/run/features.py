"""Samples as the fixed features that a model is trained on, made once."""

from __future__ import annotations

from dataclasses import replace

import torch

from dpfl.data import Dataset, Federation
from dpfl.engines import one_thread
from dpfl.models import Buildable, feature_map


def with_features(model: Buildable, federation: Federation) -> Federation:
    """Every sample replaced, once, by the fixed features that the model is trained on: a function
    of that sample alone, so that neighbours stay neighbours and no guarantee changes."""
    # small pieces of work, which a second thread would only wait for; and sums that it could change
    with one_thread():
        features = feature_map(model, federation.shape)
        if features is None:
            return federation
        train, test = federation.train, federation.test
        key = (model.name, model.options, train.sha256, test.sha256 if test else "")
        if key not in _FEATURES:
            _FEATURES.clear()
            _FEATURES[key] = tuple(
                replace(one, x=_finite(features(one.x))) if one else None for one in (train, test)
            )
    made, measured = _FEATURES[key]
    assert made is not None
    return replace(federation, train=made, test=measured)


def _finite(features: torch.Tensor) -> torch.Tensor:
    """A sample too large for its features counts as nothing: that it is there must not end a
    run.
    """
    return features.nan_to_num(0.0, 0.0, 0.0)


_FEATURES: dict[tuple[object, ...], tuple[Dataset | None, ...]] = {}
"""Those that were made last, for runs one after another on the same data."""
