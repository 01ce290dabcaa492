"""Makes a resolved run ready to start, or to go on.

`resolve` decides what the run does, and `prepare` then makes what it needs, in this order:

1. the run's folder, locked, so that no second process works on the same run;
2. the run's name, from which the names of its releases and the keys of its noise follow;
3. the accounts: one ledger per client, or one for the federation, opened and compared with what
   the record and the checkpoint say was spent;
4. the state: new, or from the checkpoint;
5. the engine that trains the clients, and the coordinator that asks it.

    job = prepare(spec, resources)
    request = job.coordinator.next_request()

Nothing is debited here. If a stage refuses, what was opened is closed again, and a run that was to
be resumed is as it was.
"""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dpfl.algorithms import Algorithm
from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDatasets
from dpfl.client.task import ClientReply, RoundRequest
from dpfl.data import Federation
from dpfl.engines import Engine, local_engine
from dpfl.errors import DpflError
from dpfl.privacy import Budget, Keyed, Randomness, SystemEntropy
from dpfl.run.accounting.accounts import Accounts
from dpfl.run.accounting.meter import Meter
from dpfl.run.recorder import Recorder, SilentProgress
from dpfl.run.records.digests import record_id, without_none
from dpfl.run.records.folder import RunFolder, new_path
from dpfl.run.resolve import ResolvedRun, RunSpec, resolve
from dpfl.run.update_diagnostics import UpdateDiagnostics
from dpfl.server.aggregation.round_sum import AddIntegers, SimulatedMaskedSum, add_integers
from dpfl.server.coordinator import Coordinator
from dpfl.server.state import FederationFacts, RunState


@dataclass(frozen=True)
class PreparedRun:
    """A run that is ready to start: who coordinates, where clients train, what is recorded.

    Attributes:
        run: The name of the run in ledgers and certificates.
        resolved_run: What the run will do.
        folder: The run's folder.
        accounts: The ledgers of the run, read together.
        randomness: Where noise and sampling draw from.
        coordinator: The server's side of a round.
        engine: Where the clients train.
        recorder: Evaluates the model, and records every round.
        diagnostics: How far each round moves the model.
    """

    run: str
    resolved_run: ResolvedRun
    folder: RunFolder
    accounts: Accounts
    randomness: Randomness
    coordinator: Coordinator
    engine: Engine
    recorder: Recorder
    diagnostics: UpdateDiagnostics

    def ask(self, request: RoundRequest) -> list[ClientReply]:
        """Sends a request to the clients. The coordinator's own requests go the same way.

        Args:
            request: The request of a round.

        Returns:
            The replies, as the engine gave them.
        """
        return self.diagnostics.ask(request)

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm as it runs."""
        return self.resolved_run.algorithm

    @property
    def budget(self) -> Budget:
        """What ends the run."""
        return self.resolved_run.spec.budget

    @property
    def source(self) -> Federation:
        """The federation with its samples as they were brought."""
        return self.resolved_run.spec.federation

    @property
    def data(self) -> Federation:
        """The federation in the form that the model takes."""
        return self.resolved_run.model.federation

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know before the first round."""
        return self.resolved_run.notes


