import torch
from torch import nn

from dpfl import models
from dpfl.data.schema import Features
from dpfl.models.columns import OneHot, on_columns

ROWS = torch.tensor([[0.5, -1.0, 2.0, 0.0], [0.0, 3.0, 0.0, 1.0]])
DENSE = torch.tensor([[0.5, -1.0, 0, 0, 1, 1, 0], [0.0, 3.0, 1, 0, 0, 0, 1]])
FEATURES = Features(2, (3, 2))


def test_codes_become_rows_of_nought_and_one() -> None:
    assert torch.equal(OneHot(2, (3, 2))(ROWS), DENSE)
    assert torch.equal(OneHot(4, ())(ROWS), ROWS)


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


def test_models_of_other_samples_stay_as_they_are() -> None:
    model = models.mlp()
    assert on_columns(model, None) is model
