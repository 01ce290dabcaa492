import pytest
import torch
from torch import nn

from dpfl import models
from dpfl.data.tables.schema import FeatureLayout
from dpfl.errors import DpflError
from dpfl.models.columns import OneHotColumns, on_columns

ROWS = torch.tensor([[0.5, -1.0, 2.0, 0.0], [0.0, 3.0, 0.0, 1.0]])
DENSE = torch.tensor([[0.5, -1.0, 0, 0, 1, 1, 0], [0.0, 3.0, 1, 0, 0, 0, 1]])
FEATURES = FeatureLayout(2, (3, 2))


def test_codes_become_rows_of_nought_and_one() -> None:
    assert torch.equal(OneHotColumns(2, (3, 2))(ROWS), DENSE)
    assert torch.equal(OneHotColumns(4, ())(ROWS), ROWS)


def test_a_model_on_a_table_is_given_dense_rows() -> None:
    model = on_columns(models.linear(), FEATURES)
    module = model.build((4,), 2, seed=0)
    plain = models.linear().build((7,), 2, seed=0)
    assert torch.equal(module(ROWS), plain(DENSE))
    assert (model.name, tuple(model.options)) == ("linear", ())
    assert list(module.state_dict()) == ["model.1.weight", "model.1.bias"]


class Embeds(nn.Module):
    takes_codes = True

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.last = nn.Embedding(3, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.embed(x[:, 2].long()))


def test_a_module_may_ask_for_the_codes() -> None:
    module = on_columns(models.from_module(Embeds()), FEATURES).build((4,), 2, seed=0)
    assert isinstance(module, Embeds)


def test_categories_may_be_embedded() -> None:
    """Each column's codes have rows of their own, drawn by the seed alone."""
    module = on_columns(models.mlp(hidden=5, embedding=4), FEATURES).build((4,), 2, seed=7)
    again = on_columns(models.mlp(hidden=5, embedding=4), FEATURES).build((4,), 2, seed=7)
    table = module.columns.embedding.weight
    assert table.shape == (5, 4)
    expected = torch.stack(
        [torch.cat([ROWS[0, :2], table[2], table[3]]), torch.cat([ROWS[1, :2], table[0], table[4]])]
    )
    assert torch.equal(module.columns(ROWS), expected)
    assert torch.equal(module(ROWS), module.model(expected))
    assert all(
        torch.equal(a, b) for a, b in zip(module.parameters(), again.parameters(), strict=True)
    )
    with pytest.raises(DpflError, match="categories of a table"):
        models.mlp(embedding=4).build((1, 4, 4), 2, seed=0)


def test_a_table_of_numbers_alone_has_nothing_to_embed() -> None:
    module = on_columns(models.mlp(hidden=5, embedding=4), FeatureLayout(4, ())).build(
        (4,), 2, seed=7
    )
    assert torch.equal(module.columns(ROWS), ROWS)


def test_models_of_other_samples_stay_as_they_are() -> None:
    model = models.mlp()
    assert on_columns(model, None) is model