def prepare(spec: RunSpec, resources: ExitStack | None = None) -> PreparedRun:
    """Prepares a run: new, or from the last checkpoint of its folder.

    Args:
        spec: What was asked for.
        resources: Holds the lock of the folder until the end of the run. Without it, the folder is
            not locked.

    Returns:
        The run, before its first round.

    Raises:
        DpflError: The run is refused. Nothing was debited or released.
    """
    folder = _find_folder(spec)
    resolved_run = resolve(spec)
    if not spec.execution.resume:
        RunFolder.create(folder.path)
    if resources:
        resources.enter_context(folder.lock())
    record = _record(resolved_run)
    run = _resumed_id(folder, record) if spec.execution.resume else record_id(record)
    accounts = Accounts(run, spec.ledger_folder or folder.ledgers, resolved_run.terms)
    fresh = _first_state(accounts, resolved_run)
    randomness = _randomness(spec, accounts)
    if not spec.execution.resume:
        _write_start(folder, fresh, record, run)
    state = folder.load_checkpoint(fresh) if spec.execution.resume else fresh
    accounts.check_checkpoint(state.debits)
    engine, add_up = _engine(resolved_run, accounts, folder, randomness)
    meter = _meter(accounts, fresh, state, randomness)
    recorder = _recorder(resolved_run, folder, state, meter)
    public = _public_clients(resolved_run)
    diagnostics = UpdateDiagnostics(engine.run, state, resolved_run.model.federation.names, public)
    coordinator = Coordinator(
        resolved_run.algorithm,
        spec.budget,
        _federation_facts(accounts, resolved_run),
        state,
        randomness,
        diagnostics.ask,
        recorder.validate,
        add_up,
    )
    return PreparedRun(
        run, resolved_run, folder, accounts, randomness, coordinator, engine, recorder, diagnostics
    )


def _find_folder(spec: RunSpec) -> RunFolder:
    """Finds the folder of the run that goes on, or chooses one that holds no run yet."""
    out = spec.execution.out
    if spec.execution.resume:
        assert out is not None
        old_folder = RunFolder.open(Path(out))
        old_folder.refuse_other_format()
        return old_folder
    folder = RunFolder(Path(out) if out else new_path(spec.algorithm.name))
    folder.refuse_existing_run()
    return folder


def _record(resolved_run: ResolvedRun) -> dict[str, Any]:
    """Builds the record of the experiment as it runs, with a nonce of its own."""
    nodes = resolved_run.spec.execution.nodes
    nonce = nodes.nonce if nodes else secrets.token_hex(16)
    return {"run": {"nonce": nonce, "started": utc_now()}} | resolved_run.record()


def utc_now() -> str:
    """Reads the clock.

    Returns:
        The time as ISO 8601 in UTC, to the second.
    """
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _resumed_id(folder: RunFolder, record: Mapping[str, Any]) -> str:
    """Reads the name of the run that goes on, if it is the same experiment on the same data."""
    before = folder.experiment()
    settings, recorded_settings = without_none(record["resolved"]), before.get("resolved", {})
    if "declared" not in recorded_settings:  # an earlier version listed no sizes
        settings.pop("declared", None)
    if _on_any_machine(recorded_settings) != _on_any_machine(settings):
        raise DpflError(
            f"The experiment differs from that of the run in {folder.path}; resume it unchanged, "
            "or start a new one."
        )
    for name, thing in {"federation": "data", "model": "model"}.items():
        if before.get("hashes", {}).get(name) != record["hashes"][name]:
            raise DpflError(
                f"The {thing} differs from that of the run in {folder.path}; bring the same, or "
                "start a new run."
            )
    return str(before["run"]["id"])


