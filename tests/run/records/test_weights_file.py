"""The weights of a run load by their names, and have the digest of the flat vector."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from dpfl.errors import DpflError
from dpfl.models import FlatModel
from dpfl.run.records.digests import vector_sha256
from dpfl.run.records.weights_file import weights_sha256, write_weights


def test_weights_have_their_names_and_the_digest_of_the_vector(tmp_path: Path) -> None:
    module, path = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)), tmp_path / "weights"
    flat = FlatModel(module)
    write_weights(path, flat.read(), flat.layout)
    tensors = load_file(path)
    assert tensors.keys() == module.state_dict().keys()
    assert all(torch.equal(tensors[name], value) for name, value in module.state_dict().items())
    assert weights_sha256(path) == vector_sha256(flat.read())


def test_a_damaged_file_is_answered_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"no tensors")
    with pytest.raises(DpflError, match="is damaged"):
        weights_sha256(path)
