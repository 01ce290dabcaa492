"""A run's folder: the experiment as run, metrics, checkpoint, weights, ledgers, statement. Open
formats, no pickle.
"""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import json
import os
import secrets
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import tomli_w
from safetensors import SafetensorError, safe_open

from dpfl.codec import FORMAT
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.models import Layout
from dpfl.privacy import Release
from dpfl.run.format_1 import translate
from dpfl.run.metrics import Metrics
from dpfl.server.state import RunState

if TYPE_CHECKING:
    from torch import Tensor

    from dpfl.data.tables.schema import Schema


def write_atomically(path: Path, content: bytes, private: bool = False) -> None:
    """The whole new file or the whole old one, whatever happens in between; a private one is for
    its owner only.
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
    """A folder for a run of this system, where none was asked for."""
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{name.replace(':', '.')}-{now}-{secrets.token_hex(2)}"


def _is_shared(file: BinaryIO) -> bool:
    """Whether all who hold the lock of this file share it: they ask whether a run is under way, and
    none of them is at it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


METRICS = "metrics.sqlite"
STATEMENTS = "nodes"
"""Where the signed statements of nodes are kept."""
ASKED, LOOK = 30.0, 0.02
"""Seconds that a run waits for those who ask whether it is under way, and from one look to the
next: they share its lock for a moment, which is long on a busy machine."""
MEMORY = "memory."
"""Before the names of what a step policy remembers."""


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.ledgers = self.path / "ledger"

    def begun(self) -> bool:
        return _there(self.file("experiment.toml"))

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        folder = cls(path)
        folder.refuse_held()
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            folder.ledgers.mkdir(exist_ok=True)
        except OSError as error:
            raise DpflError(
                f"The run's folder {path} cannot be written ({error.strerror}); choose another "
                "with --out."
            ) from error
        return folder

    def refuse_held(self) -> None:
        if self.begun():
            raise DpflError(
                f"{self.path} holds a run already; choose another folder, or go on with it: dpfl "
                f"run --resume {self.path}"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """For the life of a run: of two processes at one run, both would spend. The file says which
        process it is.
        """
        with self.file("run.lock").open("ab") as file:
            self._lock(file)
            file.truncate(0)
            file.write(str(os.getpid()).encode())
            file.flush()
            try:
                yield
            finally:
                file.truncate(0)

    def _lock(self, file: BinaryIO) -> None:
        until = time.monotonic() + ASKED
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if not _is_shared(file) or time.monotonic() >= until:
                    raise DpflError(
                        f"Another process is at the run in {self.path} ({error.strerror}); wait "
                        "until it has ended, then "
                        "resume it."
                    ) from error
            time.sleep(LOOK)

    def process(self) -> int | None:
        """The process that is at the run; None where it is at rest. Who holds the lock cannot have
        ended, so the number is nobody else's."""
        try:
            with self.file("run.lock").open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    number = int(file.read(20) or b"0")
                    return number if number > 1 else None
        except (OSError, ValueError):
            pass
        return None

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        folder = cls(path)
        if not folder.begun():
            raise DpflError(f"There is no run in {path}; `dpfl runs` lists those there are.")
        return folder

    def file(self, name: str) -> Path:
        return self.path / name

    def write_experiment(self, experiment: Mapping[str, Any]) -> None:
        self._write("experiment.toml", tomli_w.dumps(without_none(experiment)).encode())

    def experiment(self) -> dict[str, Any]:
        """Returns the record of the run, with its parts as this version writes them, whichever
        version wrote it.
        """
        held = self._as_written()
        if held.get("format", 1) == 1:
            return translate(held) | {"format": 1}  # type: ignore[no-any-return]
        if held["format"] != FORMAT:
            raise DpflError(
                f"{self.path} was written by a newer dpfl (format {held['format']!r}): update dpfl "
                "to read it."
            )
        return held

    def _as_written(self) -> dict[str, Any]:
        try:
            held = tomllib.loads(self.file("experiment.toml").read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise DpflError(
                f"{self.file('experiment.toml')} cannot be read ({error}); restore it from a copy."
            ) from error
        if not all(isinstance(held.get(part), dict) for part in ("run", "resolved", "hashes")):
            raise DpflError(
                f"{self.file('experiment.toml')} is not the record of a run; restore it from a "
                "copy."
            )
        return held

    def refuse_other_format(self) -> None:
        """Refuses to resume a run of an earlier version.

        Raises:
            DpflError: The run's releases were named by an earlier format, so a round that is made
            again would be another
                release, with other noise.
        """
        if self.experiment()["format"] != FORMAT:
            raise DpflError(
                f"The run in {self.path} was made by dpfl 0.1, and this version cannot resume it. "
                "It can still read, compare, "
                "report and verify the run. Start a new run; give privacy.ledger the old ledgers "
                "to count what was spent."
            )

    def record(self) -> dict[str, Any]:
        """The experiment as run, if it is still the one that the run's debits were made under."""
        found = self._as_written()
        if "nonce" not in found.get("run", {}):
            raise DpflError(
                f"The run in {self.path} is of an older version, whose record is not sealed: it "
                "cannot be certified."
            )
        if record_id(found) != found.get("run", {}).get("id"):
            raise DpflError(
                f"{self.file('experiment.toml')} is not as its run wrote it: the run's debits are "
                "under another record; "
                "restore it from a copy."
            )
        return self.experiment()

    def write_text(self, name: str, text: str) -> None:
        self._write(name, text.encode())

    def write_json(self, name: str, value: object) -> None:
        self._write(name, json.dumps(value, indent=2).encode())

    def write_private_json(self, name: str, value: object) -> None:
        self._write(name, json.dumps(value, indent=2).encode(), private=True)

    def json(self, name: str) -> Any:
        """A part that was written as JSON, None where it was not; it may have been written by
        anybody since.
        """
        path = self.file(name)
        try:
            held = json.loads(path.read_text()) if path.exists() else None
        except (OSError, ValueError, RecursionError) as error:
            raise DpflError(
                f"{path} cannot be read ({error}); restore it from a copy, or remove it."
            ) from error
        if held is not None and not _is_what_a_run_writes(name, held):
            raise DpflError(
                f"{path} does not hold what a run writes there; restore it from a copy, or remove "
                "it."
            )
        return held

    def _write(self, name: str, content: bytes, private: bool = False) -> None:
        try:
            write_atomically(self.file(name), content, private)
        except OSError as error:
            raise DpflError(
                f"{self.file(name)} cannot be written ({error.strerror}); mend the disk, then "
                "resume the run."
            ) from error

    def save_checkpoint(self, state: RunState) -> None:
        tensors = {"vector": state.vector, "velocity": state.velocity}
        kept = {"weights": state.weights, "kept": state.kept, "average": state.average}
        tensors |= {name: tensor for name, tensor in kept.items() if tensor is not None}
        tensors |= {f"{MEMORY}{name}": tensor for name, tensor in state.memory.items()}
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
        from safetensors.torch import save

        seals = json.dumps({name: vector_sha256(tensor) for name, tensor in tensors.items()})
        self._write(
            "checkpoint.safetensors",
            save(tensors, {"state": json.dumps(_numbers(state)), "sha256": seals}),
        )

    def came_to(self) -> dict[str, Any]:
        """The numbers of the last checkpoint, and the digest of its model."""
        path = self.file("checkpoint.safetensors")
        try:
            with safe_open(path, "np") as file:
                seals = {name: _digest(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
                numbers, sealed = (json.loads(file.metadata()[key]) for key in ("state", "sha256"))
            if seals != sealed:
                raise ValueError("its numbers have changed since it was written")
            return {**numbers, "model_sha256": seals.get("average", seals["vector"])}
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise DpflError(
                f"The checkpoint {path} cannot be read ({error}); restore it from a copy."
            ) from error

    def has_checkpoint(self) -> bool:
        return self.file("checkpoint.safetensors").exists()

    def load_checkpoint(self, fresh: RunState) -> RunState:
        """The last checkpoint, in the form of `fresh`; that itself where no round was finished."""
        if not self.has_checkpoint():
            return fresh
        path = self.file("checkpoint.safetensors")
        try:
            with safe_open(path, "pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                numbers, seals = (json.loads(file.metadata()[key]) for key in ("state", "sha256"))
            if seals != {name: vector_sha256(tensor) for name, tensor in tensors.items()}:
                raise ValueError("its numbers have changed since it was written")
            vector, velocity = tensors["vector"], tensors["velocity"]
            if vector.shape != fresh.vector.shape or velocity.shape != fresh.vector.shape:
                raise ValueError("it belongs to another model")
            memory = {
                name.removeprefix(MEMORY): t
                for name, t in tensors.items()
                if name.startswith(MEMORY)
            }
            state = _state(fresh, vector, velocity, numbers)
            weights, kept, average = (tensors.get(name) for name in ("weights", "kept", "average"))
            return replace(state, memory=memory, weights=weights, kept=kept, average=average)
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise DpflError(
                f"The checkpoint {path} is damaged ({error}); restore it from a copy, or start a "
                "new run."
            ) from error

    def save_model(self, vector: Tensor, layout: Layout, schema: Schema | None = None) -> None:
        """The weights by their names; of a model on a table, with all that turns a raw row into
        what it takes.
        """
        from safetensors.torch import save_file

        tensors = {
            name: vector[layout.span(entry)].reshape(shape).clone()
            for entry, (name, shape) in enumerate(zip(layout.names, layout.shapes, strict=True))
        }
        table = {"schema": schema.to_json()} if schema else {}
        save_file(
            tensors, self.file("model.safetensors"), {"names": json.dumps(layout.names)} | table
        )

    def weights_sha256(self) -> str:
        """Of the model's weights as they lie in the file, one after another in the order of the
        model.
        """
        path = self.file("model.safetensors")
        try:
            with safe_open(path, "np") as file:
                names = json.loads(file.metadata()["names"])
                weights = [file.get_tensor(name).astype(np.float32).tobytes() for name in names]
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise DpflError(
                f"The model {path} is damaged ({error}); restore it from a copy."
            ) from error
        return hashlib.sha256(b"".join(weights)).hexdigest()

    def metrics(self) -> Metrics:
        return Metrics(self.file(METRICS))


WRITTEN: dict[str, dict[str, tuple[type, ...]]] = {
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
"""What others read of a file, and of what kind it is."""


def _is_what_a_run_writes(name: str, held: object) -> bool:
    kinds = WRITTEN.get(name, {})
    return isinstance(held, dict) and all(
        key in held and isinstance(held[key], kind) for key, kind in kinds.items()
    )


def _there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError) as error:
        raise DpflError(
            f"{str(path)[:80]!r} cannot be a run's folder ({error}); choose another."
        ) from None


def _numbers(state: RunState) -> dict[str, Any]:
    return {
        "round": state.round,
        "tau": state.tau,
        "iterations": state.iterations,
        "shown": state.shown,
        "bytes": state.bytes,
        "seconds": state.seconds,
        "remaining": state.remaining,
        "paid": state.paid,
        "lost": state.lost,
        "clips": [_level(state.samples), _level(state.clients)],
    }


def _state(
    fresh: RunState, vector: Tensor, velocity: Tensor, numbers: Mapping[str, Any]
) -> RunState:
    samples, clients = numbers["clips"]
    return RunState(
        vector,
        velocity,
        _with_level(fresh.samples, samples),
        _with_level(fresh.clients, clients),
        [int(left) for left in numbers["remaining"]],
        int(numbers["round"]),
        int(numbers["tau"]),
        int(numbers["iterations"]),
        int(numbers["shown"]),
        int(numbers["bytes"]),
        float(numbers["seconds"]),
        paid=[int(count) for count in numbers["paid"]],
        lost=[str(line) for line in numbers.get("lost", [])],
    )


def _level(release: Release | None) -> float | None:
    return release.clip.clip_norm if release and release.clip.clip_norm != float("inf") else None


def _with_level(release: Release | None, level: float | None) -> Any:
    if release is None or level is None:
        return release
    clip = replace(release.clip, clip_norm=level)  # type: ignore[type-var]
    return replace(release, clip=clip)


def without_none(value: Any) -> Any:
    """TOML has no null: what is not set is left out."""
    if isinstance(value, Mapping):
        return {str(key): without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [without_none(item) for item in value]
    return value


def record_id(record: Mapping[str, Any]) -> str:
    """The name of a run in its ledgers: a digest of the experiment as run, so that debits tell what
    they were made under.

    A nonce that stays in the run's folder keeps whoever sees the name from trying out what the
    record may hold.
    """
    run = {key: value for key, value in record.get("run", {}).items() if key != "id"}
    return hashlib.sha256(tomli_w.dumps(without_none({**record, "run": run})).encode()).hexdigest()[
        :32
    ]


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.astype(np.float32).tobytes()).hexdigest()


@cache
def code_sha256() -> str:
    """Of the package as it is installed: every Python file with its path; once a process, which
    runs what it has read.
    """
    root, digest = Path(__file__).parent.parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).as_posix()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def vector_sha256(vector: Tensor) -> str:
    return hashlib.sha256(
        vector.detach().to(torch.float32).contiguous().numpy().tobytes()
    ).hexdigest()
