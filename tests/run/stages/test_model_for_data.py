"""A model is built for the samples that it will see, from its seed alone."""

import torch

import dpfl
from dpfl.data import Federation
from dpfl.run.stages.model_for_data import model_for_data


def test_the_seed_decides_the_first_weights_and_the_data_do_not(federation: Federation) -> None:
    model = dpfl.models.mlp(hidden=4)
    one, same, other = (model_for_data(model, federation, seed).flat for seed in (1, 1, 2))
    assert torch.equal(one.read(), same.read())
    assert not torch.equal(one.read(), other.read())
    assert model_for_data(model, federation, 1).federation is federation, (
        "it takes samples as they are"
    )


def test_the_model_has_an_output_per_class_of_the_federation(federation: Federation) -> None:
    model = model_for_data(dpfl.models.mlp(hidden=4), federation, seed=0)
    scores = model.flat.module(federation.train.x[:3])
    assert scores.shape == (3, federation.classes)
    assert model.flat.task == federation.task
