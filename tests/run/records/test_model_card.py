"""The model card: true, complete, harmless whatever names it is given, and enough to load the model
without dpfl.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

import dpfl
from dpfl.data import IID, Federation
from dpfl.run.records.model_card import word
from tests.conftest import PATIENCE

Train = Callable[..., dpfl.Result]
SEED = 918_273_645
SYSTEM = dpfl.algorithms.fedavg_dp(noise_multiplier=2.0)
HOSTILE = "<script>alert(1)</script>\n# `x` [a](javascript:b) | c"
WITHOUT = "import sys\nsys.modules['dpfl'] = None\n"


def text_of(result: dpfl.Result) -> str:
    return (result.folder / "README.md").read_text()


def test_a_released_model_loads_without_dpfl_and_scores_alike(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    result = train(federation, SYSTEM, epsilon=8.0, rounds=2, seed=SEED, accountant="rdp")
    (code,) = re.findall(r"^```python\n(.*?)^```", text_of(result), re.DOTALL | re.MULTILINE)
    assert "dpfl" not in code
    test = federation.test
    assert test is not None
    (tmp_path / "x.txt").write_text(repr(test.x[:20].tolist()))
    asked = (
        "import torch\nx = "
        f"torch.tensor(eval(open({str(tmp_path / 'x.txt')!r}).read()))\n"
        "print(model(x).argmax(1).tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + code + asked],
        cwd=result.folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(result.module.eval()(test.x[:20]).argmax(1).tolist())


def test_the_card_has_the_statement_and_no_seed_name_or_path(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    named = replace(federation, names=("boston", "lyon", "kyoto", "quito"))
    result = train(named, SYSTEM, epsilon=8.0, rounds=1, seed=SEED, accountant="rdp")
    card = text_of(result)
    assert card.startswith("# Model card")
    for line in str(result.privacy).splitlines():
        assert f"    {line}" in card
    assert "epsilon 8 at delta 1e-05 for one sample, 1 rounds" in card
    assert result.model_sha256 in card
    for private in (str(SEED), "boston", "kyoto", str(tmp_path)):
        assert private not in card


def test_hostile_names_are_words(train: Train, federation: Federation) -> None:
    hostile = replace(federation, train=replace(federation.train, name=HOSTILE), how=HOSTILE)
    card = text_of(train(hostile, "fedavg", rounds=1))
    assert [line for line in card.splitlines() if line.startswith("#")] == [
        "# Model card", "## What it cost in privacy", "## How to load it", "## Before you use it",
    ]  # fmt: skip
    for line in card.splitlines():
        outside = re.sub(r"`[^`]*`", "", line)
        assert "<script" not in outside
        assert "](" not in outside
    assert "no epsilon holds" in card


def test_a_word_is_one_code_span() -> None:
    assert word("a`b|c\nd") == "`a’b/c d`"
    assert len(word("x" * 10_000)) < 300


def test_a_file_of_that_name_that_is_not_ours_stays(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "README.md").write_text("mine")
    assert text_of(train(federation, "fedavg", rounds=1)) == "mine"


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.head = nn.Linear(784, 4), nn.Linear(4, 10)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.head(self.frozen(x.flatten(1)))


def test_a_module_of_the_users_own_is_named_and_its_file_holds_what_was_trained(
    train: Train, federation: Federation
) -> None:
    card = text_of(train(federation, "fedavg", model=Own(), rounds=1))
    assert "your own class of the model, `Own`." in card
    assert "strict=False" in card


def test_a_model_on_features_says_how_they_are_made(
    train: Train, federation: Federation, monkeypatch
) -> None:
    """Fault: it gave the trained layer to `feature_map`, which knows nothing of it, and was silent
    about mirror and patches.
    """
    x, y = federation.train.x, federation.train.y
    few = dpfl.data.tensors(x[:60], y[:60], x[60:100], y[60:100], name="few").split(
        clients=2, how=IID(), seed=0
    )
    result = train(
        few, "fedavg", model=dpfl.models.scattering_linear(mirror=True, patches=8), rounds=1
    )
    card, known = text_of(result), {"dpfl": dpfl, "samples": few.test.x}
    monkeypatch.chdir(result.folder)
    exec(card.split("```python")[1].split("```")[0], known)
    features = eval(re.search(r"`(dpfl\.models\.feature_map.*)`", card)[1], known)
    assert f"It takes fixed features of a sample, of shape `{(-1, *features.shape[1:])}`" in card
    right = (known["model"](features).argmax(1) == few.test.y).float().mean()
    assert float(right) == pytest.approx(result.accuracy)
