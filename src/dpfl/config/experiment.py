"""The experiment file: one TOML file that describes a run, from a simulation to a federation.

`load` reads the file, applies the settings of the command line and checks every key. The result is
an `Experiment`, a frozen pydantic model with one attribute per section:

    [data]       the data set, and how its rows are dealt to clients   (`data_section.py`)
    [model]      a network of the catalogue, or an import path
    [algorithm]  a published system and its options, or an import path
    [budget]     limits: epsilon at delta, rounds, bytes, seconds
    [privacy]    unit, accountant, ledgers, entropy, kind of noise, secure aggregation
    [engine], [server], [evaluate], [metrics], [log]

Pydantic checks types and ranges here. What depends on several parts, such as whether the noise
suits the clip, is checked by the parts and by `server/rules.py`. So this module builds objects and
decides nothing about privacy.

One experiment serves the command line, the web pages and Python. `Experiment.run` trains in a
simulation, `Experiment.serve` trains over nodes, and `dpfl plan`, the web planner and the papers'
tables write the same sections.

    experiment = load(Path("experiment.toml"), ["budget.rounds=5"])
    result = experiment.run(Path("runs/first"))
"""

from __future__ import annotations

import copy
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from dpfl import algorithms, loggers, models
from dpfl import data as datasets
from dpfl.bad_values import invalid, read_toml, too_deep, unknown_name
from dpfl.config.data_section import DataSection
from dpfl.config.sections import (
    AlgorithmSection,
    BudgetSection,
    EngineSection,
    EvaluateSection,
    MetricsSection,
    ModelSection,
    PrivacySection,
    ServerSection,
    StrictSection,
)
from dpfl.config.settings import with_settings
from dpfl.errors import DpflError
from dpfl.privacy import Budget
from dpfl.run.options import Evaluation, Execution

if TYPE_CHECKING:
    from dpfl.protocol.transport import Transport
    from dpfl.run.over_nodes.nodes import ServerTerms
    from dpfl.run.propose import Propose
    from dpfl.run.recorder import Progress
    from dpfl.run.result import Result

DEMO: dict[str, Any] = {
    "seed": 0,
    "data": {"name": "mnist-sample", "partition": "dirichlet", "clients": 10},
    "model": {"name": "cnn"},
    "algorithm": algorithms.DEMO,
    "budget": {"epsilon": 4.0, "delta": 1e-5, "rounds": 80},
}
"""The experiment that `dpfl run` trains without a file."""
MISSING = "without a file, `dpfl run` runs the demo."


