"""From words and parts to a run that is ready to start, or to go on."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from dpfl.algorithms import Algorithm
from dpfl.client.context import ClientContext
from dpfl.client.objectives import CrossEntropy, final_layer
from dpfl.codec import FORMAT, encode
from dpfl.data import Federation
from dpfl.data.held_out import HeldOutSplit, held_out
from dpfl.data.names import client_names
from dpfl.data.tables.schema import Schema
from dpfl.engines import Engine, local_engine
from dpfl.engines.remote import RemoteEngine
from dpfl.errors import DpflError
from dpfl.import_path import refuse_unreachable
from dpfl.models import Buildable, FlatModel, refuse_batch_statistics
from dpfl.models.build import built
from dpfl.models.columns import on_columns
from dpfl.models.flat import CENTRE, evaluating
from dpfl.planning.feature_counts import rows_of
from dpfl.planning.paid_queries import PrivateMetric, with_questions
from dpfl.planning.planner import with_planned_noise, with_planned_rate
from dpfl.privacy import Budget, Keyed, Limit, Randomness, SystemEntropy
from dpfl.privacy.accounting.accountant import default_accountant, proven_accountant
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from dpfl.privacy.ledger.client_ledgers import ClientLedgers
from dpfl.run.accounts import Accounts, Meter, warnings_for
from dpfl.run.aggregation import Aggregation
from dpfl.run.algorithm_record import describe, describe_options
from dpfl.run.dry_run import check_arithmetic, rehearse
from dpfl.run.features import with_features
from dpfl.run.folder import RunFolder, code_sha256, new_path, record_id, vector_sha256, without_none
from dpfl.run.prior_spending import PriorSpending, look, owners
from dpfl.run.recorder import Progress, Recorder
from dpfl.run.update_diagnostics import UpdateDiagnostics
from dpfl.server.algorithm import SAMPLE_UNITS
from dpfl.server.coordinator import Coordinator
from dpfl.server.state import FederationFacts, RunState


class NodePool(Protocol):
    """Where clients are that are not on this machine."""

    @property
    def nonce(self) -> str:
        """What they know the run by."""

    def engine(
        self, run: str, ledgers: ClientLedgers | None, folder: RunFolder, size: int
    ) -> RemoteEngine:
        """For a model of `size` numbers; `ledgers` are for the server's own count."""

    def part(self, folder: RunFolder) -> None:
        """At the end, while they are still there: what each of them says that it spent."""


VERSIONED = ("dpfl", "torch", "numpy", "dp-accounting")


@dataclass(frozen=True)
class PreparedRun:
    """A run, ready: who coordinates, where clients run, what is kept."""

    run: str
    algorithm: Algorithm
    budget: Budget
    folder: RunFolder
    accounts: Accounts
    randomness: Randomness
    coordinator: Coordinator
    engine: Engine
    recorder: Recorder
    movement: UpdateDiagnostics
    source: Federation
    notes: tuple[str, ...]
    private: tuple[str, ...] = ()
    schema: Schema | None = None
    shape: tuple[int, ...] = ()
    """Of what the model takes, which may be features of a sample."""


