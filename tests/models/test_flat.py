import pytest
import torch
from torch import nn

from dpfl.errors import DpflError
from dpfl.models import FlatModel, cnn, mobilenet_v2


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 3))


def test_layout_puts_trainable_first_then_running_statistics() -> None:
    model = FlatModel(small())
    assert model.layout.names == (
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
        "3.weight",
        "3.bias",
        "1.running_mean",
        "1.running_var",
    )
    assert model.layout.shapes[0] == (4, 1, 3, 3)
    assert model.layout.offsets[:4] == (0, 36, 40, 44)
    assert model.layout.trainable == 36 + 4 + 8 + 432 + 3
    assert model.layout.size == model.layout.trainable + 8


def test_parameters_and_statistics_are_live_views() -> None:
    module = small()
    before = [parameter.clone() for parameter in module.parameters()]
    model = FlatModel(module)
    for parameter, value in zip(module.parameters(), before, strict=True):
        assert torch.equal(parameter, value)
    model.vector.fill_(1)
    assert all((parameter == 1).all() for parameter in module.parameters())
    module(torch.randn(5, 1, 8, 8) + 3)
    assert (model.vector[model.layout.trainable :] != 1).all()
    with torch.no_grad():
        module[3].bias.fill_(7)
    assert torch.equal(model.vector[model.layout.span(5)], torch.full((3,), 7.0))


def test_an_optimizer_step_moves_the_vector() -> None:
    module = nn.Linear(3, 2)
    model = FlatModel(module)
    before = model.read()
    module(torch.ones(4, 3)).sum().backward()
    torch.optim.SGD(module.parameters(), lr=1.0).step()
    assert not torch.equal(before, model.vector)


def test_load_and_read_round_trip() -> None:
    model, other = (
        FlatModel(cnn().build((1, 28, 28), 10, 0)),
        FlatModel(cnn().build((1, 28, 28), 10, 1)),
    )
    x = torch.randn(2, 1, 28, 28)
    other.load(model.read())
    assert torch.equal(model.module(x), other.module(x))
    assert model.read().data_ptr() != model.vector.data_ptr()


@pytest.mark.parametrize(
    "wrong", [torch.zeros(3), torch.zeros(8, dtype=torch.float64), torch.zeros(2, 4)]
)
def test_load_refuses_another_shape_or_type(wrong: torch.Tensor) -> None:
    with pytest.raises(DpflError, match="vector of 8 numbers"):
        FlatModel(nn.Linear(3, 2)).load(wrong)


def test_frozen_parameters_stay_out() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    module[0].requires_grad_(False)
    assert FlatModel(module).layout.names == ("1.weight", "1.bias")


def test_tied_parameters_appear_once_and_stay_tied() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = module[0].weight
    model = FlatModel(module)
    assert model.layout.names == ("0.weight", "0.bias", "1.bias")
    model.vector.fill_(2)
    assert module[1].weight is module[0].weight
    assert (module[1].weight == 2).all()


def test_channels_last_weights_become_contiguous_views() -> None:
    module = cnn().build((3, 32, 32), 10, 0)
    x = torch.randn(2, 3, 32, 32)
    expected = module(x)
    model = FlatModel(module.to(memory_format=torch.channels_last))
    assert all(parameter.is_contiguous() for parameter in module.parameters())
    assert model.vector.is_contiguous()
    assert torch.allclose(module(model.arrange(x)), expected, atol=1e-5)


def test_arrange_is_channels_last_also_for_one_channel() -> None:
    model = FlatModel(cnn().build((1, 28, 28), 10, 0))
    x = torch.randn(5, 1, 28, 28)
    arranged = model.arrange(x)
    assert torch.equal(arranged, x)
    assert arranged.stride(1) == 1
    assert model.module[0](arranged).is_contiguous(memory_format=torch.channels_last)


def test_arrange_leaves_a_module_alone_that_calls_view() -> None:
    class Viewing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)
            self.drop = nn.Dropout()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.drop(self.conv(x)).view(len(x), -1)

    model = FlatModel(Viewing())
    model.module.conv.eval()
    state = torch.get_rng_state()
    x = torch.randn(2, 3, 8, 8)
    torch.set_rng_state(state)
    assert model.arrange(x) is x
    assert torch.equal(torch.get_rng_state(), state)
    assert model.module.training
    assert not model.module.conv.training


def test_batch_norm_of_the_catalogue_has_statistics_in_the_vector() -> None:
    layout = FlatModel(mobilenet_v2("batch").build((1, 28, 28), 10, 0)).layout
    assert layout.size > layout.trainable


def test_refusals_say_what_to_do() -> None:
    with pytest.raises(DpflError, match=r"\.float\(\)"):
        FlatModel(nn.Linear(2, 2).double())
    with pytest.raises(DpflError, match="no trainable parameters"):
        FlatModel(nn.ReLU())
    with pytest.raises(DpflError, match="no trainable parameters"):
        FlatModel(nn.Linear(2, 2).requires_grad_(False))
    with pytest.raises(DpflError, match="lazy"):
        FlatModel(nn.LazyLinear(2))
