from pathlib import Path

import numpy as np
import pytest
import torch

import dpfl
from dpfl.config.experiment import load
from dpfl.data.sources.shakespeare_text import ALPHABET, TEXTS, passages, roles
from dpfl.errors import DpflError


def words(row: torch.Tensor) -> str:
    return "".join(ALPHABET[number] for number in row)


def test_every_role_is_a_client_of_its_own_name() -> None:
    source = dpfl.data.shakespeare()
    federation = source.by_owner()
    assert TEXTS.stat().st_size < 1_000_000
    assert federation.names[5] == "hamlet.hamlet"
    assert (len(federation.sizes), sum(federation.sizes)) == (31, len(source.train))
    assert 0.08 < len(source.test) / (len(source.train) + len(source.test)) < 0.12
    said = " ".join(words(row) for row in source.train.x[federation.clients[5]]).replace("\n", " ")
    assert "I know not seems" in said or "inky cloak" in said


def test_the_label_of_a_place_is_the_character_that_follows() -> None:
    train = dpfl.data.shakespeare(length=32).train
    assert train.x.shape[1:] == train.y.shape[1:] == (32,)
    assert torch.equal(train.x[:, 1:], train.y[:, :-1])
    assert train.task.outputs == len(ALPHABET) == 66


def test_passages_share_no_character_and_odd_ones_are_blanks() -> None:
    text = "To be, or not to b\u00e9?!"
    cut = passages(text, 4)
    assert [words(row) for row in torch.from_numpy(cut)] == ["To be", ", or ", "not t", "o b ?"]
    assert words(torch.from_numpy(passages(text, len(text) - 1))[0]) == "To be, or not to b ?!"
    assert not np.any(passages("To", 4))


def test_who_is_tested_on_depends_on_role_place_and_seed_alone() -> None:
    once, other = (dpfl.data.shakespeare(test={"share": 0.2, "seed": seed}) for seed in (0, 1))
    again = dpfl.data.shakespeare(test={"share": 0.2})
    assert once.train.sha256 == again.train.sha256 != other.train.sha256
    assert dpfl.data.shakespeare(test={"share": 0.0}).test is None


def test_most_of_what_the_alphabet_holds_is_said() -> None:
    said = set("".join(roles().values()))
    assert len(set(ALPHABET) - said) <= 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"length": 1}, "length"),
        ({"length": 20_000, "test": {"share": 0.99}}, "left to train on"),
        ({"test": {"part": 0.1}}, "share = 0.1"),
        ({"test": {"share": 1.0}}, "below 1"),
        ({"lenght": 3}, "did you mean 'length'"),
    ],
)
def test_what_cannot_be_is_one_sentence(words, message) -> None:
    with pytest.raises(DpflError, match=message):
        dpfl.data.load("shakespeare", **words)


def test_the_example_trains_every_role_and_shows_perplexity(tmp_path) -> None:
    example = Path(__file__).parents[3] / "examples" / "text.toml"
    quick = [
        "budget.rounds=1",
        "model.width=4",
        "algorithm.sampling_rate=0.05",
        "algorithm.noise_multiplier=2.0",
        "algorithm.rate=1.0",
        "data.test={share=0.01}",
    ]
    result = load(example, quick).run(out=tmp_path / "run", workers=1)
    assert result.headline == "perplexity"
    assert 1 < result.metrics["perplexity"] < 100
    assert (tmp_path / "run" / "ledger" / "lear.lear.sqlite").exists()