def prepare(
    model: Buildable,
    federation: Federation,
    algorithm: Algorithm,
    budget: Budget,
    *,
    seed: int,
    out: Path | str | None,
    workers: int,
    accountant: str | None,
    ledger: Path | str | None,
    entropy: str,
    noise: str | None,
    evaluate_every: int | None,
    progress: Progress,
    resume: bool,
    experiment: Mapping[str, Any] | None,
    until_the_end: ExitStack | None = None,
    host: NodePool | None = None,
    metric: PrivateMetric | None = None,
    unit: str | None = None,
    aggregation: Aggregation = Aggregation(),
    arithmetic: str = "exact",
) -> PreparedRun:
    """A folder that is written to by one process alone `until_the_end`; clients on this machine, or
    where a `host` has them.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise DpflError(f"A seed is a whole number from 0 to 2^63 - 1, not {seed!r}.")
    if evaluate_every is not None and (isinstance(evaluate_every, bool) or evaluate_every < 1):
        raise DpflError(
            f"evaluate.every must be at least 1 round, not {evaluate_every!r}; leave it out for "
            "some 25 a run."
        )
    algorithm = algorithm if unit is None else algorithm.for_unit(unit)
    about = row_unit_notes(algorithm.unit, federation)
    model = on_columns(model, federation.train.features)
    algorithm = with_questions(algorithm, federation, metric, budget, accountant, host is not None)
    source, federation, asked = federation, with_features(model, federation), algorithm
    held = held_out(federation, metric.held_out if metric else 0.0, algorithm.unit)
    sizes = held.sizes
    flat = FlatModel(built(model, federation.shape, federation.task.outputs, seed), federation.task)
    algorithm = algorithm.for_model(flat.layout).for_rounds(budget.rounds, len(federation.sizes))
    algorithm = aggregation.of(algorithm, len(federation.sizes))
    if ledger and algorithm.unit == "none":
        raise DpflError(
            f"{algorithm.name} adds no noise, which no ledger can pay for: leave privacy.ledger "
            "out."
        )
    folder = _place(algorithm, out, resume)
    ledgers = Path(ledger) if ledger else folder.ledgers
    before = look(algorithm, source, ledgers, budget, accountant)
    if resume:
        before = PriorSpending.recorded(folder.experiment().get("resolved", {}))
    algorithm = with_planned_noise(
        algorithm, budget, len(federation.sizes), accountant, before.spent
    )
    algorithm = with_planned_rate(
        algorithm,
        budget,
        sizes,
        flat.layout.trainable,
        rows_of(federation.train.features, federation.task),
    )
    noise = noise or ("secure" if entropy == "system" and algorithm.unit != "none" else "plain")
    algorithm = _with_noise(algorithm, noise, entropy)
    check(algorithm, federation, budget, flat)
    check_arithmetic(arithmetic, entropy, host is not None)
    path = rehearse(model, flat, algorithm, federation.shape, federation.task, arithmetic)
    if workers > 1:
        refuse_unreachable("model", model)
    by = _accountant(algorithm, federation, accountant)

    if not resume:
        RunFolder.create(folder.path)
    if until_the_end:
        until_the_end.enter_context(folder.locked())
    record = _record(
        asked,
        algorithm,
        source,
        model,
        flat,
        budget,
        seed,
        entropy,
        noise,
        by,
        ledger,
        before,
        experiment,
    )
    record["resolved"] |= {
        "largest": max(sizes),
        "warnings": list(about) or None,
        "arithmetic": path or None,
    }
    record = {
        "run": {"nonce": host.nonce if host else secrets.token_hex(16), "started": utc_now()}
    } | record
    run = _run_id(folder, record) if resume else record_id(record)

    enforced = budget.epsilon and algorithm.unit != "none" and algorithm.variant == "sound"
    limit = Limit(budget.epsilon, budget.delta, by) if budget.epsilon and enforced else None
    warnings = (*warnings_for(algorithm.unit, len(sizes), max(sizes), budget.delta), *about)
    names, data = owners(algorithm, source)
    accounts = Accounts(
        run,
        algorithm,
        ledgers,
        sizes,
        budget.delta,
        by,
        limit,
        budget.epsilon,
        warnings,
        names=names,
        data=data,
    )
    accounts = replace(
        accounts, timed=budget.seconds is not None, ordered=host is not None, arithmetic=path
    )
    fresh = _start(accounts, budget, flat)
    randomness = _randomness(entropy, seed, accounts)
    if not resume:
        folder.refuse_held()
        folder.save_checkpoint(
            fresh
        )  # the first weights of a module of the user's own are nowhere else
        folder.write_experiment(record | {"run": {"id": run} | record["run"]})
    state = folder.load_checkpoint(fresh) if resume else fresh
    accounts.check_kept(state.paid)
    public = range(len(federation.clients), len(federation.clients) + len(federation.public))
    own = accounts.ledgers if algorithm.ledger_per_client else None
    engine: Engine
    adding = aggregation.adding(run, accounts.owners, algorithm)
    if host:
        engine = remote = host.engine(run, own, folder, flat.layout.size)
        adding = remote.add
    else:
        site = ClientContext(
            run,
            model,
            federation.task,
            federation.train.x,
            federation.train.y,
            _everyone(federation, held),
            (*sizes, *federation.counted(algorithm.unit, federation.public), *held.kept_sizes),
            randomness,
            own,
            record["hashes"]["model"],
            policy=algorithm.policy,
            public=public,
            held_out=public.stop if held.kept else None,
            unit_ids=federation.persons if algorithm.unit == "person" else None,
            rows_per_person=federation.rows_per_person,
            arithmetic=arithmetic,
        )
        engine = local_engine(site, flat.layout.size, workers)
    central = accounts.ledgers.open(0) if algorithm.trusts_server else None
    federated = FederationFacts(run, sizes, flat.layout, public, central, limit, held.kept_sizes)
    metrics = folder.metrics()
    metrics.forget_after(state.round)
    every = evaluate_every or max(1, (budget.rounds or 25) // 25)
    meter = _meter(accounts, budget, fresh, state, randomness)
    recorder = Recorder(
        folder, metrics, flat, federation.test, meter, every, progress, federation.test_persons
    )
    movement = UpdateDiagnostics(engine.run, state, federation.names, public)
    coordinator = Coordinator(
        algorithm, budget, federated, state, randomness, movement.ask, recorder.validate, adding
    )
    untested = () if federation.test else (f"there is no public test set: {_instead(metric)}",)
    notes = (
        *federation.notes,
        *before.notes,
        *untested,
        *(f"warning: {warning}" for warning in warnings),
    )
    return PreparedRun(
        run,
        algorithm,
        budget,
        folder,
        accounts,
        randomness,
        coordinator,
        engine,
        recorder,
        movement,
        source,
        notes,
        federation.private,
        federation.train.schema,
        federation.shape,
    )


def row_unit_notes(unit: str, federation: Federation) -> tuple[str, ...]:
    """What a statement for rows of a table has to say of the persons behind them."""
    if unit != "person" and federation.rows_per_person is not None:
        raise DpflError(
            "data.rows_per_person is for persons as the unit: set privacy.unit = 'person', or "
            "leave it out."
        )
    if unit == "person" or unit not in SAMPLE_UNITS:
        return ()
    if federation.persons is not None:
        return (
            "the unit is one row, and a person may have several: for all of a person's set "
            "privacy.unit = 'person'.",
        )
    if federation.train.schema is None:
        return ()
    return ("the unit is one row; nothing is known of whose rows they are.", *federation.warnings)


def _everyone(federation: Federation, held: HeldOutSplit) -> Sequence[torch.Tensor]:
    """Clients, then public clients, then what each client keeps out of training; a population stays
    described.
    """
    return (
        federation.clients
        if federation.described
        else (*held.trained, *federation.public, *held.kept)
    )


def _instead(metric: PrivateMetric | None) -> str:
    if metric is None:
        return "accuracy is not measured"
    return "a metric with noise is asked of the clients at the end, and paid for"


def check(algorithm: Algorithm, federation: Federation, budget: Budget, model: FlatModel) -> None:
    """What would fail in the first round is refused before anything is written."""
    if algorithm.unit in SAMPLE_UNITS:
        refuse_batch_statistics(model.module)
        if federation.described:
            raise DpflError(
                "Clients that are drawn may share samples, so no guarantee for samples or persons "
                "holds; use another partition."
            )
    if algorithm.ledger_per_client and federation.described:
        raise DpflError(
            "Clients that are drawn keep no ledgers; put the noise on the sum of a round, or use "
            "other clients."
        )
    if (
        algorithm.unit == "none"
        and budget.rounds is None
        and budget.bytes is None
        and budget.seconds is None
    ):
        raise DpflError(
            f"{algorithm.name} spends no epsilon, so only rounds, bytes or seconds can end it; "
            "give one of them."
        )
    if algorithm.weights.query and not federation.classes:
        raise DpflError(
            f"{algorithm.name} asks how many samples of each class a client has, but labels of the "
            "task "
            f"{federation.task.name!r} are no classes: use another system, or other weights."
        )
    if algorithm.local.objective != CrossEntropy():
        with evaluating(model.module):
            final_layer(model, federation.train.x.new_zeros(1, *federation.shape))
    _check_centre(algorithm, federation, model)
    algorithm.clients.sampling.draw(len(federation.sizes), Keyed(0).generator("check"))
    _check_batches(algorithm, federation)
    if algorithm.schedule and algorithm.schedule.follows and federation.test is None:
        raise DpflError(
            f"{algorithm.name} follows the loss on a public test set: give the data one (x_test "
            "and y_test)."
        )
    _check_noise(algorithm, federation)
    if algorithm.asks_public_clips and not federation.public:
        raise DpflError(
            "Clipping by a public median needs public clients: set data.public_clients."
        )
    if algorithm.steps.asks_public and not federation.public:
        raise DpflError("Estimates from public data need public clients: set data.public_clients.")


def _check_centre(algorithm: Algorithm, federation: Federation, model: FlatModel) -> None:
    span, size = model.layout.centre, torch.Size(federation.shape).numel()
    if algorithm.centre and span and (found := span.stop - span.start) != size:
        raise DpflError(
            f"The model's {CENTRE} has {found} numbers, but a sample has {size}: rename it, or ask "
            "for no mean."
        )


def _check_batches(algorithm: Algorithm, federation: Federation) -> None:
    batches = algorithm.samples.sampling if algorithm.samples else None
    if batches and batches.min_population > (least := min(federation.counted(algorithm.unit))):
        raise DpflError(
            f"Batches have {batches.min_population} {algorithm.sample_unit}s, but the smallest "
            f"client has {least}; lower "
            "algorithm.batch_size, "
            "or give clients more."
        )


def _check_noise(algorithm: Algorithm, federation: Federation) -> None:
    """Of every private release at its expected number of units: float32 must hold the noise beside
    the sum.
    """
    sizes = federation.counted(algorithm.unit)
    if samples := algorithm.samples:
        try:
            samples.check_not_absorbed(
                samples.sampling.expected_size(max(sizes)), samples.clip.clip_norm
            )
        except DpflError as error:
            largest = federation.names[sizes.index(max(sizes))]
            raise DpflError(
                f"{error} The largest client, {largest}, has {max(sizes)} {algorithm.sample_unit}s."
            ) from None
    for size in set(sizes) if algorithm.updates else ():
        if own := algorithm.for_client_size(size).updates:
            own.check_not_absorbed(1, own.clip.clip_norm)
    cohort = algorithm.clients.sampling.expected_size(len(federation.sizes))
    algorithm.clients.check_not_absorbed(cohort, algorithm.clients.clip.clip_norm)


def _accountant(algorithm: Algorithm, federation: Federation, name: str | None) -> str:
    release = algorithm.release
    if release is None:
        return "none"
    return proven_accountant(name or default_accountant(release.event(len(federation.sizes)))).name


def _place(algorithm: Algorithm, out: Path | str | None, resume: bool) -> RunFolder:
    if resume:
        if out is None:
            raise DpflError("To resume a run, name its folder.")
        folder = RunFolder.open(Path(out))
        folder.refuse_other_format()
        return folder
    folder = RunFolder(Path(out) if out else new_path(algorithm.name))
    folder.refuse_held()
    return folder


def _record(
    asked: Algorithm,
    algorithm: Algorithm,
    federation: Federation,
    model: Buildable,
    flat: FlatModel,
    budget: Budget,
    seed: int,
    entropy: str,
    noise: str,
    by: str,
    ledger: Path | str | None,
    before: PriorSpending,
    experiment: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The experiment as run: what was asked, and what it came to be."""
    return {
        "format": FORMAT,
        "experiment": dict(experiment or {}),
        "asked": describe(asked),
        "resolved": {
            "seed": seed,
            "entropy": entropy,
            "noise": noise,
            "accountant": by,
            "model": model.name,
            "model_options": describe_options(model.options),
            "ledger": str(Path(ledger).resolve()) if ledger else None,
            "budget": encode(budget),
            "algorithm": describe(algorithm),
            "clients": len(federation.sizes),
            "names": None
            if federation.names == client_names(len(federation.names))
            else list(federation.names),
            "beside": before.record(),
            "partition": federation.how,
        },
        "hashes": {
            "federation": federation.sha256,
            "train": federation.train.sha256,
            "test": federation.test.sha256 if federation.test else None,
            "code": code_sha256(),
            "model": flat.fingerprint,
            "initial": vector_sha256(flat.vector),
        },
        "versions": {name: importlib.metadata.version(name) for name in VERSIONED}
        | {"python": platform.python_version()},
    }


