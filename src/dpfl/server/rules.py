"""Rules about parts that are sound by themselves and not sound together.

An `Algorithm` is composed of parts that anybody can exchange. Many compositions have no proof:
noise at two places, a clip that adapts where it must be fixed, weights that follow from private
data without a release. `check` runs when an algorithm is built, so such a composition never starts:

    >>> replace(dp_fedavg(), samples=Release(Poisson(0.01), Flat(1.0), Gaussian(1.1)))
    DpflError: Noise on samples, uploads and clients at once has no single unit; choose one of them.

A rule is a pair: a function that is true of an algorithm which breaks the rule, and the sentence of
the refusal. The rules are tables, and the first broken rule is reported:

- `RULES` holds for every algorithm: its noise, steps, queries, schedule, local training, secure
  sums, and leaks.
- `PERSONS` must hold as well before an algorithm protects persons in the place of samples
  (`Algorithm.for_unit`), `SECURE_SUMS` before its clients share the noise, and `SECURE_NOISE`
  before its noise is drawn securely.

A rule is here only if it needs two parts or more. What one part can know by itself, it refuses in
its own file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from dpfl.client.noise_placement import NoisePlacement, PlacedRelease
from dpfl.client.objectives import CrossEntropy
from dpfl.client.task import exceeds_update_noise
from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import REPLACE
from dpfl.privacy.mechanisms.release import Release
from dpfl.privacy.mechanisms.sampling import All
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
    for broken, sentence in RULES if rules is None else rules:
        if broken(algorithm):
            raise DpflError(sentence.format(name=algorithm.name, leaks="; ".join(algorithm.leaks)))


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
        or a.clients.clip.adapts_to == "raw"
    )


NOISE: tuple[Rule, ...] = (
    (
        lambda a: a.sample_unit not in SAMPLE_UNITS,
        "A unit inside a client is a sample or a person.",
    ),
    (
        lambda a: any(not type(release).__module__.startswith("dpfl.") for release in _releases(a)),
        "A release of a kind of its own may count other noise than it adds; compose it of a "
        "sampling, a clip and a noise.",
    ),
    (
        lambda a: len(PlacedRelease.list_all(a.samples, a.updates, a.clients)) > 1,
        "Noise on samples, uploads and clients at once has no single unit; choose one of them.",
    ),
    (
        lambda a: (
            a.updates and exceeds_update_noise(a.updates, a.local, a.samples, a.steps.total(1))
        ),
        "Nothing bounds how far one sample moves this upload as its noise needs it: clip the "
        "gradients of plain SGD steps on "
        "batches of a fixed size, or give moves of twice the upload's clip.",
    ),
    (
        lambda a: a.clients.private and not a.clients.sampling.allows_self_knowledge,
        "A client knows whether it was drawn, which a draw of samples does not count; draw clients "
        "by FixedCohort.",
    ),
    (
        lambda a: (
            (a.updates and a.updates.clip.adapts_to)
            or (a.samples and a.samples.clip.adapts_to not in ("", "public"))
        ),
        "A clip that adapts to clients, round by round, is for the sum of a round; give steps and "
        "uploads a fixed one.",
    ),
    (
        lambda a: any(release.whole_run or release.shared_by for release in _at_clients(a)),
        "Noise that clients share, or that later rounds take back, is for the sum of a round.",
    ),
    (
        lambda a: a.samples and a.samples.sampling.depends_on_population,
        "A rate that follows from how many samples a client has changes for all of them with one "
        "more; give batches a rate.",
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
        "Adaptive steps go by the clients' noisy gradients; use them with noise on samples.",
    ),
    (
        lambda a: a.steps.adaptive and not a.local.optimiser.linear,
        "Adaptive steps read gradients off the updates, which works for plain SGD only; set "
        "optimiser = 'sgd'.",
    ),
    (
        lambda a: a.steps.extra not in (0, 1),
        "A round has one paid slope beside its steps, or none; extra is 0 or 1.",
    ),
    (
        lambda a: a.steps.extra and not (a.samples and a.samples.clip.bounds in ("norm", "layers")),
        "A slope that is paid for has a proof for flat and per-layer clips; use one of them.",
    ),
    (
        lambda a: a.steps.adaptive and a.samples and a.samples.uncalibrated,
        "Adaptive steps spend a budget that the noise determines; give a noise_multiplier, for "
        "example 1.1.",
    ),
)

SURVEYS: tuple[Rule, ...] = (
    (
        lambda a: (
            a.weights.query and a.weights.query.trusted != (a.placement is NoisePlacement.ROUND_SUM)
        ),
        "Label histograms go to a trusted server where the sum of a round has the noise, and need "
        "their own elsewhere.",
    ),
    (
        lambda a: a.weights.query and not a.weights.query.trusted and a.protects_client,
        "The noise of a label histogram hides one sample and not a whole client; weigh clients by "
        "size or uniformly.",
    ),
    (
        lambda a: a.centre and a.placement is not NoisePlacement.EVERY_STEP,
        "The mean of the samples has noise for one sample; ask for it where steps have that noise, "
        "too.",
    ),
    (
        lambda a: a.columns and a.placement not in (NoisePlacement.EVERY_STEP, NoisePlacement.NONE),
        "Scales that are paid for have noise for one sample; ask for them where steps have that "
        "noise, too, or declare them.",
    ),
    (
        lambda a: a.metric and a.protects_client,
        "A private metric has noise for one sample; ask for it where noise is for one sample, too, "
        "or give a public test set.",
    ),
    (
        lambda a: _asked_of_samples(a) and a.release and a.release.neighbours == REPLACE,
        "What clients are asked once has noise for one sample more or less, and not for one "
        "replaced; draw batches by Poisson.",
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
        lambda a: a.samples and a.local.objective != CrossEntropy(),
        "Private steps clip the gradients of plain cross-entropy; use another objective with noise "
        "on uploads, on the sum of a "
        "round, or nowhere.",
    ),
    (
        lambda a: (
            a.local.objective.needs_last and (a.controls or a.placement is NoisePlacement.ROUND_SUM)
        ),
        "A client's last model is read off its single update, in the place of a control; use this "
        "objective without controls, "
        "and with noise at the clients or nowhere.",
    ),
)

SUMS: tuple[Rule, ...] = (
    (
        lambda a: a.noise_shares and a.variant != "sound",
        "A secure sum is for sound systems; set algorithm.variant = 'sound', or "
        "privacy.aggregation = 'plain'.",
    ),
    (
        lambda a: (
            a.noise_shares
            and a.placement is NoisePlacement.EVERY_STEP
            and (a.steps.adaptive or a.steps.total(1) != 1)
        ),
        "In a secure sum a client's noise is a share only, and a second local step would follow "
        "values that carry no more than "
        "that, for which there is no proof here (Heikkila, TMLR 2025, arXiv 2407.19286, treats "
        "such steps): set algorithm.tau "
        "= 1, or algorithm.most_tau = 1 where a system chooses tau itself.",
    ),
    (
        lambda a: (
            a.noise_shares
            and a.placement is NoisePlacement.EVERY_STEP
            and a.clients.sampling != All()
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
        "What clients are asked beside a sum of their updates goes to a trusted server, of whom a "
        "secure sum has none: declare "
        "scales, weigh uniformly, or set privacy.aggregation = 'plain'.",
    ),
)


LEAKS: tuple[Rule, ...] = (
    (
        lambda a: _shown_exactly(a) != bool(a.leaks),
        "What a system releases without noise must be named in its leaks, and nothing else.",
    ),
    (
        lambda a: a.variant == "sound" and a.leaks,
        "A sound system releases nothing without noise, but this one does: {leaks}.",
    ),
)

RULES = (*NOISE, *STEPS, *SURVEYS, *SCHEDULES, *LOCAL, *SUMS, *LEAKS)
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
        lambda a: a.variant == "published",
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
