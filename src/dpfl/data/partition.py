"""Ways to spread labelled samples over clients.

A partition is called with the labels, the number of clients and a generator, and returns one array
of indices a client (disjoint) and notes: sentences on whatever was changed or left over.
"""

from __future__ import annotations

import dataclasses
import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from dpfl.bad_values import (
    is_number,
    refuse_unknown_options,
    require_above,
    require_name,
    require_whole,
)
from dpfl.data.population import RandomClients
from dpfl.data.stratify import apportion
from dpfl.errors import DpflError

MOST_DRAWS = 1_000

Parts = list[np.ndarray]
Notes = tuple[str, ...]
Partition = Callable[[np.ndarray, int, np.random.Generator], tuple[Parts, Notes]]


@dataclass(frozen=True)
class IID:
    """Shuffle, and deal equal shares."""

    def __call__(
        self, labels: np.ndarray, clients: int, rng: np.random.Generator
    ) -> tuple[Parts, Notes]:
        return np.array_split(rng.permutation(len(labels)), clients), ()


@dataclass(frozen=True)
class Dirichlet:
    """The proportions of each class over the clients are drawn from Dir(beta); every client gets a
    minimum.
    """

    beta: float
    minimum: int = 20

    def __post_init__(self) -> None:
        require_above(self.beta, "beta", bound=0)
        require_whole(self.minimum, "minimum", least=0)

    def proportions(self, classes: int, clients: int, rng: np.random.Generator) -> np.ndarray:
        """The share of each class that each client gets: (classes, clients)."""
        return rng.dirichlet(np.full(clients, self.beta), size=classes)

    def __call__(
        self, labels: np.ndarray, clients: int, rng: np.random.Generator
    ) -> tuple[Parts, Notes]:
        classes = np.unique(labels)
        pieces: list[Parts] = [[] for _ in range(clients)]
        for label, shares in zip(
            classes, self.proportions(len(classes), clients, rng), strict=True
        ):
            members = rng.permutation(np.flatnonzero(labels == label))
            cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
            for client, piece in zip(pieces, np.split(members, cuts), strict=True):
                client.append(piece)
        return _raise_to_minimum([np.concatenate(client) for client in pieces], self.minimum, rng)


@dataclass(frozen=True)
class CappedDirichlet:
    """As Dirichlet, but whoever has an equal share of all images gets none of the classes after
    that, and all is drawn again until everybody has the minimum: how the code of some papers
    deals."""

    beta: float = 0.05
    minimum: int = 40

    def __post_init__(self) -> None:
        Dirichlet(self.beta, self.minimum)

    def __call__(
        self, labels: np.ndarray, clients: int, rng: np.random.Generator
    ) -> tuple[Parts, Notes]:
        for _ in range(MOST_DRAWS):
            parts = self._dealt(labels, clients, rng)
            if min(map(len, parts)) >= self.minimum:
                return parts, ()
        raise DpflError(
            f"In {MOST_DRAWS:,} draws some client always has fewer than {self.minimum} images: "
            "lower minimum or clients, or "
            "raise beta."
        )

    def _dealt(self, labels: np.ndarray, clients: int, rng: np.random.Generator) -> Parts:
        parts: Parts = [np.zeros(0, dtype=np.int64)] * clients
        for label in np.unique(labels):
            members = rng.permutation(np.flatnonzero(labels == label))
            shares = rng.dirichlet(np.full(clients, self.beta)) * [
                len(part) < len(labels) / clients for part in parts
            ]
            cuts = np.rint(
                np.cumsum(shares / max(shares.sum(), 1e-300))[:-1] * len(members)
            ).astype(np.int64)
            parts = [
                np.concatenate([part, more])
                for part, more in zip(parts, np.split(members, cuts), strict=True)
            ]
        return parts