def utc_now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _run_id(folder: RunFolder, record: dict[str, Any]) -> str:
    """A resumed run must be the same experiment on the same data."""
    before = folder.experiment()
    if _same_anywhere(before.get("resolved", {})) != _same_anywhere(
        without_none(record["resolved"])
    ):
        raise DpflError(
            f"The experiment differs from that of the run in {folder.path}; resume it unchanged, "
            "or start a new one."
        )
    for what in ("federation", "model"):
        if before.get("hashes", {}).get(what) != record["hashes"][what]:
            thing = "data" if what == "federation" else "model"
            raise DpflError(
                f"The {thing} differs from that of the run in {folder.path}; bring the same, or "
                "start a new run."
            )
    return str(before["run"]["id"])


def _same_anywhere(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """What was resolved, but for how this machine does exact arithmetic."""
    return {**resolved, "arithmetic": resolved.get("arithmetic", "").partition(":")[0]}


def _with_noise(algorithm: Algorithm, noise: str, entropy: str) -> Algorithm:
    if noise not in ("plain", "secure"):
        raise DpflError(
            "privacy.noise is 'plain' (float32) or 'secure' (on a grid, for real data), not "
            f"{noise!r}."
        )
    if noise == "secure" and entropy != "system":
        raise DpflError(
            "Noise from a seed is not secure; with privacy.noise = 'secure' set privacy.entropy = "
            "'system'."
        )
    return algorithm.with_secure_noise() if noise == "secure" else algorithm


def _randomness(entropy: str, seed: int, accounts: Accounts) -> Randomness:
    if entropy not in ("keyed", "system"):
        raise DpflError(
            f"privacy.entropy is 'keyed' (repeatable) or 'system' (for real data), not {entropy!r}."
        )
    if entropy == "system":
        return SystemEntropy()
    if not accounts.algorithm.trusts_server:
        return Keyed(seed)
    with closing(accounts.ledgers.open(0)) as ledger:
        return Keyed(seed, ledger.epoch(accounts.run))


def _start(accounts: Accounts, budget: Budget, model: FlatModel) -> RunState:
    algorithm = accounts.algorithm
    horizon = min(algorithm.releases_in(budget.rounds), MAX_RELEASES) if budget.rounds else 0
    remaining = accounts.plan(accounts.remaining(horizon))
    if remaining and not any(remaining):
        raise DpflError(
            f"The ledgers in {accounts.folder} have no budget left for this run; nothing was "
            "released."
        )
    vector = model.read()
    return RunState(
        vector, torch.zeros_like(vector), algorithm.samples, algorithm.clients, remaining
    )


def _meter(
    accounts: Accounts, budget: Budget, fresh: RunState, state: RunState, randomness: Randomness
) -> Meter | None:
    """Epsilon of a run under way is shown where it is proven."""
    algorithm = accounts.algorithm
    if not fresh.remaining or algorithm.variant != "sound":
        return None
    horizon = min(algorithm.releases_in(budget.rounds), MAX_RELEASES) if budget.rounds else 0
    kept = algorithm.releases_made(state.round, state.iterations)
    return accounts.meter(
        fresh.remaining,
        horizon,
        None if randomness.repeatable and not algorithm.noise_shares else kept,
    )
