"""The page on adding a system works as written, and only `algorithms` knows systems by name."""

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dpfl
from dpfl import codec
from dpfl.algorithms import ALGORITHMS, from_name
from dpfl.data import Federation
from dpfl.privacy import Flat

PAGE = (Path(__file__).parents[2] / "docs" / "adding-a-system.md").read_text()


def test_the_system_of_the_page_can_be_added_and_passes_its_own_test(
    train: Callable[..., dpfl.Result], federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    monkeypatch.setattr(codec, "_BY_TAG", dict(codec._BY_TAG))  # the tag of the page's own clip
    monkeypatch.setitem(ALGORITHMS, "dp-fedsgd", ALGORITHMS["fedavg"])  # taken out again afterwards
    names: dict[str, Any] = {"ALGORITHMS": ALGORITHMS, "__name__": "page"}
    for block in blocks:
        exec(block, names)
    assert from_name("dp-fedsgd", clip=0.5).samples.clip.clip_norm == 0.5
    names["test_dp_fedsgd_learns_inside_epsilon_and_states_what_it_released"](train, federation)
    names["test_one_unit_moves_the_sum_by_the_clip_norm_at_most"]()
    flat = replace(names["release"], clip=Flat(1.0))
    assert names["release"].event(1000) == flat.event(1000)


def test_only_algorithms_know_the_name_of_a_system() -> None:
    """Docstrings may cite a paper; no other word, and no name in the code, is that of a system."""
    source = Path(dpfl.__file__).parent
    functions = {system.__name__ for system in ALGORITHMS.values()}
    mentions = []
    for path in source.rglob("*.py"):
        if path.is_relative_to(source / "algorithms"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            word = (
                node.value
                if isinstance(node, ast.Constant)
                else getattr(node, "id", getattr(node, "attr", None))
            )
            if word in ALGORITHMS or word in functions:
                mentions.append(f"{path.name}: {word}")
    assert not mentions
