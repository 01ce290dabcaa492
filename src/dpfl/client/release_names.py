"""Names released values. A ledger knows a value by its name, and the name keys the value's noise.

The same model, weights, data and task give the same value, so it has the same name and the same
noise, and is paid for once. Anything else has another name, and other noise.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import torch
from torch import Tensor

from dpfl.client.context import ClientContext
from dpfl.client.task import ClientTask
from dpfl.codec import digest_of


class ReleaseNames:
    """Names of released values; digests of data and of the last model are computed once."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._data: dict[tuple[int, bool], str] = {}
        self._last: tuple[Tensor, str] | None = None

    def name(self, task: ClientTask, vector: Tensor, correction: Tensor | None) -> str:
        """Names what a task releases.

        What is asked beside the release (`raw_values`) and what is still planned (`horizon`) change
        nothing of the value, and are not part of its name.

        Args:
            task: The task.
            vector: The model that the task starts from.
            correction: What is added to the client's gradients, if anything.

        Returns:
            The name in hexadecimal.
        """
        value = (
            replace(task, horizon=0, raw_values=()),
            self.model_digest(vector),
            self._context.fingerprint,
            self._data_digest(task),
        )
        correction_bytes = [] if correction is None else [correction.contiguous().numpy().data]
        return digest_of(value, *correction_bytes)

    def model_digest(self, vector: Tensor) -> str:
        """Computes a digest of a model's bits.

        To compare the bits with the last model's costs a seventh of a digest.

        Args:
            vector: The model.

        Returns:
            The digest in hexadecimal.
        """
        bits = vector.contiguous().view(torch.int32)
        if self._last is None or not torch.equal(bits, self._last[0]):
            digest = hashlib.blake2b(bits.numpy().data, digest_size=16).hexdigest()
            self._last = (bits.clone(), digest)
        return self._last[1]

    def _data_digest(self, task: ClientTask) -> str:
        key = (task.client, task.asks_metric)
        if key not in self._data:
            self._data[key] = self._context.dataset(task).digest()
        return self._data[key]