def _on_any_machine(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves out of the settings how this machine does exact arithmetic."""
    kind = settings.get("arithmetic", "").partition(":")[0]
    return {**settings, "arithmetic": kind}


def _first_state(accounts: Accounts, resolved_run: ResolvedRun) -> RunState:
    remaining = accounts.plan(accounts.remaining(accounts.terms.horizon))
    if remaining and not any(remaining):
        raise DpflError(
            f"The ledgers in {accounts.folder} have no budget left for this run; nothing was "
            "released."
        )
    vector, algorithm = resolved_run.model.flat.read(), resolved_run.algorithm
    return RunState(
        vector, torch.zeros_like(vector), algorithm.samples, algorithm.clients, remaining
    )


def _randomness(spec: RunSpec, accounts: Accounts) -> Randomness:
    """Makes the run's source of randomness. Keyed noise of a federation's ledger also depends on
    how many runs used the ledger before.
    """
    if spec.privacy.entropy == "system":
        return SystemEntropy()
    seed, algorithm = spec.execution.seed, accounts.algorithm
    if not algorithm.trusts_server:
        return Keyed(seed)
    with closing(accounts.ledgers.open(0)) as ledger:
        return Keyed(seed, ledger.epoch(accounts.run))


def _write_start(folder: RunFolder, fresh: RunState, record: Mapping[str, Any], run: str) -> None:
    """Writes the first checkpoint before the record: a user's weights exist nowhere else."""
    folder.refuse_existing_run()
    folder.save_checkpoint(fresh)
    folder.write_experiment({**record, "run": {"id": run} | record["run"]})


def _engine(
    resolved_run: ResolvedRun, accounts: Accounts, folder: RunFolder, randomness: Randomness
) -> tuple[Engine, AddIntegers]:
    """Builds the engine, and the function that adds up the sum of a round."""
    spec, algorithm, size = (
        resolved_run.spec,
        resolved_run.algorithm,
        resolved_run.model.flat.layout.size,
    )
    ledgers = accounts.ledgers if algorithm.ledger_per_client else None
    if spec.execution.nodes:
        remote = spec.execution.nodes.engine(accounts.run, ledgers, folder, size)
        return remote, remote.add
    context = _client_context(resolved_run, accounts, randomness)
    engine = local_engine(context, size, spec.execution.workers)
    if spec.aggregation.masks and algorithm.noise_shares:
        return engine, SimulatedMaskedSum(
            accounts.run, accounts.terms.owners, algorithm.noise_shares
        )
    return engine, add_integers


def _client_context(
    resolved_run: ResolvedRun, accounts: Accounts, randomness: Randomness
) -> ClientContext:
    spec, algorithm = resolved_run.spec, resolved_run.algorithm
    federation = resolved_run.model.federation
    return ClientContext(
        accounts.run,
        resolved_run.model.description,
        federation.task,
        ClientDatasets.of(federation, resolved_run.split, algorithm.unit),
        randomness,
        accounts.ledgers if algorithm.ledger_per_client else None,
        resolved_run.model.flat.fingerprint,
        disclosure_rules=algorithm.disclosure_rules,
        public=_public_clients(resolved_run),
        arithmetic=spec.privacy.arithmetic,
    )


def _public_clients(resolved_run: ResolvedRun) -> range:
    federation = resolved_run.model.federation
    clients = len(federation.clients)
    return range(clients, clients + len(federation.public))


def _federation_facts(accounts: Accounts, resolved_run: ResolvedRun) -> FederationFacts:
    return FederationFacts(
        accounts.run,
        resolved_run.sizes,
        resolved_run.model.flat.layout,
        _public_clients(resolved_run),
        accounts.ledgers.open(0) if resolved_run.algorithm.trusts_server else None,
        accounts.limit,
        resolved_run.split.held_out_sizes,
    )


def _recorder(
    resolved_run: ResolvedRun, folder: RunFolder, state: RunState, meter: Meter | None
) -> Recorder:
    spec, federation = resolved_run.spec, resolved_run.model.federation
    metrics = folder.metrics()
    metrics.forget_after(state.round)
    return Recorder(
        folder,
        metrics,
        resolved_run.model.flat,
        federation.test,
        meter,
        spec.evaluation.interval(spec.budget.rounds),
        spec.execution.progress or SilentProgress(),
        federation.test_persons,
    )


def _meter(
    accounts: Accounts, fresh: RunState, state: RunState, randomness: Randomness
) -> Meter | None:
    """Builds the epsilon meter for sound runs."""
    algorithm = accounts.algorithm
    if not fresh.remaining or not algorithm.sound:
        return None
    repeatable = randomness.repeatable and not algorithm.noise_shares
    in_checkpoint = algorithm.releases_made(state.round, state.iterations)
    return accounts.meter(
        fresh.remaining, accounts.terms.horizon, None if repeatable else in_checkpoint
    )
