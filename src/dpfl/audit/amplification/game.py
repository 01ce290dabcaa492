"""The amplification game on real nodes. The search runs on our clipped sums, and the game compares
what the node releases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from dpfl.algorithms import Algorithm
from dpfl.audit.amplification.amplifiers import LABEL, Amplifier, backward, linear, mlp
from dpfl.audit.amplification.search import (
    AmplificationResult,
    AmplificationTrial,
    Sums,
    furthest_movement,
)
from dpfl.audit.checks.noise_check import plain
from dpfl.audit.checks.randomness_checks import RandomnessCheck
from dpfl.audit.checks.sensitivity_check import ROUNDING, apart
from dpfl.audit.measurements.canaries import CanarySite
from dpfl.audit.test_bed import ROWS_OF_A_PERSON, TestBed
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.engines import one_thread
from dpfl.gradients.clipped import ClippedGradients
from dpfl.models import FlatModel, from_module
from dpfl.privacy import Flat
from dpfl.privacy.units import protects_person
from dpfl.server.steps.policy import FixedSteps

TRIES, DECLARED_SIZE = 20, 64
"""How often the search for records is repeated, and the declared size of both clients."""

RATE = 2.0**50
"""A learning rate at which a step is larger than the weights, so that it is not lost in their
rounding.
"""


def play_amplified(algorithm: Algorithm, seed: int = 0) -> RandomnessCheck:
    """Plays the amplification game on a system that clips the gradients of samples or persons.

    Args:
        algorithm: The system.
        seed: Of the models and of the search.

    Returns:
        How far one unit moved what is released, relative to what its noise is for, at the worst of
        several models.
    """
    reduced_algorithm = replace(
        plain(algorithm), local=LocalTraining(SGD(RATE)), steps=FixedSteps(1), schedule=None
    )
    persons = protects_person(reduced_algorithm.unit)
    with one_thread():
        shares = {
            name: _share(reduced_algorithm, amplifier, persons, seed)
            for name, amplifier in _amplifiers(seed)
        }
    name = max(shares, key=lambda name: shares[name])
    sentence = (
        f"one {reduced_algorithm.unit} moves what is released by {shares[name]:.2%} of what its "
        "noise is for, where a server chose weights "
        f"that amplify rounding errors ({name}, the worst of {len(shares)} models)"
    )
    return RandomnessCheck(sentence, (sentence,) if shares[name] > ROUNDING else ())


def _amplifiers(seed: int) -> Iterator[tuple[str, Amplifier]]:
    yield "a linear layer of 31 inputs", linear(31, 2, seed)
    yield "a linear layer of 3,969 inputs", linear(3969, 10, seed)
    yield "an mlp 784-200-10", mlp(784, 200, 10, seed)
    yield "the slopes of an mlp 49-16-10", backward(8, 16, 10, seed=seed)


def _share(algorithm: Algorithm, amplifier: Amplifier, persons: bool, seed: int) -> float:
    """Measures how far the searched unit moves the node's update, as a share of the sensitivity."""
    result = furthest_movement(_clipped_sum(amplifier, persons), amplifier, tries=TRIES, seed=seed)
    return apart(CanarySite.on(_ground(amplifier, result), algorithm)) / RATE


def _clipped_sum(amplifier: Amplifier, persons: bool) -> Sums:
    gradients = ClippedGradients(FlatModel(amplifier.module))

    def play(x: Tensor, y: Tensor, whose: Tensor | None) -> AmplificationTrial:
        if persons:  # each has the same row several times, as at the node
            whose = torch.arange(len(x)).repeat_interleave(ROWS_OF_A_PERSON)
            x, y = x[whose], y[whose]
        sums = gradients(x, y, Flat(1.0).factors, whose)
        return AmplificationTrial(sums.total, sums.losses)

    return play


def _ground(amplifier: Amplifier, result: AmplificationResult) -> TestBed:
    """Builds a test bed of two clients: one with all units, and one without the unit that was
    added.
    """
    x = result.together.flatten(0, 1)
    rows = torch.arange(len(x))
    classes = amplifier.module(x[:1]).shape[1]
    clients = (rows, rows[rows != result.place])
    return TestBed(
        from_module(amplifier.module),
        x,
        torch.full((len(x),), LABEL),
        classes,
        clients,
        (DECLARED_SIZE,) * 2,
    )