@dataclass(frozen=True)
class Shards:
    """Sort by label, cut into shards, and deal each client some of them at random."""

    shards: int = 400
    per_client: int = 40

    def __post_init__(self) -> None:
        require_whole(self.shards, "shards", least=1)
        require_whole(self.per_client, "per_client", least=1)

    def __call__(
        self, labels: np.ndarray, clients: int, rng: np.random.Generator
    ) -> tuple[Parts, Notes]:
        needed = clients * self.per_client
        if needed > self.shards:
            raise DpflError(
                f"{clients} clients of {self.per_client} shards need {needed} shards and there are "
                f"{self.shards}: "
                "raise shards, or lower per_client or clients."
            )
        if self.shards > len(labels):
            raise DpflError(
                f"{len(labels)} images cannot be cut into {self.shards} shards: lower shards."
            )
        shuffled = rng.permutation(len(labels))
        pieces = np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], self.shards)
        hands = rng.permutation(self.shards)[:needed].reshape(clients, self.per_client)
        return _with_leftover(
            [np.concatenate([pieces[shard] for shard in hand]) for hand in hands], len(labels)
        )


@dataclass(frozen=True)
class LabelSkew:
    """Each client holds many images of a few major classes and a few images of every other
    class.
    """

    major: int = 2
    major_count: int = 230
    minor_count: int = 5

    def __post_init__(self) -> None:
        require_whole(self.major, "major", least=1)
        require_whole(self.major_count, "major_count", least=1)
        require_whole(self.minor_count, "minor_count", least=0)

    def __call__(
        self, labels: np.ndarray, clients: int, rng: np.random.Generator
    ) -> tuple[Parts, Notes]:
        classes, available = np.unique(labels, return_counts=True)
        if self.major > len(classes):
            raise DpflError(
                f"major is {self.major} and the data has {len(classes)} classes: lower major."
            )
        is_major = self._choose(len(classes), clients, rng)
        major_count, minor_count = self._fit(is_major, available)
        pools = [rng.permutation(np.flatnonzero(labels == label)) for label in classes]
        counts = np.where(is_major, major_count, minor_count)
        ends = np.cumsum(counts, axis=0)
        parts = [
            np.concatenate(
                [pool[end - count : end] for pool, end, count in zip(pools, *rows, strict=True)]
            )
            for rows in zip(ends, counts, strict=True)
        ]
        parts, notes = _with_leftover(parts, len(labels))
        if major_count < self.major_count:
            asked = f"{self.major_count} and {self.minor_count}"
            notes = (
                f"too few images for counts of {asked}: scaled to {major_count} and {minor_count}",
                *notes,
            )
        return parts, notes

    def _choose(self, classes: int, clients: int, rng: np.random.Generator) -> np.ndarray:
        """Each client's major classes: at random among those that were chosen least often so
        far.
        """
        chosen = np.zeros((clients, classes), dtype=bool)
        times = np.zeros(classes, dtype=np.int64)
        for client in range(clients):
            order = np.lexsort((rng.random(classes), times))
            chosen[client, order[: self.major]] = True
            times += chosen[client]
        return chosen

    def _fit(self, is_major: np.ndarray, available: np.ndarray) -> tuple[int, int]:
        """The largest counts, in the asked proportion, for which no class runs out."""
        majors, minors = is_major.sum(axis=0), (~is_major).sum(axis=0)
        for major_count in range(self.major_count, 0, -1):
            minor_count = max(
                min(1, self.minor_count), self.minor_count * major_count // self.major_count
            )
            if np.all(majors * major_count + minors * minor_count <= available):
                return major_count, minor_count
        raise DpflError(
            f"The smallest class has too few images for {len(is_major)} clients: ask for fewer "
            "clients."
        )


@dataclass(frozen=True)
class Unequal:
    """Equal labels, unequal sizes: geometric from the largest (client 0) to the smallest, `ratio`
    times smaller.
    """

    ratio: float = 10.0
    minimum: int = 20

    def __post_init__(self) -> None:
        if not is_number(self.ratio) or self.ratio < 1:
            raise DpflError(
                f"ratio is {self.ratio!r}: give how often the largest size holds the smallest, 1 "
                "or more."
            )
        require_whole(self.minimum, "minimum", least=0)

    def __call__(
        self, labels: np.ndarray, clients: int, rng: np.random.Generator
    ) -> tuple[Parts, Notes]:
        weights = np.logspace(0, -np.log10(self.ratio), clients)
        cuts = np.cumsum(apportion(weights, len(labels)))[:-1]
        return _raise_to_minimum(np.split(rng.permutation(len(labels)), cuts), self.minimum, rng)


