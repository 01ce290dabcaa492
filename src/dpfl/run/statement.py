"""The privacy statement of a run, from its accounts: what is proven, under which assumptions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dpfl.algorithms import Algorithm
from dpfl.client.noise_placement import NoisePlacement
from dpfl.privacy import PrivacyStatement, Randomness, accountant
from dpfl.privacy.accounting.events import EventCounts, describe, encode, subtract_events
from dpfl.privacy.units import NO_UNIT
from dpfl.run.accounting.accounts import Accounts

SHARED_NOISE_ADVERSARY = (
    "any one other client, which can subtract its own share of the noise, and the public; the "
    "server, which knows who was drawn and what noise it adds for missing shares, is trusted"
)
ADVERSARY = {
    NoisePlacement.EVERY_STEP: (
        "the server, other clients and the public, who may see every update"
    ),
    NoisePlacement.CLIENT_UPDATE: (
        "the server, other clients and the public, who may see every upload"
    ),
    NoisePlacement.ROUND_SUM: (
        "other clients and the public, who see the models; the server is trusted with single "
        "updates"
    ),
    NoisePlacement.NONE: "nobody is kept out",
}


def privacy_statement(
    accounts: Accounts, randomness: Randomness, at_own_last_row: bool = False
) -> PrivacyStatement:
    """States what a run costs in privacy.

    The proven epsilon was fixed before training. It is the epsilon of the most that could have been
    released, inside the limits that hold, and never below the epsilon of what was released.

    Args:
        accounts: The accounts of the run.
        randomness: Where the noise came from.
        at_own_last_row: Whether to leave out what the ledgers gained after this run's own last row.

    Returns:
        The statement for the client (or the federation) with the largest figures.
    """
    terms, algorithm = accounts.terms, accounts.algorithm
    if not algorithm.has_noise:
        return _statement_without_noise(accounts)
    delta, epsilon = terms.budget.delta, accountant(terms.accountant).epsilon
    totals = accounts.totals(at_own_last_row)
    used_epsilons = [epsilon(total.releases, delta) for total in totals]
    proven_epsilons = [
        max(epsilon_used, min(epsilon(total.possible, delta), total.ceiling))
        for epsilon_used, total in zip(used_epsilons, totals, strict=True)
    ]
    by_owner = list(zip(accounts.algorithms, totals, strict=True))
    stated_events = [
        _stated_events(accounts, own_algorithm, total.releases) for own_algorithm, total in by_owner
    ]
    claimed_epsilons = [
        own_algorithm.claim.epsilon(events, delta)
        for own_algorithm, events in zip(accounts.algorithms, stated_events, strict=True)
    ]
    names = terms.owners if algorithm.ledger_per_client else ["every client"]
    longest = max(stated_events, key=lambda events: sum(events.values()))
    return PrivacyStatement(
        unit=algorithm.unit,
        neighbours=accounts.neighbours,
        delta=delta,
        adversary=_adversary(algorithm),
        accountant=terms.accountant,
        proven=max(proven_epsilons),
        unaccounted=algorithm.leaks,
        claimed=None
        if None in claimed_epsilons
        else max(figure for figure in claimed_epsilons if figure is not None),
        claim=algorithm.claim.text,
        per_client=dict(zip(names, proven_epsilons, strict=True)),
        releases=_largest_counts([total.releases for total in totals]),
        stated={encode(event): count for event, count in longest.items()},
        assumptions=tuple(_assumptions(accounts, randomness)),
        used=max(used_epsilons),
        most=_largest_counts([total.possible for total in totals]),
        noise=algorithm.noise,
        queries=algorithm.queries,
        warnings=(*terms.warnings, *_no_limit(accounts)),
    )


def _statement_without_noise(accounts: Accounts) -> PrivacyStatement:
    return PrivacyStatement(
        unit=NO_UNIT,
        neighbours="none",
        delta=accounts.terms.budget.delta,
        adversary=ADVERSARY[NoisePlacement.NONE],
        accountant="none",
        proven=math.inf,
        claimed=None,
        claim=accounts.algorithm.claim.text,
        unaccounted=("every client's update, without noise",),
        noise=accounts.algorithm.noise,
    )


def _adversary(algorithm: Algorithm) -> str:
    if algorithm.noise_shares is not None:
        return algorithm.noise_shares.adversary
    sharers = algorithm.clients.shared_by
    return SHARED_NOISE_ADVERSARY if sharers else ADVERSARY[algorithm.placement]


def _no_limit(accounts: Accounts) -> tuple[str, ...]:
    algorithm = accounts.algorithm
    has_limit = accounts.terms.budget.epsilon is not None or algorithm.variant == "published"
    if has_limit or not algorithm.steps.adaptive:
        return ()
    return (
        "tau follows what is released, so proven is for all steps that could have been made; "
        "set budget.epsilon.",
    )


def _stated_events(accounts: Accounts, algorithm: Algorithm, releases: EventCounts) -> EventCounts:
    """Lists the releases as the paper counts them. What the paper leaves out costs nothing
    there.
    """
    in_rounds = subtract_events(releases, accounts.algorithm.query_spending)
    if accounts.algorithm.schedule is not None:
        return in_rounds
    population = accounts.terms.population
    count = in_rounds.get(algorithm.event(population), 0)
    return {algorithm.stated_event(population): count}


def _assumptions(accounts: Accounts, randomness: Randomness) -> Iterator[str]:
    terms, algorithm = accounts.terms, accounts.algorithm
    yield "the sizes of the clients, the settings and the test set are public"
    if terms.over_nodes:
        yield (
            "every release that was ordered is counted once; what a node spent, its own signed "
            "statement says"
        )
    if algorithm.trusts_server and algorithm.clients.sampling.needs_secrecy:
        yield (
            "a client knows whether it was drawn into a cohort itself; only the server learns "
            "who else was, and how many"
        )
    yield from _sharing_assumptions(algorithm, terms.over_nodes)
    if terms.arithmetic:
        yield f"float arithmetic is {terms.arithmetic}"
    if terms.budget.seconds is not None and not algorithm.steps.adaptive:
        yield "when the clock ends the run does not depend on the data"
    if randomness.repeatable:
        yield (
            "nobody knows the seed that the noise came from: whoever does can take the noise "
            "away; with real data set "
            "privacy.entropy = 'system'"
        )


def _sharing_assumptions(algorithm: Algorithm, over_nodes: bool) -> Iterator[str]:
    """Lists the assumptions that clients which share the noise do not collude."""
    shares, noise = algorithm.clients.shared_by, algorithm.clients.noise
    if shares and noise:
        yield (
            "clients do not add up what they know: of t together, only the other shares of the "
            "noise are unknown"
        )
        alone = noise.noise_multiplier / math.sqrt(shares)
        yield f"secure aggregation: a single upload has a noise multiplier of {alone:.3g} only"
    if not algorithm.noise_shares:
        return
    yield (
        "secure aggregation: more colluders, or a server that sees single clients, find a "
        "share of the noise only"
    )
    yield "who answers, and how fast, does not depend on the data"
    if over_nodes:
        yield (
            "each node's owner has the keys of those whom it sums with from their owners, "
            "not from the server"
        )
    if algorithm.weights.query:
        yield (
            "the label shares that weights are made of are each client's own, seen with "
            "all of their noise"
        )


def _largest_counts(totals: Sequence[EventCounts]) -> dict[str, int]:
    """Finds for each kind of release the largest count of any one owner."""
    counts: dict[str, int] = {}
    for events in totals:
        for event, count in events.items():
            text = describe(event)
            counts[text] = max(count, counts.get(text, 0))
    return counts
