"""A run's folder: the record of the experiment, metrics, checkpoint, weights, ledgers and
statement. All files have open formats; none is a pickle.
"""

from __future__ import annotations

import datetime
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import tomli_w

from dpfl.errors import DpflError
from dpfl.models import Layout
from dpfl.privacy.ledger.client_ledgers import METRICS as METRICS
from dpfl.run.metrics import Metrics
from dpfl.run.records import checkpoint, record_file, run_lock, weights_file
from dpfl.run.records.digests import without_none
from dpfl.server.state import RunState

if TYPE_CHECKING:
    from torch import Tensor

    from dpfl.data.tables.schema import Schema


def write_atomically(path: Path, content: bytes, private: bool = False) -> None:
    """Writes a file so that a crash leaves either the whole old file or the whole new one.

    Args:
        path: The file.
        content: Its new content.
        private: Whether only the owner of the file may read it.

    Raises:
        OSError: The file cannot be written.
    """
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as file:
        if private:
            os.fchmod(file.fileno(), 0o600)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def new_path(name: str) -> Path:
    """Chooses a new folder for a run that nobody named a folder for.

    Args:
        name: The name of the system.

    Returns:
        A path under `runs/` with the name, the time and four random digits.
    """
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{name.replace(':', '.')}-{now}-{secrets.token_hex(2)}"


STATEMENTS = "nodes"
"""Where the signed statements of nodes are kept."""
EXPERIMENT, LOCK = record_file.NAME, "run.lock"


