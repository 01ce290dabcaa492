"""Finds values that differ between neighbours although nothing noisy does.

Two runs on neighbouring data are coupled: the noise of every release makes up for the data, so that
the noisy values are the same in both. What a guarantee covers follows from these values alone. So
everything else that the adversary sees (tau, weights, clip norms, answers, divisors, raw values)
must be the same too, bit for bit. If a value is not, and has no noise of its own, no epsilon
holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from dpfl.algorithms import Algorithm
from dpfl.audit.sums import clients_for
from dpfl.audit.test_bed import ObservedRound, TestBed, linear, play
from dpfl.client.task import ClientReply
from dpfl.privacy import All, Keyed, Release

NOISE_PURPOSES = (
    "sample noise",
    "upload noise",
    "client noise",
    "server noise",
    "share of the noise",
)
"""Purposes for which the noise of the releases is drawn. All other purposes have keys of their own.
"""

SHOWN_TO_ALL = ("vector", "tau", "samples", "clients")
"""Parts of the server's state that other clients see as well."""

RELEASES = ("samples", "clients")
"""Parts of the server's state that are releases, whose clip norms may change."""

SAMPLES = 10
FAR = 30.0
HIDDEN_PARTS = ("seconds", "remaining")  # the clock, and what was public before

Kind = TypeVar("Kind", bound=Release)


@dataclass(frozen=True)
class Leak:
    """A value that differs between neighbours.

    Attributes:
        what: Name of the value.
        round: Number of the round.
        one: The value in one world.
        other: The value in the other.
    """

    what: str
    round: int
    one: str
    other: str

    def __str__(self) -> str:
        return f"{self.what} (round {self.round}): {self.one} against {self.other}"


