import pytest
from torch import nn

from dpfl.errors import DpflError
from dpfl.models import mobilenet_v2, refuse_batch_statistics, resnet18


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (nn.BatchNorm1d(3), "GroupNorm"),
        (nn.BatchNorm2d(3, track_running_stats=False), "mixes the samples"),
        (nn.SyncBatchNorm(3), "GroupNorm"),
        (nn.InstanceNorm2d(3, track_running_stats=True), "track_running_stats=False"),
        (nn.Embedding(3, 2, scale_grad_by_freq=True), "scale_grad_by_freq=False"),
        (nn.Embedding(3, 2, max_norm=1.0), "max_norm=None"),
    ],
)
def test_layers_that_mix_samples_are_refused(layer: nn.Module, says: str) -> None:
    with pytest.raises(DpflError, match=says) as caught:
        refuse_batch_statistics(nn.Sequential(nn.Identity(), layer))
    assert "'1'" in str(caught.value)


def test_other_norms_pass() -> None:
    refuse_batch_statistics(
        nn.Sequential(nn.GroupNorm(1, 3), nn.LayerNorm(3), nn.InstanceNorm2d(3), nn.Embedding(3, 2))
    )
    for model in (resnet18, mobilenet_v2):
        refuse_batch_statistics(model("group").build((1, 28, 28), 10, 0))
        with pytest.raises(DpflError, match='norm = "group"'):
            refuse_batch_statistics(model("batch").build((1, 28, 28), 10, 0))
