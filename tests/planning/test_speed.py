"""The speed of a client: measured on random numbers, with the step that a run makes."""

from __future__ import annotations

import math

import pytest
import torch

import dpfl
from dpfl.client.descent import local_training
from dpfl.data.published_images import SHAPES
from dpfl.errors import DpflError
from dpfl.planning.speed import BATCH, ClientWork

CNN = ClientWork(dpfl.models.cnn(), (1, 28, 28), 10)


@pytest.mark.parametrize(
    ("name", "data", "parameters"), [("cnn", "mnist", 26010), ("cnn-wide", "cifar10", 878538)]
)
def test_a_model_has_the_parameters_of_the_literature(name, data, parameters):
    assert ClientWork(dpfl.models.from_name(name), *SHAPES[data]).parameters == parameters


def test_a_model_on_fixed_features_has_the_parameters_of_what_is_trained():
    assert ClientWork(dpfl.models.scattering_linear(), (1, 28, 28), 10).parameters == 39700


def test_a_plan_waits_for_no_features(monkeypatch):
    def computed(*_):
        raise AssertionError("features were computed")

    monkeypatch.setattr("dpfl.models.features.scattering.decorrelating", computed)
    monkeypatch.setattr("dpfl.models.features.patches.patch_filters", computed)
    work = ClientWork(dpfl.models.scattering_linear(mirror=True, patches=24), (3, 36, 36), 10)
    assert work.parameters == (243 * 9 * 5 + 24 * 4 * 2 + 1) * 10
    assert work.samples_per_second(1e-3) > 0


def test_the_known_shape_of_a_data_set_is_that_of_its_samples():
    train = dpfl.data.sample().train
    assert SHAPES["mnist-sample"] == (train.shape, train.classes)


def test_the_speed_is_that_of_clipped_and_noisy_steps_on_one_thread(monkeypatch):
    seen: list[tuple[int, int]] = []
    clipped = local_training.clipped_sum

    def watched(gradients, clip, x, y, group):
        seen.append((len(x), torch.get_num_threads()))
        return clipped(gradients, clip, x, y, group)

    monkeypatch.setattr(local_training, "clipped_sum", watched)
    torch.set_num_threads(2)
    try:
        speed = CNN.samples_per_second(0.05)
    finally:
        torch.set_num_threads(1)
    assert 0 < speed < math.inf
    assert len(seen) >= 3
    assert all(0 < batch <= BATCH and threads == 1 for batch, threads in seen)


@pytest.mark.parametrize(
    ("shape", "classes", "word"),
    [((), 10, "shape"), ((1, 0, 28), 10, "shape"), ((4,), 1, "classes")],
)
def test_work_that_makes_no_sense_is_refused(shape, classes, word):
    with pytest.raises(DpflError, match=word):
        ClientWork(dpfl.models.mlp(), shape, classes)


def test_a_sample_that_no_machine_holds_is_one_sentence():
    with pytest.raises(DpflError, match="more than 100,000,000 numbers"):
        ClientWork(dpfl.models.mlp(), (10**6, 10**6), 10)