@dataclass(frozen=True)
class Probe:
    """Randomness with one key for the noise of releases and another for all else.

    Attributes:
        release_key: Key of the releases' noise.
        rest: Key of all other draws.
    """

    release_key: int
    rest: int
    repeatable = True

    def in_epoch(self, epoch: int) -> Probe:
        """Returns the same randomness for every epoch, because no ledger is used twice here.

        Args:
            epoch: How many runs used the ledger before.

        Returns:
            This probe.
        """
        return self

    def generator(self, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
        """Returns the generator of a draw.

        Args:
            purpose: What is drawn.
            round: Number of the round.
            client: Number of the client.

        Returns:
            The generator.
        """
        return Keyed(self.release_key if purpose in NOISE_PURPOSES else self.rest).generator(
            purpose, round, client
        )


class Coupling:
    """Releases whose noise makes up for the data, so that they release their noise alone.

    It counts how often they are used.
    """

    def __init__(self) -> None:
        self.releases = 0

    def of(self, release: Kind) -> Kind:
        """Couples a release.

        Args:
            release: The release.

        Returns:
            The same release; its own code draws the noise.
        """
        parent, coupling = type(release), self

        def add_noise(self: Release, total: Tensor, *rest: Any, **options: Any) -> Tensor:
            if not self.has_noise:
                return parent.add_noise(self, total, *rest, **options)
            coupling.releases += 1
            return parent.add_noise(self, torch.zeros_like(total), *rest, **options)

        def add_precomputed_noise(self: Release, total: Tensor, noise: Tensor) -> Tensor:
            return parent.add_precomputed_noise(self, torch.zeros_like(total), noise)

        def into_sum(self: Release, vector: Tensor, *rest: Any) -> Tensor:
            coupling.releases += 1
            return torch.zeros_like(parent.into_sum(self, vector, *rest))

        kind = type(
            parent.__name__,
            (parent,),
            {
                "add_noise": add_noise,
                "add_precomputed_noise": add_precomputed_noise,
                "into_sum": into_sum,
                "event_is_proven": parent.event_is_proven,  # its law is the parent's, moved
            },
        )
        return kind(**{part.name: getattr(release, part.name) for part in fields(release)})


def with_releases(algorithm: Algorithm, change: Callable[[Any], Any]) -> Algorithm:
    """Changes every release of an algorithm.

    Args:
        algorithm: The algorithm.
        change: Changes one release.

    Returns:
        The algorithm.
    """
    samples, uploads = (
        change(release) if release else None for release in (algorithm.samples, algorithm.updates)
    )
    return replace(algorithm, samples=samples, updates=uploads, clients=change(algorithm.clients))


def with_everyone(algorithm: Algorithm) -> Algorithm:
    """Makes every unit take part, every time or in its turn, so that neighbours always differ.

    Args:
        algorithm: The algorithm.

    Returns:
        The algorithm. Its uploads are stated to move by all of their clip norm.
    """

    updates = algorithm.updates
    if updates:
        bound = max(updates.sensitivity_bound, updates.diameter)
        updates = replace(updates, sensitivity_bound=bound)
    return replace(
        algorithm,
        samples=_with_every_unit(algorithm.samples) if algorithm.samples else None,
        updates=updates,
        clients=_with_every_unit(algorithm.clients),
    )


def _with_every_unit(release: Release) -> Release:
    return replace(release, sampling=All()) if release.sampling.by_chance else release


def neighbours(algorithm: Algorithm, seed: int = 0) -> tuple[TestBed, TestBed]:
    """Builds two neighbouring test beds.

    There are three clients, or as many as a secure sum needs. The first has one sample more or
    less; if whole clients are protected, it has blank samples or others. The difference is large,
    so that it is clipped and cannot be overlooked.

    Args:
        algorithm: The algorithm.
        seed: Seed of the data.

    Returns:
        The two test beds.
    """
    rng = torch.Generator().manual_seed(seed)
    count = 5 * SAMPLES
    x, y = torch.randn(count, 1, 4, 4, generator=rng), torch.randint(0, 3, (count,), generator=rng)
    rows = torch.arange(count).split(SAMPLES)
    whole = algorithm.protects_client
    x[rows[0][0]] *= FAR
    x[rows[1]] *= FAR
    if whole:
        x[rows[0]] = 0
    public = (rows[4],) if algorithm.asks_public_clips else ()
    first = (rows[0], rows[1]) if whole else (rows[0], rows[0][1:])
    others = [rows[2 + number % 2] for number in range(clients_for(algorithm.noise_shares, 3) - 1)]
    sizes = (SAMPLES,) * (1 + len(others))
    test_beds = [
        TestBed(linear(16, 3), x, y, 3, (own_rows, *others), sizes, public) for own_rows in first
    ]
    return test_beds[0], test_beds[1]


def leaks(algorithm: Algorithm, rounds: int = 4, seed: int = 0) -> list[Leak] | None:
    """Finds every value that tells neighbours apart without noise.

    Args:
        algorithm: The algorithm, with its noise.
        rounds: Number of rounds.
        seed: Seed of data and draws.

    Returns:
        The leaks; None if the coupling met no release, so that nothing can be said.
    """
    coupling = Coupling()
    coupled_algorithm = with_releases(with_everyone(algorithm), coupling.of)
    one, other = neighbours(algorithm, seed)
    first, again, second = (
        _views(algorithm, play(coupled_algorithm, test_bed, probe, rounds))
        for test_bed, probe in (
            (one, Probe(seed, seed)),
            (one, Probe(seed, seed + 1)),
            (other, Probe(seed, seed)),
        )
    )
    if algorithm.has_noise and not coupling.releases:
        return None
    violations: dict[str, Leak] = {}
    for (round, name), value in first.items():
        differs = not _same(value, second.get((round, name)))
        exact = _same(value, again.get((round, name)))
        if differs and exact and name not in violations:
            violations[name] = Leak(name, round, *_as_text(value, second.get((round, name))))
    return _first(list(violations.values()))


def _first(violations: list[Leak]) -> list[Leak]:
    """Keeps leaks of the earliest leaking round, and tau; later ones follow from them."""
    start = min((leak.round for leak in violations), default=0)
    causes = [leak for leak in violations if leak.what not in ("vector", "velocity")] or violations
    return [leak for leak in causes if leak.round == start or leak.what == "tau"]


def _views(algorithm: Algorithm, rounds: list[ObservedRound]) -> dict[tuple[int, str], Any]:
    """Lists what the adversary sees, by round. A server sees its own state and the replies, except
    for the numbers that a secure sum hides. Others, where the server is trusted, see models and
    settings.
    """
    views: dict[tuple[int, str], Any] = {}
    for number, observed_round in enumerate(rounds, start=1):
        if not algorithm.trusts_server:
            for replies in observed_round.replies:
                values = [(name, value) for reply in replies for name, value in _reply(reply)]
                views |= {
                    (number, f"{name}, again" if (number, name) in views else name): value
                    for name, value in values
                }
        for part in fields(observed_round.state):
            visible = (
                part.name in SHOWN_TO_ALL
                if algorithm.trusts_server
                else part.name not in HIDDEN_PARTS
            )
            if visible:
                views |= {
                    (number, name): value
                    for name, value in _state_values(
                        part.name, getattr(observed_round.state, part.name)
                    )
                }
    return views


def _state_values(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Lists the state's values; for a release only its clip norm."""
    if name in RELEASES and value is not None:
        yield f"clip level of {name}", value.clip.clip_norm
    else:
        yield from _flat(name, value)


def _reply(reply: ClientReply) -> Iterator[tuple[str, Any]]:
    for part in fields(reply):
        if part.name == "numbers":
            continue
        yield from _flat(f"{part.name} of client {reply.client}", getattr(reply, part.name))


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{name}: {key}", item)
    elif is_dataclass(value) and not isinstance(value, type):
        yield name, repr(value)
    else:
        yield name, value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor | np.ndarray) and isinstance(other, Tensor | np.ndarray):
        return np.array_equal(np.asarray(one), np.asarray(other), equal_nan=True)
    return type(one) is type(other) and bool(one == other)


def _as_text(one: Any, other: Any) -> tuple[str, str]:
    """Writes both values in a few digits; for long values the entry where they differ most."""
    if np.shape(one) != np.shape(other) or isinstance(one, str):
        return str(one)[:40], str(other)[:40]
    flat = [np.asarray(value, dtype=np.float64).ravel() for value in (one, other)]
    place = int(np.argmax(np.abs(flat[0] - flat[1])))
    return f"{flat[0][place]:.6g}", f"{flat[1][place]:.6g}"