@dataclass(frozen=True)
class Mix:
    """A share of the clients (the last ones) gets an IID part of the data, the first ones a skewed
    partition.
    """

    share: float
    iid: Partition = IID()
    skewed: Partition = Dirichlet(0.05)

    def __post_init__(self) -> None:
        if not is_number(self.share) or not 0 <= self.share <= 1:
            raise DpflError(
                f"share is {self.share!r}: give the share of IID clients as a number from 0 to 1."
            )

    def __call__(
        self, labels: np.ndarray, clients: int, rng: np.random.Generator
    ) -> tuple[Parts, Notes]:
        first = clients - round(self.share * clients)
        shuffled = rng.permutation(len(labels))
        cut = round(len(labels) * first / clients)
        parts: Parts = []
        notes: Notes = (
            (f"clients 0 to {first - 1} are skewed, the rest is IID",)
            if 0 < first < clients
            else ()
        )
        for how, count, pool in (
            (self.skewed, first, shuffled[:cut]),
            (self.iid, clients - first, shuffled[cut:]),
        ):
            if count:
                inner, said = how(labels[pool], count, rng)
                parts += [pool[part] for part in inner]
                notes += said
        return parts, notes


@dataclass(frozen=True)
class ExplicitPartition:
    """The user's own: one list of indices a client, by name or in turn, or a .json (lists) or .npz
    (arrays) file of them.
    """

    lists: Sequence[Sequence[int]] | dict[str, Sequence[int]] | str | Path

    @property
    def names(self) -> tuple[str, ...]:
        """Those of the clients, where lists have names."""
        lists = _read_lists(Path(self.lists)) if isinstance(self.lists, str | Path) else self.lists
        return tuple(map(str, lists)) if isinstance(lists, dict) else ()

    def __call__(
        self, labels: np.ndarray, clients: int, rng: np.random.Generator
    ) -> tuple[Parts, Notes]:
        held = _read_lists(Path(self.lists)) if isinstance(self.lists, str | Path) else self.lists
        lists = list(held.values() if isinstance(held, dict) else held)
        if len(lists) != clients:
            raise DpflError(
                f"The mapping has {len(lists)} lists and {clients} clients were asked for: make "
                "them agree."
            )
        parts = [_as_indices(number, indices, len(labels)) for number, indices in enumerate(lists)]
        together = np.concatenate(parts)
        if len(np.unique(together)) < len(together):
            raise DpflError(
                "Some indices occur twice in the mapping: every image must have one owner."
            )
        return _with_leftover(parts, len(labels))

    def __str__(self) -> str:
        return (
            f"mapping({self.lists})"
            if isinstance(self.lists, str | Path)
            else f"mapping({len(self.lists)} lists)"
        )


NAMES: dict[str, type] = {
    "iid": IID,
    "dirichlet": Dirichlet,
    "closed": CappedDirichlet,
    "shards": Shards,
    "label-skew": LabelSkew,
    "mix": Mix,
    "unequal": Unequal,
    "mapping": ExplicitPartition,
    "drawn": RandomClients,
}


def skews_classes(how: Partition) -> bool:
    """Whether it deals by classes, and so needs labels that are some."""
    if isinstance(how, Mix):
        return skews_classes(how.iid) or skews_classes(how.skewed)
    return isinstance(how, Dirichlet | CappedDirichlet | Shards | LabelSkew)


