"""Partitions: ways to spread labelled samples over clients.

A partition is called with the labels, the number of clients and a generator. It returns one array
of indices for each client, all disjoint, and notes: sentences on what was changed or left over.

References:
    McMahan, Moore, Ramage, Hampson, Aguera y Arcas (2017), Communication-efficient learning of deep
        networks from decentralized data, arXiv:1602.05629 (shards).
    Hsu, Qi, Brown (2019), Measuring the effects of non-identical data distribution for federated
        visual classification, arXiv:1909.06335 (Dirichlet).
    Li, Diao, Chen, He (2022), Federated learning on non-IID data silos: an experimental study,
        arXiv:2102.02079 (Dirichlet by class, with closed clients in its code).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpfl.bad_values import is_number, require_above, require_whole, wrong_value
from dpfl.data.partition_traits import PartitionKind, kind_of
from dpfl.data.stratify import apportion
from dpfl.errors import DpflError

MOST_DRAWS = 1_000

Parts = list[np.ndarray]
Notes = tuple[str, ...]
Partition = Callable[[np.ndarray, int, np.random.Generator], tuple[Parts, Notes]]
"""Maps labels, a number of clients and a generator to the rows of each client, and notes."""

UNITS = "{dealt}"
"""Stands in a note for what is dealt. The source that deals knows: samples, or whole persons."""


@dataclass(frozen=True)
class IID(PartitionKind):
    """Shuffles the samples and deals equal shares."""

    def __call__(
        self, labels: np.ndarray, clients: int, rng: np.random.Generator
    ) -> tuple[Parts, Notes]:
        return np.array_split(rng.permutation(len(labels)), clients), ()


@dataclass(frozen=True)
class Dirichlet(PartitionKind):
    """Deals each class by proportions over the clients that are drawn from Dir(beta) (Hsu et al.
    2019; Li et al. 2022).

    The smaller beta is, the fewer clients share a class. Clients below the minimum get random
    samples of the largest clients.

    Attributes:
        beta: The concentration.
        minimum: The smallest number of samples of a client.
    """

    deals_by_class = True

    beta: float
    minimum: int = 20

    def __post_init__(self) -> None:
        require_above(self.beta, "beta", bound=0)
        require_whole(self.minimum, "minimum", least=0)

    def proportions(self, classes: int, clients: int, rng: np.random.Generator) -> np.ndarray:
        """Draws the share of each class that each client gets.

        Args:
            classes: The number of classes.
            clients: The number of clients.
            rng: The generator.

        Returns:
            Shares (classes, clients). Each row sums to 1.
        """
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
class CappedDirichlet(PartitionKind):
    """Deals as `Dirichlet`, but a client that has an equal share of all samples gets no more.

    It draws everything anew until each client has the minimum. The code of some papers deals like
    this (Li et al. 2022).

    Attributes:
        beta: The concentration.
        minimum: The smallest number of samples of a client.
    """

    deals_by_class = True

    beta: float = 0.05
    minimum: int = 40

    def __post_init__(self) -> None:
        Dirichlet(self.beta, self.minimum)

    def __call__(
        self, labels: np.ndarray, clients: int, rng: np.random.Generator
    ) -> tuple[Parts, Notes]:
        for _ in range(MOST_DRAWS):
            parts = self._deal(labels, clients, rng)
            if min(map(len, parts)) >= self.minimum:
                return parts, ()
        raise DpflError(
            f"In each of {MOST_DRAWS:,} draws some client had fewer than {self.minimum} images: "
            "lower minimum or clients, or raise beta."
        )

    def _deal(self, labels: np.ndarray, clients: int, rng: np.random.Generator) -> Parts:
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
class Shards(PartitionKind):
    """Sorts by label, cuts into shards, and deals each client some of them (McMahan et al. 2017).

    Attributes:
        shards: The number of shards.
        per_client: How many of them each client gets.
    """

    deals_by_class = True

    shards: int = 400
    per_client: int = 40

    def __post_init__(self) -> None:
        require_whole(self.shards, "shards", least=1)
        require_whole(self.per_client, "per_client", least=1)

    def __call__(
        self, labels: np.ndarray, clients: int, rng: np.random.Generator
    ) -> tuple[Parts, Notes]:
        shard_count = clients * self.per_client
        if shard_count > self.shards:
            raise DpflError(
                f"{clients} clients of {self.per_client} shards need {shard_count} shards and "
                f"there are {self.shards}: "
                "raise shards, or lower per_client or clients."
            )
        if self.shards > len(labels):
            raise DpflError(
                f"{len(labels)} images cannot be cut into {self.shards} shards: lower shards."
            )
        shuffled_rows = rng.permutation(len(labels))
        pieces = np.array_split(
            shuffled_rows[np.argsort(labels[shuffled_rows], kind="stable")], self.shards
        )
        hands = rng.permutation(self.shards)[:shard_count].reshape(clients, self.per_client)
        return with_leftover(
            [np.concatenate([pieces[shard] for shard in hand]) for hand in hands], len(labels)
        )


@dataclass(frozen=True)
class LabelSkew(PartitionKind):
    """Gives each client many samples of a few major classes, and a few samples of every other
    class.

    Attributes:
        major: The number of major classes of a client.
        major_count: The number of samples of each of them.
        minor_count: The number of samples of each other class.
    """

    deals_by_class = True

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
        parts, notes = with_leftover(parts, len(labels))
        if major_count < self.major_count:
            wish = f"{self.major_count} and {self.minor_count}"
            notes = (
                f"too few {UNITS} for counts of {wish}: scaled to {major_count} and {minor_count}",
                *notes,
            )
        return parts, notes

    def _choose(self, classes: int, clients: int, rng: np.random.Generator) -> np.ndarray:
        """Chooses each client's major classes: at random among those that were chosen least often
        so far.
        """
        majors = np.zeros((clients, classes), dtype=bool)
        times = np.zeros(classes, dtype=np.int64)
        for client in range(clients):
            order = np.lexsort((rng.random(classes), times))
            majors[client, order[: self.major]] = True
            times += majors[client]
        return majors

    def _fit(self, is_major: np.ndarray, available: np.ndarray) -> tuple[int, int]:
        """Finds the largest counts, in the proportion that was asked for, for which no class runs
        out.
        """
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
class Unequal(PartitionKind):
    """Gives clients samples of all labels, but unequal numbers of them.

    Sizes fall geometrically from client 0 to the last one.

    Attributes:
        ratio: The largest size over the smallest.
        minimum: The smallest number of samples of a client.
    """

    ratio: float = 10.0
    minimum: int = 20

    def __post_init__(self) -> None:
        if not is_number(self.ratio) or self.ratio < 1:
            advice = "give how many times the smallest size the largest is, 1 or more"
            raise wrong_value(self.ratio, "ratio", advice)
        require_whole(self.minimum, "minimum", least=0)

    def __call__(
        self, labels: np.ndarray, clients: int, rng: np.random.Generator
    ) -> tuple[Parts, Notes]:
        weights = np.logspace(0, -np.log10(self.ratio), clients)
        cuts = np.cumsum(apportion(weights, len(labels)))[:-1]
        return _raise_to_minimum(np.split(rng.permutation(len(labels)), cuts), self.minimum, rng)


@dataclass(frozen=True)
class Mix(PartitionKind):
    """Gives the last clients an IID part of the data, and the first ones a skewed partition.

    Attributes:
        share: The share of clients with IID data.
        iid: The partition of the last clients.
        skewed: The partition of the first clients.
    """

    share: float
    iid: Partition = IID()
    skewed: Partition = Dirichlet(0.05)

    @property
    def deals_by_class(self) -> bool:
        """Whether one of its partitions deals by classes."""
        return any(kind_of(how).deals_by_class for how in (self.iid, self.skewed))

    def __post_init__(self) -> None:
        if not is_number(self.share) or not 0 <= self.share <= 1:
            advice = "give the share of IID clients as a number from 0 to 1"
            raise wrong_value(self.share, "share", advice)

    def __call__(
        self, labels: np.ndarray, clients: int, rng: np.random.Generator
    ) -> tuple[Parts, Notes]:
        first = clients - round(self.share * clients)
        shuffled_rows = rng.permutation(len(labels))
        cut = round(len(labels) * first / clients)
        parts: Parts = []
        notes: Notes = (
            (f"clients 0 to {first - 1} are skewed, the rest is IID",)
            if 0 < first < clients
            else ()
        )
        for how, count, pool in (
            (self.skewed, first, shuffled_rows[:cut]),
            (self.iid, clients - first, shuffled_rows[cut:]),
        ):
            if count:
                inner, inner_notes = how(labels[pool], count, rng)
                parts += [pool[part] for part in inner]
                notes += inner_notes
        return parts, notes


def _raise_to_minimum(parts: Parts, minimum: int, rng: np.random.Generator) -> tuple[Parts, Notes]:
    """Moves random samples from the largest clients to those below the minimum."""
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
            images = rng.permutation(parts[giver])
            parts[client], parts[giver] = (
                np.concatenate([parts[client], images[:count]]),
                images[count:],
            )
            sizes[client], sizes[giver] = sizes[client] + count, sizes[giver] - count
            givers.append(f"client {giver}")
        source = " and ".join(givers)
        notes.append(
            f"{lacking} {UNITS} moved from {source} to client {client}, to reach the minimum of "
            f"{minimum}"
        )
    return parts, tuple(notes)


def with_leftover(parts: Parts, total: int) -> tuple[Parts, Notes]:
    """Adds a note on samples that belong to no client.

    Args:
        parts: The rows of each client.
        total: The number of samples.

    Returns:
        The parts and the note, if one is needed.
    """
    rest = total - sum(len(part) for part in parts)
    return parts, (f"{rest} of {total} {UNITS} belong to no client",) if rest else ()
