"""The trained weights of a run: a safetensors file that loads without dpfl."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError, safe_open

from dpfl.errors import DpflError
from dpfl.models import Layout

if TYPE_CHECKING:
    from torch import Tensor

    from dpfl.data.tables.schema import Schema

NAME = "model.safetensors"


def write_weights(path: Path, vector: Tensor, layout: Layout, schema: Schema | None = None) -> None:
    """Writes weights by their names.

    The metadata hold the names in the order of the model. For a model on a table they also hold
    what turns a raw row into what the model takes.

    Args:
        path: The file.
        vector: The weights as one flat vector.
        layout: The name, shape and place of each weight.
        schema: The columns of the table, or None.
    """
    from safetensors.torch import save_file

    tensors = {
        name: vector[layout.span(entry)].reshape(shape).clone()
        for entry, (name, shape) in enumerate(zip(layout.names, layout.shapes, strict=True))
    }
    table = {"schema": schema.to_json()} if schema else {}
    save_file(tensors, path, {"names": json.dumps(layout.names)} | table)


def weights_sha256(path: Path) -> str:
    """Computes the digest of the weights in a file, in the order of the model.

    Args:
        path: The file.

    Returns:
        A SHA-256 in hexadecimal, which equals `vector_sha256` of the flat vector.

    Raises:
        DpflError: The file is damaged.
    """
    try:
        with safe_open(path, "np") as file:
            names = json.loads(file.metadata()["names"])
            weights = [file.get_tensor(name).astype(np.float32).tobytes() for name in names]
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise DpflError(
            f"The model {path} is damaged ({error}); restore it from a copy."
        ) from error
    return hashlib.sha256(b"".join(weights)).hexdigest()