def parse(name: str, **options: Any) -> Partition | RandomClients:
    """A partition from its name and options; `mix` hands the options that are not its own to its
    skewed part.
    """
    require_name("partition", name, NAMES)
    kind = NAMES[name]
    if kind is Mix:
        inner = {
            key: options.pop(key) for key in list(options) if key not in ("share", "iid", "skewed")
        }
        options["iid"] = _parse_inner(options.get("iid", "iid"), {})
        options["skewed"] = _parse_inner(options.get("skewed", "dirichlet"), inner)
    fields = dataclasses.fields(kind)
    known = [field.name for field in fields]
    refuse_unknown_options(f"The partition {name!r}", options, known)
    needed = [field.name for field in fields if field.default is dataclasses.MISSING]
    if missing := next((key for key in needed if key not in options), None):
        raise DpflError(f"The partition {name!r} needs {missing}: give it a value.")
    return cast("Partition | RandomClients", kind(**options))


def _parse_inner(how: Any, options: dict[str, Any]) -> Partition:
    if not isinstance(how, str):
        return cast(Partition, how)
    return cast(
        Partition, parse(how, **({"beta": 0.05, **options} if how == "dirichlet" else options))
    )


def describe(how: Partition | RandomClients) -> str:
    """A partition as one writes it in an experiment, such as dirichlet(beta=0.05, minimum=20)."""
    name = next((name for name, kind in NAMES.items() if type(how) is kind), None)
    if name is None or isinstance(how, ExplicitPartition):
        return getattr(how, "__name__", None) or str(how)
    values = {field.name: getattr(how, field.name) for field in dataclasses.fields(cast(Any, how))}
    said = (
        f"{key}={describe(value) if callable(value) else value}" for key, value in values.items()
    )
    return f"{name}({', '.join(said)})" if values else name


def _raise_to_minimum(parts: Parts, minimum: int, rng: np.random.Generator) -> tuple[Parts, Notes]:
    """Move random images from the largest clients to those below the minimum."""
    total = sum(len(part) for part in parts)
    if total < minimum * len(parts):
        raise DpflError(
            f"{total} images are too few for {len(parts)} clients of at least {minimum}: lower "
            "minimum or clients."
        )
    parts, notes = list(parts), []
    sizes = np.array([len(part) for part in parts])
    for client in np.flatnonzero(sizes < minimum):
        lacking, givers = minimum - sizes[client], []
        while sizes[client] < minimum:
            giver = int(np.argmax(sizes))
            count = min(minimum - sizes[client], sizes[giver] - minimum)
            given = rng.permutation(parts[giver])
            parts[client], parts[giver] = (
                np.concatenate([parts[client], given[:count]]),
                given[count:],
            )
            sizes[client], sizes[giver] = sizes[client] + count, sizes[giver] - count
            givers.append(f"client {giver}")
        source = " and ".join(givers)
        notes.append(
            f"{lacking} images moved from {source} to client {client}, to reach the minimum of "
            f"{minimum}"
        )
    return parts, tuple(notes)


def _with_leftover(parts: Parts, total: int) -> tuple[Parts, Notes]:
    left = total - sum(len(part) for part in parts)
    return parts, (f"{left} of {total} images belong to no client",) if left else ()


def _read_lists(path: Path) -> list[Any] | dict[str, Any]:
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as held:
                return [held[key] for key in held.files]
        content = json.loads(path.read_text())
    except (
        OSError,
        ValueError,
        EOFError,
        TypeError,
        AttributeError,
        RecursionError,
        zipfile.BadZipFile,
    ) as error:
        raise DpflError(
            f"The mapping {path} cannot be read ({error}): give a JSON or .npz file of lists."
        ) from error
    if not isinstance(content, list | dict):
        raise DpflError(
            f"The mapping {path} holds no lists: give a list of index lists, one a client."
        )
    return content


def _as_indices(number: int, indices: Any, total: int) -> np.ndarray:
    try:
        part = np.asarray(indices)
    except ValueError as error:
        raise DpflError(
            f"List {number} of the mapping is not one row of numbers: correct it."
        ) from error
    if part.size == 0:
        return np.zeros(0, dtype=np.int64)
    if part.ndim != 1 or not np.issubdtype(part.dtype, np.integer):
        raise DpflError(
            f"List {number} of the mapping is not one row of whole numbers: correct it."
        )
    if part.min() < 0 or part.max() >= total:
        raise DpflError(
            f"List {number} of the mapping leaves the range 0 to {total - 1}: correct it."
        )
    return part.astype(np.int64)