class RunFolder:
    """The folder of one run.

    Attributes:
        path: The folder.
        ledgers: The folder of the run's own ledgers.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.ledgers = self.path / "ledger"

    def begun(self) -> bool:
        """Says whether the folder holds a run.

        Returns:
            True once the record of the run is written.

        Raises:
            DpflError: The path cannot be that of a folder.
        """
        return _there(self.file(EXPERIMENT))

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """Makes the folder of a new run.

        Args:
            path: The folder, which may exist.

        Returns:
            The folder, without a run in it.

        Raises:
            DpflError: The folder holds a run already, or it cannot be written.
        """
        folder = cls(path)
        folder.refuse_existing_run()
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            folder.ledgers.mkdir(exist_ok=True)
        except OSError as error:
            raise DpflError(
                f"The run's folder {path} cannot be written ({error.strerror}); choose another "
                "with --out."
            ) from error
        return folder

    def refuse_existing_run(self) -> None:
        """Refuses to start a new run in the folder of another.

        Raises:
            DpflError: The folder holds a run already.
        """
        if self.begun():
            raise DpflError(
                f"{self.path} holds a run already; choose another folder, or go on with it: dpfl "
                f"run --resume {self.path}"
            )

    def lock(self) -> AbstractContextManager[None]:
        """Locks the run for as long as a process is at it.

        Returns:
            A context that holds the lock.

        Raises:
            DpflError: Another process is at the run; raised when the context is entered.
        """
        return run_lock.lock(self.file(LOCK))

    def process(self) -> int | None:
        """Finds the process that is at the run.

        Returns:
            The number of the process; None where the run is at rest.
        """
        return run_lock.read_owner(self.file(LOCK))

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Opens the folder of a run that has begun.

        Args:
            path: The folder.

        Returns:
            The folder.

        Raises:
            DpflError: There is no run in it.
        """
        folder = cls(path)
        if not folder.begun():
            raise DpflError(f"There is no run in {path}; `dpfl runs` lists those there are.")
        return folder

    def file(self, name: str) -> Path:
        """Names a file of the run.

        Args:
            name: The file's path within the folder.

        Returns:
            The path, whether there is such a file or not.
        """
        return self.path / name

    def write_experiment(self, experiment: Mapping[str, Any]) -> None:
        """Writes the record of the run.

        Args:
            experiment: The content of `experiment.toml`; what is None in it is left out.

        Raises:
            DpflError: The file cannot be written.
        """
        self._write(EXPERIMENT, tomli_w.dumps(without_none(experiment)).encode())

    def experiment(self) -> dict[str, Any]:
        """Reads the record of the run, whichever version wrote it.

        Returns:
            The record, with its parts as this version writes them.

        Raises:
            DpflError: The file is no record of a run, or a newer version wrote it.
        """
        return record_file.read_record(self.file(EXPERIMENT))

    def refuse_other_format(self) -> None:
        """Refuses to resume a run of an earlier version.

        Raises:
            DpflError: The run's releases were named by an earlier format, so a round that is made
                again would be another release, with other noise.
        """
        record_file.refuse_other_format(self.file(EXPERIMENT))

    def record(self) -> dict[str, Any]:
        """Reads the record of the run, and checks that the run's debits were made under it.

        Returns:
            The record, as `experiment` reads it.

        Raises:
            DpflError: The record was changed since, or its version did not seal it.
        """
        return record_file.read_sealed_record(self.file(EXPERIMENT))

    def write_text(self, name: str, text: str) -> None:
        """Writes a text file of the run.

        Args:
            name: The file's name.
            text: Its content.

        Raises:
            DpflError: The file cannot be written.
        """
        self._write(name, text.encode())

    def write_json(self, name: str, value: object) -> None:
        """Writes a JSON file of the run.

        Args:
            name: The file's name.
            value: Its content, of values that JSON can hold.

        Raises:
            DpflError: The file cannot be written.
        """
        self._write(name, json.dumps(value, indent=2).encode())

    def write_private_json(self, name: str, value: object) -> None:
        """Writes a JSON file that only the user who runs this process may read.

        Args:
            name: The file's name.
            value: Its content, of values that JSON can hold.

        Raises:
            DpflError: The file cannot be written.
        """
        self._write(name, json.dumps(value, indent=2).encode(), private=True)

    def json(self, name: str) -> Any:
        """Reads a JSON file of the run, which anybody may have changed since.

        Args:
            name: The file's name.

        Returns:
            Its content; None where there is no such file.

        Raises:
            DpflError: The file is not JSON, or lacks what a run writes there.
        """
        path = self.file(name)
        try:
            content = json.loads(path.read_text()) if path.exists() else None
        except (OSError, ValueError, RecursionError) as error:
            raise DpflError(
                f"{path} cannot be read ({error}); restore it from a copy, or remove it."
            ) from error
        if content is not None and not _is_what_a_run_writes(name, content):
            raise DpflError(
                f"{path} does not hold what a run writes there; restore it from a copy, or remove "
                "it."
            )
        return content

    def _write(self, name: str, content: bytes, private: bool = False) -> None:
        try:
            write_atomically(self.file(name), content, private)
        except OSError as error:
            raise DpflError(
                f"{self.file(name)} cannot be written ({error.strerror}); fix the disk, then "
                "resume the run."
            ) from error

    def save_checkpoint(self, state: RunState) -> None:
        """Writes the state of the run over the last checkpoint.

        Args:
            state: The state after a round.

        Raises:
            DpflError: The checkpoint cannot be written; the last one is whole.
        """
        self._write(checkpoint.NAME, checkpoint.checkpoint_bytes(state))

    def counters(self) -> dict[str, Any]:
        """Reads the counters of the last checkpoint.

        Returns:
            The counters by name, such as `round`, and `model_sha256`, the digest of the model.

        Raises:
            DpflError: There is no checkpoint, or it is damaged.
        """
        return checkpoint.read_counters(self.file(checkpoint.NAME))

    def load_checkpoint(self, fresh: RunState) -> RunState:
        """Reads the state of the run from its last checkpoint.

        Args:
            fresh: The state before the first round, which has the sizes and the releases of the
                model.

        Returns:
            The state after the last round; `fresh` where there is no checkpoint.

        Raises:
            DpflError: The checkpoint is damaged, or belongs to another model.
        """
        path = self.file(checkpoint.NAME)
        return checkpoint.read_checkpoint(path, fresh) if path.exists() else fresh

    def save_model(self, vector: Tensor, layout: Layout, schema: Schema | None = None) -> None:
        """Writes the trained weights by their names, for whoever loads them without dpfl.

        Args:
            vector: The weights as one flat vector.
            layout: The name, shape and place of each weight.
            schema: For a model on a table, what turns a raw row into what the model takes.
        """
        weights_file.write_weights(self.file(weights_file.NAME), vector, layout, schema)

    def weights_sha256(self) -> str:
        """Computes the digest of the weights in `model.safetensors`, in the order of the model.

        Returns:
            A SHA-256 in hexadecimal, which equals `model_sha256` of the result.

        Raises:
            DpflError: The file is damaged.
        """
        return weights_file.weights_sha256(self.file(weights_file.NAME))

    def metrics(self) -> Metrics:
        """Opens the metrics of the run.

        Returns:
            The table of its rounds.

        Raises:
            DpflError: The file is no such table.
        """
        return Metrics(self.file(METRICS))


CONTENT_TYPES: dict[str, dict[str, tuple[type, ...]]] = {
    "result.json": {
        "rounds": (int,),
        "iterations": (int,),
        "accuracy": (int, float, NoneType),
        "stopped_by": (str,),
        "model_sha256": (str,),
        "privacy": (dict,),
    },
    "statement.json": {
        "unit": (str,),
        "delta": (int, float),
        "accountant": (str,),
        "proven": (int, float, str, NoneType),
    },
}
"""The keys of a file that others read, with the types of their values."""


def _is_what_a_run_writes(name: str, content: object) -> bool:
    kinds = CONTENT_TYPES.get(name, {})
    return isinstance(content, dict) and all(
        key in content and isinstance(content[key], kind) for key, kind in kinds.items()
    )


def _there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError) as error:
        raise DpflError(
            f"{str(path)[:80]!r} cannot be a run's folder ({error}); choose another."
        ) from None
