"""The written form of parts. Every tag and field is pinned: files, messages, ledgers and noise
depend on these bytes.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpfl.run.records.algorithm_record
import dpfl.tasks  # noqa: F401  (registers its parts)
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import ClientTask, LocalTraining
from dpfl.codec import canonical, decode, decode_as, digest_of, encode, formats, part, tag_of
from dpfl.errors import DpflError
from dpfl.privacy import Flat, Gaussian, Poisson, Release
from dpfl.privacy.accounting.published_claims import HellingerNoise
from dpfl.privacy.mechanisms.clips.clip import NoClip

HASHES = {"sha256", "blake2b", "update", "digest_of", "canonical"}
ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "fixtures" / "parts.json"
TASK = ClientTask(
    3,
    1,
    5,
    LocalTraining(SGD(0.1), 16),
    Release(),
    Release(Poisson(0.1), Flat(1.0), Gaussian(1.1)),
    40,
)
BYTES = (
    b'{"client":1,"clients":{"clip":{"part":"clip.none"},"divide_by_drawn":false,"noise":null,"noise_shares":null,'
    b'"part":"release","sampling":{"part":"sampling.all"},"shared_by":null},"horizon":40,"local":{"batch_size":16,'
    b'"objective":{"part":"objective.cross-entropy"},"optimiser":{"learning_rate":0.1,"part":"optimiser.sgd"},'
    b'"part":"local-training","prox":0.0},"part":"task","query":null,"raw":false,"round":3,"samples":{"clip":'
    b'{"clip_norm":1.0,"part":"clip.flat"},"divide_by_drawn":false,"noise":{"noise_multiplier":1.1,"part":"noise.gaussian"},'
    b'"noise_shares":null,"part":"release","sampling":{"part":"sampling.poisson","rate":0.1},"shared_by":null},'
    b'"secure_sum":null,"slope":false,"steps":5,"update":null}'
)


def test_the_fields_of_every_part_are_those_that_were_pinned():
    """A tag or a name that changes breaks ledgers, runs and messages that exist: add an optional
    field instead.
    """
    pinned = json.loads(GOLDEN.read_text())
    now = {
        tag: {
            "always": [
                name for attribute, name in form.names.items() if attribute not in form.optional
            ],
            "optional": [form.names[attribute] for attribute in form.optional],
        }
        for tag, form in formats().items()
        if form.type.__module__.startswith("dpfl.")
    }
    assert now == pinned


def test_the_bytes_and_the_digest_of_a_task_are_those_that_were_pinned():
    assert canonical(encode(TASK)) == BYTES
    assert digest_of(TASK) == "ff81cfee805861d0fcc86fe441bac8bd"
    assert digest_of(TASK, b"one", b"two") == "126da703185ef10272278d4e6df3ac4d"


def test_a_part_comes_back_from_its_record():
    assert decode(json.loads(canonical(encode(TASK)))) == TASK
    assert decode(encode(NoClip())) == NoClip()
    claimed = HellingerNoise(1.0, 1e-5, 10, 32, 600).claimed
    assert decode(encode(claimed))(3) == claimed(3)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1.0), st.floats(1e-6, 1e6))
def test_two_releases_have_one_digest_only_if_they_are_one(
    clip: float, rate: float, noise: float
) -> None:
    release = Release(Poisson(rate), Flat(clip), Gaussian(noise))
    assert decode(encode(release)) == release
    assert digest_of(release) == digest_of(Release(Poisson(rate), Flat(clip), Gaussian(noise)))
    other = Release(Poisson(rate), Flat(clip), Gaussian(noise * (1 + 2**-50)))
    assert (digest_of(other) == digest_of(release)) == (other == release)


def test_a_part_of_the_user_s_own_is_written_by_its_import_path():
    @dataclass(frozen=True)
    class Mine:
        level: float

    assert tag_of(Mine(1.0)).startswith("tests.test_codec:")
    assert encode(Mine(1.0))["level"] == 1.0
    assert digest_of(Mine(1.0)) != digest_of(Mine(2.0))


@pytest.mark.parametrize("value", [object(), lambda: 0, {1: 2}, 1j, b"bytes"])
def test_what_has_no_written_form_is_refused(value: Any) -> None:
    with pytest.raises(DpflError, match="has no written form"):
        digest_of(value)


def test_numbers_of_numpy_are_written_as_numbers() -> None:
    assert digest_of((np.int64(5), np.float32(0.5), np.float64(0.1))) == digest_of((5, 0.5, 0.1))


def test_a_number_that_is_not_finite_has_no_digest() -> None:
    with pytest.raises(DpflError, match="not finite"):
        digest_of((Release(), math.inf))


def test_a_record_reaches_no_private_attribute() -> None:
    with pytest.raises(DpflError, match="no method"):
        decode({"part": "clip.flat", "clip_norm": 1.0, "method": "__class__"})


def test_a_tag_belongs_to_one_class_and_names_its_fields():
    for options in ({"tag": "clip.flat"}, {"tag": "new", "missing": "attribute"}):
        with pytest.raises(TypeError):
            part(**options)(Flat)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "words",
    [{"part": "clip.unknown"}, {"part": "clip.flat", "clip_norm": "wide"}, {"clip_norm": 1.0}],
)
def test_a_record_that_is_no_part_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(DpflError):
        decode(words)


def test_a_part_of_another_class_is_refused_by_the_sentence_that_is_given() -> None:
    assert decode_as(SGD, encode(SGD(0.1)), "no optimiser") == SGD(0.1)
    for words in (encode(Flat(1.0)), 3, None):
        with pytest.raises(DpflError, match="no optimiser"):
            decode_as(SGD, words, "no optimiser")


def test_no_digest_is_made_of_a_repr() -> None:
    """`repr` follows the names of classes and fields: a rename would change ledgers and noise."""
    guilty = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and _hashes_a_repr(function):
                guilty.append(f"{path.relative_to(ROOT)}:{function.lineno}")
    assert guilty == []


@pytest.mark.parametrize(
    ("code", "guilty"),
    [
        ("return sha256(repr(part).encode())", True),
        ("text = repr(part)\n    return sha256(text.encode())", True),
        ("text = f'{part!r}'\n    return digest_of(text)", True),
        ("if not part:\n        raise DpflError(f'{part!r}')\n    return digest_of(part)", False),
        ("return repr(part)", False),
    ],
)
def test_a_repr_is_noticed_in_a_function_that_hashes(code: str, guilty: bool) -> None:
    (function,) = ast.parse(f"def name(part):\n    {code}").body
    assert isinstance(function, ast.FunctionDef)
    assert _hashes_a_repr(function) == guilty


def _hashes_a_repr(function: ast.FunctionDef) -> bool:
    """Says whether a function hashes something, and uses a `repr` outside of sentences that it
    raises or yields."""
    nodes = list(_without_sentences(function))
    names = {_name(node.func) for node in nodes if isinstance(node, ast.Call)}
    return bool(names & HASHES) and any(_is_repr(node) for node in nodes)


def _without_sentences(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Raise | ast.Yield):
            yield child
            yield from _without_sentences(child)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_repr(node: ast.AST) -> bool:
    if isinstance(node, ast.FormattedValue):
        return node.conversion == ord("r")
    return isinstance(node, ast.Call) and _name(node.func) == "repr"
