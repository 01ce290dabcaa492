"""Models on fixed features: computed once, they train as if they were computed at every step."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import dpfl
from dpfl import models
from dpfl.algorithms import fedavg, fedavg_dp
from dpfl.data import IID, Federation
from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel
from dpfl.privacy import Flat
from tests.conftest import StopsAfter

SHAPE = (1, 28, 28)
MODEL = models.scattering_linear()
PRIVATE = fedavg_dp(sampling_rate=0.5, noise_multiplier=0.8, rate=0.8)


@pytest.fixture(scope="module")
def federation() -> Federation:
    """Two clients with 150 images each."""
    whole = dpfl.data.sample()
    few = dpfl.data.tensors(
        whole.train.x[:300], whole.train.y[:300], whole.test.x[:150], whole.test.y[:150], name="few"
    )
    return few.split(clients=2, how=IID(), seed=0)


class OnImages(nn.Module):
    """The same model with its features inside, computed at every pass."""

    def __init__(self) -> None:
        super().__init__()
        self.features = models.feature_map(MODEL, SHAPE)
        self.layer = MODEL.build((81, 7, 7), 10, seed=0)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.features(x))


@pytest.mark.parametrize(
    ("shape", "features", "parameters"),
    [(SHAPE, (81, 7, 7), 39_700), ((3, 8, 8), (243, 2, 2), 9_730)],
)
def test_only_the_linear_layer_is_trained(shape, features, parameters):
    assert models.feature_map(MODEL, shape)(torch.rand(2, *shape)).shape == (2, *features)
    flat = FlatModel(MODEL.build(features, 10, seed=0))
    assert flat.layout.trainable == parameters
    assert flat.layout.size - parameters == torch.Size(features).numel()  # the centre


def test_other_models_have_no_fixed_features():
    assert models.feature_map(models.cnn(), SHAPE) is None
    assert models.feature_map(models.from_module(nn.Linear(2, 2)), SHAPE) is None


@pytest.mark.parametrize("level", [0.5, 1e6])
def test_clipped_gradients_on_features_are_those_of_the_whole_model(federation, level):
    data, whole = federation.train, OnImages()
    x, y = data.x[:24], data.y[:24]
    head = FlatModel(MODEL.build((81, 7, 7), 10, seed=0))
    found = ClippedGradients(head)(whole.features(x), y, Flat(level).factors).total
    wanted = torch.zeros_like(found)
    for image, label in zip(x, y, strict=True):
        loss = nn.functional.cross_entropy(whole(image[None]), label[None])
        gradient = torch.cat(
            [part.flatten() for part in torch.autograd.grad(loss, list(whole.parameters()))]
        )
        wanted += gradient * min(1.0, level / float(gradient.norm()))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


def test_training_on_features_is_training_the_whole_model(train, federation):
    plain = fedavg(tau=2, rate=0.01)
    cached = train(federation, plain, model=MODEL, rounds=1, out="cached")
    whole = train(federation, plain, model=OnImages(), rounds=1, out="whole")
    assert cached.accuracy == pytest.approx(whole.accuracy, abs=0.006)
    for one, other in zip(cached.module.parameters(), whole.module.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_a_private_run_learns_and_is_the_same_resumed_and_on_two_workers(train, federation):
    options = {"model": MODEL, "epsilon": 30.0, "rounds": 6}
    whole = train(federation, PRIVATE, **options)
    assert whole.accuracy > 0.5
    assert whole.privacy.proven <= 30.0
    with pytest.raises(KeyboardInterrupt):
        train(federation, PRIVATE, out="stopped", progress=StopsAfter(3), **options)
    resumed = train(federation, PRIVATE, out="stopped", resume=True, **options)
    assert resumed.model_sha256 == whole.model_sha256
    assert (
        train(federation, PRIVATE, out="two", workers=2, **options).model_sha256
        == whole.model_sha256
    )


def test_saved_weights_are_those_of_the_layer_on_the_features(train, federation):
    result = train(federation, PRIVATE, model=MODEL, rounds=2)
    module = MODEL.build((81, 7, 7), 10, seed=1)
    module.load_state_dict(load_file(result.folder / "model.safetensors"))
    features = models.feature_map(MODEL, SHAPE)
    right = (module(features(federation.test.x)).argmax(1) == federation.test.y).float().mean()
    assert float(right) == pytest.approx(result.accuracy, abs=1e-6)