class Experiment(StrictSection):
    """A run as its file describes it; `docs/reference.md` explains every key."""

    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    data: DataSection = DataSection()
    model: ModelSection = ModelSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    budget: BudgetSection = BudgetSection()
    privacy: PrivacySection = PrivacySection()
    engine: EngineSection = EngineSection()
    server: ServerSection = ServerSection()
    evaluate: EvaluateSection = EvaluateSection()
    metrics: MetricsSection = MetricsSection()
    log: dict[str, str] = Field(default_factory=dict)

    def federation(self, data_dir: Path | None = None) -> datasets.Federation:
        """Loads the data and deals it to clients.

        Args:
            data_dir: The folder of the data sets; by default `data.data_dir`.

        Returns:
            The clients with their rows.
        """
        return self.data.federation(self.seed, data_dir)

    def node_sections(self, clients: int) -> dict[str, dict[str, Any]]:
        """Deals the data to nodes on this machine, for `dpfl up` and tests.

        Args:
            clients: Number of nodes, where the data has no owners.

        Returns:
            The sections `[data]` and `[split]` of each node's policy, by the name of the node.
        """
        return self.data.node_sections(clients, self.seed)

    def clients(self) -> int:
        """Returns the number of clients.

        Returns:
            `data.clients`, or the number of owners where the data has owners.
        """
        return self.data.clients if self.data.clients is not None else len(self.federation().sizes)

    def run(
        self,
        out: Path | None = None,
        resume: bool = False,
        progress: Progress | None = None,
        workers: int | None = None,
        data_dir: Path | None = None,
    ) -> Result:
        """Trains in a simulation on this machine.

        Args:
            out: The folder of the run; by default a new one under `runs/`.
            resume: Continue the run in `out`.
            progress: What shows the rounds as they pass.
            workers: Worker processes; by default `engine.workers`, or one per processor core.
            data_dir: The folder of the data sets; by default `data.data_dir`.

        Returns:
            The model, its metrics and the privacy statement.

        Raises:
            DpflError: The engine is not one of this machine, or the run is refused.
        """
        from dpfl.run.train import train

        algorithm = algorithms.from_name(self.algorithm.name, **self.algorithm.options())
        budget = Budget(**self.budget.model_dump())
        model = models.from_name(self.model.name, **self.model.options())
        if self.engine.name != "local":
            raise unknown_name("engine", self.engine.name, ("local",))
        federation = self.federation(data_dir)
        usual_workers = min(os.cpu_count() or 1, len(federation.sizes))
        return train(
            model,
            federation,
            algorithm,
            budget,
            privacy=self.privacy.options(),
            aggregation=self.privacy.aggregation_options(self.engine.masks),
            evaluation=self._evaluation,
            execution=Execution(
                seed=self.seed,
                workers=self.engine.workers or usual_workers if workers is None else workers,
                out=out,
                resume=resume,
                progress=progress,
                callbacks=loggers.from_words(self.log),
                experiment=self.model_dump(exclude_none=True),
            ),
        )

    @property
    def _evaluation(self) -> Evaluation:
        return Evaluation(self.evaluate.every, self.metrics.part())

    def proposal(self, names: Sequence[str], keys: Sequence[str] = ()) -> Propose:
        """Builds the proposal that nodes answer before a run, and refuses what nodes cannot do.

        Args:
            names: The nodes, as the experiment names them.
            keys: The public key of each node, for secure sums.

        Returns:
            A function from the number of rounds made so far to the proposal.

        Raises:
            DpflError: The experiment has something that only a simulation can do.
        """
        from dpfl.node.policy import SEED
        from dpfl.run.propose import ProposalSpec, build_proposal

        if self.data.public_clients:
            raise DpflError("A run over nodes has no public clients: remove data.public_clients.")
        if self._entropy == "keyed" and SEED not in os.environ:
            raise DpflError(
                "Nodes draw their noise from the operating system's entropy and never from a seed: "
                "remove privacy.entropy."
            )
        algorithm = algorithms.from_name(self.algorithm.name, **self.algorithm.options())
        model = models.from_name(self.model.name, **self.model.options())
        budget, source = Budget(**self.budget.model_dump()), self.data.source()
        spec = ProposalSpec(
            model,
            algorithm,
            budget,
            source.train,
            source.test,
            names,
            keys,
            self.privacy.options(self._entropy),
            self.privacy.aggregation_options(),
            self.metrics.part(),
        )
        return build_proposal(spec)

    @property
    def _entropy(self) -> str:
        """Chooses the operating system's entropy over nodes, unless the file says otherwise."""
        return self.privacy.entropy if "entropy" in self.privacy.model_fields_set else "system"

    def serve(
        self,
        transport: Transport,
        terms: ServerTerms,
        out: Path | None = None,
        resume: bool = False,
        progress: Progress | None = None,
    ) -> Result:
        """Trains over nodes that hold their own data.

        Of the data set in this file, only the form of a sample and the public test set are used.

        Args:
            transport: What carries messages to the nodes.
            terms: The keys of the server and of the nodes, and how long to wait for answers.
            out: The folder of the run; by default a new one under `runs/`.
            resume: Continue the run in `out`.
            progress: What shows the rounds as they pass.

        Returns:
            The model, its metrics and the privacy statement.
        """
        from dpfl.data.remote_federation import RemoteFederation
        from dpfl.run.over_nodes.nodes import join_nodes, rejoin_nodes
        from dpfl.run.records.folder import RunFolder, new_path
        from dpfl.run.train import train

        out, source = out or new_path(self.algorithm.name), self.data.source()
        proposal = self.proposal(tuple(terms.nodes), terms.public)
        if resume:
            joined_nodes = rejoin_nodes(transport, terms, RunFolder.open(out), proposal)
        else:
            joined_nodes = join_nodes(transport, secrets.token_hex(16), terms, proposal)
        names, sizes = zip(
            *((member.name, member.size) for member in joined_nodes.members), strict=True
        )
        federation = RemoteFederation.of(source.train, source.test, names, sizes, self.privacy.unit)
        content = self.model_dump(exclude_none=True)
        content["privacy"] |= {"entropy": self._entropy}
        privacy = replace(self.privacy.options(self._entropy), ledger=None, arithmetic="exact")
        return train(
            models.from_name(self.model.name, **self.model.options()),
            replace(federation, notes=joined_nodes.notes, test_persons=source.test_persons),
            algorithms.from_name(self.algorithm.name, **self.algorithm.options()),
            Budget(**self.budget.model_dump()),
            privacy=privacy,
            aggregation=self.privacy.aggregation_options(),
            evaluation=self._evaluation,
            execution=Execution(
                seed=self.seed,
                out=out,
                resume=resume,
                progress=progress,
                callbacks=loggers.from_words(self.log),
                nodes=joined_nodes,
                experiment=content,
            ),
        )


def load(path: Path | None, settings: Sequence[str] = ()) -> Experiment:
    """Reads an experiment file and checks it.

    Args:
        path: The file; without one, the experiment is the demo.
        settings: Changes on top of it, such as `budget.rounds=5`.

    Returns:
        The experiment.

    Raises:
        DpflError: The file cannot be read, or a key or a value is wrong.
    """
    content = _demo(settings) if path is None else read_toml(path, "experiment file", MISSING)
    return parse(with_settings(content, settings))


def parse(content: Mapping[str, Any]) -> Experiment:
    """Checks the content of an experiment file.

    Args:
        content: Sections of keys, as `tomllib` returns them.

    Returns:
        The experiment.

    Raises:
        DpflError: A key does not exist, or a value has the wrong type or is out of range.
    """
    try:
        return Experiment.model_validate(content)
    except ValidationError as error:
        raise invalid(error, "the experiment", Experiment) from None
    except RecursionError:
        raise too_deep("the experiment") from None


def _demo(settings: Sequence[str]) -> dict[str, Any]:
    """Returns the demo, without the options of its system if the settings name another one."""
    content = copy.deepcopy(DEMO)
    if any(setting.replace(" ", "").startswith("algorithm.name=") for setting in settings):
        content["algorithm"] = {}
    return content
