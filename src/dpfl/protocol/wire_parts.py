"""The parts that may come over a wire, with the bounds of every field.

A part is written as the codec writes it (`dpfl.codec`). A node or a server accepts a part only if
it is in one of the tables below: another part, a field too many or too few, another type, a number
that is not finite or out of range are all refused. Numbers stay as they are written, whole or not,
so that a task is the same, and has the same digest, on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfl import tasks
from dpfl.client.descent.objectives import Contrastive, CrossEntropy, PerturbedScores
from dpfl.client.descent.optimisers import SGD, AdaGrad, Adam, Momentum
from dpfl.client.task import ClientTask, LocalTraining, SecureSumTerms
from dpfl.codec import TAG, encode, format_of
from dpfl.errors import DpflError
from dpfl.privacy.mechanisms.clips.adaptive_clip import PublicMedian, Quantile
from dpfl.privacy.mechanisms.clips.clip import Flat, ModelClip, NoClip, PerLayer
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip, HaarNoise
from dpfl.privacy.mechanisms.noises.matrix_release import BandedNoise
from dpfl.privacy.mechanisms.noises.noise import FlooredGaussian, Gaussian
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.mechanisms.noises.secure_noise import SecureGaussian
from dpfl.privacy.mechanisms.release import Release
from dpfl.privacy.mechanisms.sampling import (
    All,
    Cyclic,
    FixedCohort,
    FixedSize,
    Poisson,
    PoissonSize,
)
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.protocol.value_forms import (
    Form,
    list_of,
    number,
    one_of,
    optional,
    positive,
    refuse,
    share,
    text,
    truth,
    whole,
)
from dpfl.refusals import RefusalReason

MOST_MEMBERS = 100
"""Members of a secure sum."""
MOST_PLACES, MOST_BINS = 10_000, 1_000
"""Columns and bins of a query, whose answer has a number for each."""

Parts = Mapping[str, tuple[type[Any], Mapping[str, Form]]]
"""By tag: the class of a part, and the form of each of its attributes."""


def part_form(parts: Parts) -> Form:
    """Makes a form of parts.

    Args:
        parts: The parts that are accepted.

    Returns:
        The form.
    """
    return lambda value: from_words(value, parts)


def from_words(value: Any, parts: Parts) -> Any:
    """Makes a part of a value that came over a wire.

    Args:
        value: The value as JSON has it.
        parts: The parts that are accepted.

    Returns:
        The part.

    Raises:
        ProtocolError: The value is no such part (`UNKNOWN_PART`), or a field of it does not fit
            (`BAD_WORDS`).
    """
    if type(value) is not dict or type(value.get(TAG)) is not str:
        refuse()
    if value[TAG] not in parts:
        refuse(RefusalReason.UNKNOWN_PART)
    kind, forms = parts[value[TAG]]
    names = format_of(kind).names
    if value.keys() != {TAG, *(names[attribute] for attribute in forms)}:
        refuse()
    attributes = {attribute: form(value[names[attribute]]) for attribute, form in forms.items()}
    try:
        return kind(**attributes)
    except (DpflError, TypeError, ValueError, ArithmeticError):
        refuse()


def to_words(value: Any, parts: Parts) -> dict[str, Any]:
    """Writes a part so that the other side makes the same part of it.

    Args:
        value: The part.
        parts: The parts that the other side accepts.

    Returns:
        The words, as JSON has them.

    Raises:
        ProtocolError: The other side would refuse it, or make another part of it.
    """
    try:
        words = encode(value)
    except DpflError:
        refuse(RefusalReason.UNKNOWN_PART)
    if from_words(words, parts) != value:
        refuse()
    return words  # type: ignore[no-any-return]


def _by_tag(*kinds: tuple[type[Any], Mapping[str, Form]]) -> Parts:
    return {format_of(kind).tag: (kind, forms) for kind, forms in kinds}


def _bins(value: Any) -> tuple[int, int]:
    """Reads a column and its number of bins."""
    if type(value) is not list or len(value) != 2:
        refuse()
    return whole(0, MOST_PLACES)(value[0]), whole(1, MOST_BINS)(value[1])


RATE = {"rate": number}
LEVEL = {"clip_norm": number}
HAAR = {"weights": text, "by_layer": truth, "energies": list_of(number), "ends": list_of(whole(1))}
OPTIMISERS = _by_tag(
    (SGD, RATE),
    (Momentum, {**RATE, "beta": share}),
    (Adam, {**RATE, "beta1": share, "beta2": share, "epsilon": positive}),
    (AdaGrad, {**RATE, "epsilon": positive}),
)
OBJECTIVES = _by_tag(
    (CrossEntropy, {}),
    (Contrastive, {"mu": number, "temperature": number}),
    (PerturbedScores, {"share": number, "deviation": number}),
)
SAMPLINGS = _by_tag(
    (All, {}),
    (Poisson, {"rate": number}),
    *((kind, {"size": whole(1)}) for kind in (PoissonSize, FixedSize, FixedCohort, Cyclic)),
)
CLIPS = _by_tag(
    (NoClip, {}),
    *((kind, LEVEL) for kind in (Flat, PerLayer, PublicMedian, ModelClip)),
    (Quantile, {**LEVEL, "quantile": number, "rate": number, "count_noise": number}),
    (HaarClip, {**LEVEL, "bound": text, **HAAR}),
)
NOISES = _by_tag(
    (Gaussian, {"noise_multiplier": number}),
    (SecureGaussian, {"noise_multiplier": number}),
    (FlooredGaussian, {"noise_multiplier": number, "floor": number}),
    (HaarNoise, {"noise_multiplier": number, **HAAR, "lemma": truth, "portion": optional(number)}),
    (
        BandedNoise,
        {
            "noise_multiplier": number,
            "bands": optional(whole(1)),
            "rounds": whole(),
            "turns": whole(1),
        },
    ),
)
QUERY_PARTS = _by_tag(
    (LabelQuery, {"noise_multiplier": optional(number), "trusted": truth, "secure": truth}),
    (MeanQuery, {"noise_multiplier": number, "secure": truth}),
    (
        ColumnQuery,
        {
            "noise_multiplier": number,
            "numbers": whole(0, MOST_PLACES),
            "places": list_of(whole(0, MOST_PLACES), MOST_PLACES),
            "binned": list_of(_bins, MOST_PLACES),
            "secure": truth,
        },
    ),
    (
        MetricQuery,
        {
            "noise_multiplier": number,
            "numbers": whole(0, MOST_PLACES),
            "cells": whole(0, MOST_PLACES),
            "most": number,
            "held_out": number,
            "secure": truth,
        },
    ),
)
NOISE_SHARE_PARTS = _by_tag(
    (NoiseShares, {"survivors": whole(1, MOST_MEMBERS), "colluders": whole(0, MOST_MEMBERS)})
)
SECURE_SUM_PARTS = _by_tag(
    (SecureSumTerms, {"weight": number, "bound": number, "clients": whole(1, MOST_MEMBERS)})
)
RELEASE: Mapping[str, Form] = {
    "sampling": part_form(SAMPLINGS),
    "clip": part_form(CLIPS),
    "noise": optional(part_form(NOISES)),
    "shared_by": optional(whole(2)),
    "divide_by_drawn": truth,
    "noise_shares": optional(part_form(NOISE_SHARE_PARTS)),
}
RELEASES = _by_tag((Release, RELEASE))
UPLOADS = _by_tag(
    (
        UpdateRelease,
        {**RELEASE, "sensitivity_bound": number, "protects": one_of("sample", "client")},
    )
)
LOCALS = _by_tag(
    (
        LocalTraining,
        {
            "optimiser": part_form(OPTIMISERS),
            "batch_size": whole(1),
            "prox": number,
            "objective": part_form(OBJECTIVES),
        },
    ),
)
TASKS = _by_tag(
    (
        ClientTask,
        {
            "round": whole(),
            "client": whole(),
            "steps": whole(),
            "local": part_form(LOCALS),
            "clients": part_form(RELEASES),
            "samples": optional(part_form(RELEASES)),
            "horizon": whole(),
            "raw": truth,
            "update": optional(part_form(UPLOADS)),
            "query": optional(part_form(QUERY_PARTS)),
            "slope": truth,
            "secure_sum": optional(part_form(SECURE_SUM_PARTS)),
        },
    ),
)
LEARNING = _by_tag(
    (tasks.MultiClass, {"classes": whole(1), "weights": list_of(number)}),
    (tasks.Binary, {"weights": list_of(number)}),
    (tasks.MultiLabel, {"count": whole(1)}),
    (tasks.Ordinal, {"levels": whole(2)}),
    (tasks.Regression, {"loss": text, "centre": number, "scale": number, "width": number}),
    (tasks.Counts, {"mean": number}),
    (tasks.NextToken, {"vocabulary": whole(1)}),
)
ALL_PARTS: Parts = {
    name: kind
    for group in (
        OPTIMISERS,
        OBJECTIVES,
        SAMPLINGS,
        CLIPS,
        NOISES,
        QUERY_PARTS,
        NOISE_SHARE_PARTS,
        SECURE_SUM_PARTS,
        RELEASES,
        UPLOADS,
        LOCALS,
        TASKS,
        LEARNING,
    )
    for name, kind in group.items()
}
"""All parts that may travel, by tag."""
