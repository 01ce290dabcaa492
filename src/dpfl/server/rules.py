"""Rules about parts that are sound by themselves and not sound together.

An `Algorithm` is composed of parts that anybody can exchange. Many compositions have no proof:
noise at two places, a clip that adapts where it must be fixed, weights that follow from private
data without a release. `check` runs when an algorithm is built, so such a composition never starts:

    >>> step = Release(Poisson(0.01), Flat(1.0), Gaussian(1.1))
    >>> replace(dp_fedavg(noise_multiplier=1.0), samples=step)
    Traceback (most recent call last):
    dpfl.errors.DpflError: Noise on samples, updates and clients at once has no single unit; ...

A rule is a pair: a function that is true of an algorithm which breaks the rule, and the sentence of
the refusal. The rules are tables, and the first broken rule is reported:

- `RULES` holds for every algorithm: its noise, steps, queries, schedule, local training, secure
  sums, and leaks.
- `PERSONS` must hold as well before an algorithm protects persons in the place of samples
  (`Algorithm.for_unit`), `SECURE_SUMS` before its clients share the noise, and `SECURE_NOISE`
  before its noise is drawn securely, and `NODES` before it is proposed to nodes.

To add a rule, add such a pair to the table that it belongs to, and a composition that breaks it to
`tests/server/test_rules.py`. A rule is here only if it needs two parts or more. What one part can
know by itself, it refuses in its own file. What the parts of one release are worth together is in
`privacy/mechanisms/release_checks.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from dpfl.client.noise_placement import NoisePlacement, PlacedRelease
from dpfl.client.task import exceeds_update_noise
from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import REPLACE
from dpfl.privacy.mechanisms.release import Release
from dpfl.privacy.units import SAMPLE_UNITS

if TYPE_CHECKING:
    from dpfl.server.algorithm import Algorithm

Rule = tuple[Callable[["Algorithm"], object], str]
"""A function that is true of an algorithm which breaks the rule, and the sentence of the refusal.
"""


def check(algorithm: Algorithm, rules: Sequence[Rule] | None = None) -> None:
    """Refuses a composition that has no proof.

    Args:
        algorithm: The composition.
        rules: The rules to hold; those of every algorithm by default.

    Raises:
        DpflError: The sentence of the first rule that is broken.
    """
    for breaks, sentence in RULES if rules is None else rules:
        if breaks(algorithm):
            raise DpflError(sentence.format(name=algorithm.name, leaks="; ".join(algorithm.leaks)))


def _depends_on_size(a: Algorithm) -> bool:
    """Says whether what a client pays for a release depends on its number of samples."""
    in_clients = a.release is not None and a.placement is not NoisePlacement.ROUND_SUM
    return (in_clients and a.event(2) != a.event(3)) or a.for_client_size(2) is not a


def _at_clients(a: Algorithm) -> Iterable[Release]:
    return (release for release in (a.samples, a.updates) if release)


def _releases(a: Algorithm) -> Iterable[Release]:
    return (*_at_clients(a), a.clients)


def _asked_of_samples(a: Algorithm) -> bool:
    query = a.weights.query
    return bool(a.centre or a.columns or a.metric or (query and not query.trusted))


def _shown_exactly(a: Algorithm) -> bool:
    query = a.weights.query
    return bool(
        a.steps.asks_raw
        or (a.samples and a.samples.divide_by_drawn)
        or (query and query.exact and not query.trusted)
        or a.clients.clip.follows_raw
    )


NOISE: tuple[Rule, ...] = (
    (
        lambda a: a.sample_unit not in SAMPLE_UNITS,
        "A unit inside a client is a sample or a person.",
    ),
    (
        lambda a: not all(release.event_is_proven for release in _releases(a)),
        "A release of a class of your own may count noise that it does not add; compose a Release "
        "of a sampling, a clip and a noise instead.",
    ),
    (
        lambda a: len(PlacedRelease.list_all(a.samples, a.updates, a.clients)) > 1,
        "Noise on samples, updates and clients at once has no single unit; choose one of them.",
    ),
    (
        lambda a: (
            a.updates and exceeds_update_noise(a.updates, a.local, a.samples, a.steps.total(1))
        ),
        "The noise of this update covers less than one sample can change: clip the gradients of "
        "plain SGD steps on batches of a fixed size, or set sensitivity_bound to twice the "
        "update's clip norm.",
    ),
    (
        lambda a: a.clients.has_noise and not a.clients.sampling.allows_self_knowledge,
        "A client knows whether it was drawn, and a sampling of samples does not account for that; "
        "draw clients with FixedCohort.",
    ),
    (
        lambda a: (
            (a.updates and a.updates.clip.adapts_to)
            or (a.samples and a.samples.clip.adapts_to and not a.samples.clip.follows_public)
        ),
        "A clip norm that adapts to the clients works only for the sum of a round; give steps and "
        "updates a fixed clip norm.",
    ),
    (
        lambda a: any(release.whole_run or release.shared_by for release in _at_clients(a)),
        "Noise that clients share, or that later rounds cancel, belongs on the sum of a round; set "
        "the release as `clients` of the algorithm.",
    ),
    (
        lambda a: a.samples and a.samples.sampling.depends_on_population,
        "A sampling rate that depends on a client's number of samples changes for all of them when "
        "one is added; set a fixed sampling_rate.",
    ),
    (
        lambda a: a.clients.divide_by_drawn,
        "The sum of a round is divided by the expected cohort; only batches can be divided as "
        "drawn.",
    ),
    (
        lambda a: a.clients.shared_by and not a.weights.equal,
        "Noise shared over clients needs uniform weights; weigh by size only with noise at the "
        "server.",
    ),
)

STEPS: tuple[Rule, ...] = (
    (
        lambda a: a.steps.adaptive and a.placement is not NoisePlacement.EVERY_STEP,
        "Adaptive steps follow the clients' noisy gradients; use them with noise in every step.",
    ),
    (
        lambda a: a.steps.adaptive and not a.local.optimiser.linear,
        "Adaptive steps read gradients off the updates, which works for plain SGD only; set "
        "optimiser = 'sgd'.",
    ),
    (
        lambda a: a.steps.paid_slopes not in (0, 1),
        "A step policy can pay for at most one slope per round; set paid_slopes to 0 or 1.",
    ),
    (
        lambda a: a.steps.paid_slopes and not (a.samples and a.samples.clip.bounds_vector),
        "A slope that is paid for has a proof for flat and per-layer clips; use one of them.",
    ),
    (
        lambda a: a.steps.reads_released and a.samples and a.samples.divisor is not None,
        "Steps that follow noisy sums need sums that are divided by q n, and a divisor is one "
        "number for all: leave the divisor out, or estimate mu in another way.",
    ),
    (
        lambda a: a.steps.adaptive and a.samples and a.samples.uncalibrated,
        "With adaptive steps the noise cannot be planned; set noise_multiplier, for example to "
        "1.1.",
    ),
)

QUERY_RULES: tuple[Rule, ...] = (
    (
        lambda a: (
            a.weights.query and a.weights.query.trusted != (a.placement is NoisePlacement.ROUND_SUM)
        ),
        "Label histograms need no noise if the server adds the noise to the sum of a round, and "
        "need their own noise otherwise; set `trusted` of the weights' query accordingly.",
    ),
    (
        lambda a: a.weights.query and not a.weights.query.trusted and a.protects_client,
        "The noise of a label histogram hides one sample and not a whole client; weigh clients by "
        "size or uniformly.",
    ),
    (
        lambda a: a.centre and a.placement is not NoisePlacement.EVERY_STEP,
        "The released mean protects one sample; use it in systems that add noise in every step, or "
        "leave it out.",
    ),
    (
        lambda a: a.columns and a.placement not in (NoisePlacement.EVERY_STEP, NoisePlacement.NONE),
        "Paid scales protect one sample; use them in systems that add noise in every step, or "
        "declare the scales.",
    ),
    (
        lambda a: a.metric and a.protects_client,
        "A private metric protects one sample; use it in systems that protect samples, or give a "
        "public test set.",
    ),
    (
        lambda a: _asked_of_samples(a) and a.release and a.release.neighbours == REPLACE,
        "Private queries are proven for adding or removing one sample, and this system is proven "
        "for replacing one; draw batches by Poisson sampling.",
    ),
)

SCHEDULES: tuple[Rule, ...] = (
    (
        lambda a: (
            a.schedule
            and (
                a.placement not in (NoisePlacement.EVERY_STEP, NoisePlacement.ROUND_SUM)
                or a.release is None
                or a.release.clip.bounds != "norm"
                or a.release.clip.adapts_to
                or a.release.whole_run
                or a.steps.adaptive
            )
        ),
        "A schedule needs noise in steps or on the sum of a round, a flat clip and a fixed tau.",
    ),
    (
        lambda a: (
            a.schedule and a.schedule.follows and a.placement is not NoisePlacement.EVERY_STEP
        ),
        "A clip that follows the clients' noisy gradients needs noise in their steps.",
    ),
)

LOCAL: tuple[Rule, ...] = (
    (
        lambda a: (
            a.controls and (a.placement is NoisePlacement.ROUND_SUM or not a.local.optimiser.linear)
        ),
        "Control variates are read off single updates of plain SGD; use them with noise at the "
        "clients.",
    ),
    (
        lambda a: a.samples and not a.local.objective.task_loss_alone,
        "Private steps clip the gradients of plain cross-entropy; use another objective with noise "
        "on uploads, on the sum of a "
        "round, or nowhere.",
    ),
    (
        lambda a: (
            a.local.objective.needs_last and (a.controls or a.placement is NoisePlacement.ROUND_SUM)
        ),
        "This objective needs the last model of each client, which follows from that client's "
        "single update; use it without control variates, and with noise at the clients or nowhere.",
    ),
)

SUMS: tuple[Rule, ...] = (
    (
        lambda a: a.noise_shares and not a.sound,
        "A secure sum is for sound systems; set algorithm.variant = 'sound', or "
        "privacy.aggregation = 'plain'.",
    ),
    (
        lambda a: (
            a.noise_shares
            and a.placement is NoisePlacement.EVERY_STEP
            and (a.steps.adaptive or a.steps.total(1) != 1)
        ),
        "In a secure sum each client adds only a share of the noise. A second local step would "
        "depend on values with no more noise than that, and there is no proof for it here "
        "(Heikkila, TMLR 2025, arXiv 2407.19286, treats such steps): set algorithm.tau = 1, or "
        "algorithm.most_tau = 1 if the system chooses tau.",
    ),
    (
        lambda a: (
            a.noise_shares
            and a.placement is NoisePlacement.EVERY_STEP
            and not a.clients.sampling.takes_all
        ),
        "In a secure sum of steps all clients take part; leave the cohort out.",
    ),
    (
        lambda a: (
            a.noise_shares
            and a.placement is NoisePlacement.EVERY_STEP
            and a.local.optimiser.calibrated
            and not a.local.optimiser.linear
        ),
        "In a secure sum the server sees the sum of all gradients only, so clients take a plain "
        "step: set optimiser = 'sgd'.",
    ),
    (
        lambda a: a.noise_shares and (a.client_state or (a.schedule and a.schedule.follows)),
        "Controls, last models and schedules that follow gradients are read off single updates, "
        "which a secure sum hides; set "
        "privacy.aggregation = 'plain'.",
    ),
    (
        lambda a: (
            a.noise_shares
            and a.placement is NoisePlacement.ROUND_SUM
            and not (a.weights.equal and a.clients.sampling.independent)
        ),
        "In a secure sum of updates clients count alike and draw themselves, each by its own "
        "chance: set weights = 'uniform', "
        "sampling = 'poisson' or no cohort.",
    ),
    (
        lambda a: (
            a.noise_shares
            and a.placement is NoisePlacement.ROUND_SUM
            and (a.weights.query or a.columns)
        ),
        "Queries beside a sum of updates need a trusted server, and a secure sum has none: declare "
        "scales, weigh uniformly, or set privacy.aggregation = 'plain'.",
    ),
)


LEAKS: tuple[Rule, ...] = (
    (
        lambda a: _shown_exactly(a) != bool(a.leaks),
        "What a system releases without noise must be named in its leaks, and nothing else.",
    ),
    (
        lambda a: a.sound and a.leaks,
        "A sound system releases nothing without noise, but this one does: {leaks}.",
    ),
)

RULES = (*NOISE, *STEPS, *QUERY_RULES, *SCHEDULES, *LOCAL, *SUMS, *LEAKS)
"""Rules that hold for every algorithm."""

PERSONS: tuple[Rule, ...] = (
    (
        lambda a: a.protects_client,
        "{name} protects whole clients, and so every person there: leave privacy.unit out.",
    ),
    (
        lambda a: not a.has_noise,
        "{name} adds no noise, so it protects nobody: leave privacy.unit out, or use another "
        "system.",
    ),
    (
        lambda a: not a.sound,
        "What is published of {name} is for samples: set algorithm.variant = 'sound' for persons.",
    ),
)
"""Rules for an algorithm that is to protect persons in the place of samples."""

SECURE_SUMS: tuple[Rule, ...] = (
    (
        lambda a: a.placement not in (NoisePlacement.EVERY_STEP, NoisePlacement.ROUND_SUM),
        "{name} has no noise in single steps or on the sum of a round, which clients could share; "
        "set privacy.aggregation = 'plain'.",
    ),
)
"""Rules for an algorithm whose clients are to share the noise. Afterwards `SUMS` must hold, too."""

NODES: tuple[Rule, ...] = (
    (
        lambda a: a.clients.clip.adapts_to == "raw",
        "A clip from a run without privacy is for simulations: set algorithm.variant = 'sound'.",
    ),
    (
        lambda a: a.ledger_per_client and _depends_on_size(a),
        "The cost of a release of {name} depends on how many samples a node has, which is not "
        "known before it joins: use a system with a sampling_rate.",
    ),
    (
        lambda a: a.clients.shared_by,
        "{name} with noise = 'clients' protects the nodes only if every node adds its share, which "
        "nobody can verify: set algorithm.noise = 'server'.",
    ),
)
"""Rules for an algorithm whose clients are nodes: noise that they share without a secure sum counts
only if every node adds its share, and a node that lies adds none."""

SECURE_NOISE: tuple[Rule, ...] = (
    (
        lambda a: a.schedule and a.schedule.follows,
        "Noise that follows what was released has no secure form; set privacy.noise = 'plain'.",
    ),
    (
        lambda a: not a.has_noise,
        "{name} adds no noise; leave privacy.noise out.",
    ),
)
"""Rules for an algorithm whose noise is to be secure."""
