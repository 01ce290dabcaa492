"""The experiment file: words and numbers in, checked at the border, parts out."""

from __future__ import annotations

import copy
import os
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dpfl import algorithms, loggers, models
from dpfl import data as datasets
from dpfl.algorithms.options import nearest
from dpfl.data import partition
from dpfl.data.dataset import MOST_CLASSES, names_classes
from dpfl.errors import DpflError
from dpfl.privacy import Budget
from dpfl.privacy.accounting.budget import MOST_ROUNDS
from dpfl.run.options import Aggregation, Evaluation, Execution, Privacy

if TYPE_CHECKING:
    from dpfl.planning.paid_queries import PrivateMetric
    from dpfl.protocol.transport import Transport
    from dpfl.run.nodes import ServerTerms
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
"""What `dpfl run` runs without a file."""


class StrictSection(BaseModel):
    """Keys that are not listed are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class OpenSection(BaseModel):
    """Keys that are not listed go to the part of that name, which knows its own options."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class DataSection(OpenSection):
    name: str = "mnist-sample"
    data_dir: str | None = None
    partition: str = "dirichlet"
    clients: int | None = Field(default=None, ge=1, le=100_000_000)
    public_clients: int = Field(default=0, ge=0, le=100_000_000)
    classes: int | None = Field(default=None, ge=1, le=MOST_CLASSES)
    test_share: float | None = Field(default=None, gt=0, lt=1)
    names: list[str] | None = None
    rows_per_person: int | None = Field(default=None, ge=1, le=2**31)
    seed: int | None = Field(default=None, ge=0, lt=2**63)

    @model_validator(mode="before")
    @classmethod
    def _partition(cls, content: Any) -> Any:
        """Where data has owners, they are the clients; tables and labels that are no classes are
        dealt evenly; else classes are skewed, over ten."""
        if not isinstance(content, Mapping):
            return content
        name = str(content.get("name", "mnist-sample"))
        even = datasets.is_table(name) or not names_classes(content.get("task"))
        usual = "site" if datasets.is_owned(name, content) else "iid" if even else "dirichlet"
        said = {"partition": usual, **content}
        if said["partition"] == "site":
            if said.get("clients") is not None or said.get("public_clients"):
                raise DpflError(
                    "The sites of the data are its clients: leave data.clients and "
                    "data.public_clients out."
                )
            return said
        return {"clients": 10, **said}


class ModelSection(OpenSection):
    name: str = "cnn"


class AlgorithmSection(OpenSection):
    name: str = algorithms.DEFAULT


class BudgetSection(StrictSection):
    epsilon: float | None = None
    delta: float = 1e-5
    rounds: int | None = None
    bytes: int | None = None
    seconds: float | None = None


class PrivacySection(StrictSection):
    unit: str | None = None
    accountant: str | None = None
    ledger: str | None = None
    entropy: str = "keyed"
    noise: str | None = None
    arithmetic: str = "exact"
    aggregation: str = "plain"
    survivors: int | None = Field(default=None, ge=1, le=100)
    colluders: int | None = Field(default=None, ge=0, le=100)


class EngineSection(StrictSection):
    name: str = "local"
    workers: int | None = Field(default=None, ge=1, le=1024)
    masks: bool = False
    deadline: float = Field(default=600.0, gt=0, le=1e6)
    joining: float = Field(default=120.0, gt=0, le=1e6)
    least_replies: int = Field(default=1, ge=1, le=1_000_000)


class ServerSection(StrictSection):
    """Of a server: its own folder of keys, where nodes reach it, and the public key of each."""

    folder: str = "federation"
    address: str = "127.0.0.1:9092"
    nodes: dict[str, str] = Field(default_factory=dict)
    watch: int = Field(default=0, ge=0, lt=2**16)


class EvaluateSection(StrictSection):
    every: int | None = Field(default=None, ge=1, le=MOST_ROUNDS)


class MetricsSection(StrictSection):
    private: bool = False
    noise: float | None = None
    share: float | None = None
    held_out: float | None = None
    most: float | None = None

    def part(self) -> PrivateMetric | None:
        from dpfl.planning.paid_queries import PrivateMetric

        said = self.model_dump(exclude={"private"}, exclude_none=True)
        if said and not self.private:
            raise DpflError(
                f"metrics.{next(iter(said))} is for a metric that is paid for: set metrics.private "
                "= true."
            )
        return PrivateMetric(**said) if self.private else None


class Experiment(StrictSection):
    """One file from a laptop simulation to a federation."""

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
        source, how = self._source(data_dir)
        section = self.data
        if how is None:
            dealt = source.by_owner(section.names or ())
        else:
            seed = self.seed if section.seed is None else section.seed
            clients = 10 if section.clients is None else section.clients
            dealt = source.split(clients, how, seed, section.public_clients, section.names or ())
        return replace(dealt, rows_per_person=section.rows_per_person)

    def _source(
        self, data_dir: Path | None
    ) -> tuple[datasets.DataSource, partition.Partition | datasets.RandomClients | None]:
        """The data in one place, and how it is dealt; not at all where it has owners."""
        section, (given, options) = self.data, self._words()
        how = None if section.partition == "site" else partition.parse(section.partition, **options)
        return datasets.load(
            section.name,
            data_dir or (Path(section.data_dir) if section.data_dir else None),
            **given,
        ), how

    def _words(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the data set is told, and what its partition is."""
        section = self.data
        options = section.options()
        given = {
            word: options.pop(word) for word in datasets.own_words(section.name) if word in options
        }
        declared = {"classes": section.classes, "test_share": section.test_share}
        given |= {name: value for name, value in declared.items() if value is not None}
        if section.partition == "dirichlet":
            options.setdefault("beta", 0.05)
        if section.partition == "site" and options:
            raise DpflError(
                f"The data set {section.name!r} has no option {next(iter(options))!r}: correct it."
            )
        return given, options

    def dealt(self, clients: int) -> dict[str, dict[str, Any]]:
        """For a trial of nodes on one machine: the sections [data] and [split] of each node's
        policy, by its name.
        """
        section, (given, options) = self.data, self._words()
        place = Path(section.name).expanduser()
        data = {"name": str(place.resolve()) if place.exists() else section.name, **given}
        if section.data_dir:
            data["data_dir"] = str(Path(section.data_dir).resolve())
        if section.partition == "site":
            names = self.federation().names
            return {
                name: {"data": data, "split": {"client": name, "partition": "site"}}
                for name in names
            }
        seed = self.seed if section.seed is None else section.seed
        split = {
            "partition": section.partition,
            "clients": clients,
            "seed": seed,
            "options": options,
        }
        names = tuple(section.names or (f"node-{number}" for number in range(clients)))
        return {
            name: {"data": data, "split": {"client": place, **split}}
            for place, name in enumerate(names)
        }

    def clients(self) -> int:
        """How many there are; where the data's sites are the clients, they are counted."""
        return self.data.clients if self.data.clients is not None else len(self.federation().sizes)

    def run(
        self,
        out: Path | None = None,
        resume: bool = False,
        progress: Progress | None = None,
        workers: int | None = None,
        data_dir: Path | None = None,
    ) -> Result:
        from dpfl.run.train import train

        algorithm = algorithms.from_name(self.algorithm.name, **self.algorithm.options())
        budget = Budget(**self.budget.model_dump())
        model = models.from_name(self.model.name, **self.model.options())
        if self.engine.name != "local":
            raise DpflError(f"There is no engine {self.engine.name!r}; engine.name is 'local'.")
        federation = self.federation(data_dir)
        usual_workers = min(os.cpu_count() or 1, len(federation.sizes))
        return train(
            model,
            federation,
            algorithm,
            budget,
            privacy=self.privacy_options(),
            aggregation=self.aggregation_options(self.engine.masks),
            evaluation=self.evaluation_options(),
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

    def privacy_options(self, entropy: str | None = None) -> Privacy:
        """Returns the options of [privacy] for `dpfl.train`.

        Args:
            entropy: The entropy of a run over nodes; None takes that of the file.
        """
        section = self.privacy
        return Privacy(
            section.unit,
            section.accountant,
            section.ledger,
            entropy or section.entropy,
            section.noise,
            section.arithmetic,
        )

    def aggregation_options(self, masks: bool = False) -> Aggregation:
        """Returns how the server gets the sum of a round.

        Args:
            masks: Whether a simulation runs the masking protocol.
        """
        section = self.privacy
        return Aggregation(section.aggregation, section.survivors, section.colluders, masks)

    def evaluation_options(self) -> Evaluation:
        """Returns what is measured, and how often."""
        return Evaluation(self.evaluate.every, self.metrics.part())

    def proposal(self, names: Sequence[str], keys: Sequence[str] = ()) -> Propose:
        """What nodes of these names are asked to join; what cannot be over nodes is refused here,
        before any is asked.
        """
        from dpfl.node.policy import SEED
        from dpfl.run.propose import ProposalSpec, build_proposal

        if self.data.public_clients:
            raise DpflError("Over nodes no client is public: leave data.public_clients out.")
        if self._entropy == "keyed" and SEED not in os.environ:
            raise DpflError(
                "Nodes draw their noise from the system's entropy, and from no seed: leave "
                "privacy.entropy out."
            )
        algorithm = algorithms.from_name(self.algorithm.name, **self.algorithm.options())
        model, budget = (
            models.from_name(self.model.name, **self.model.options()),
            Budget(**self.budget.model_dump()),
        )
        source = self._source(None)[0]
        spec = ProposalSpec(
            model,
            algorithm,
            budget,
            source.train,
            source.test,
            names,
            keys,
            self.privacy_options(self._entropy),
            self.aggregation_options(),
            self.metrics.part(),
        )
        return build_proposal(spec)

    @property
    def _entropy(self) -> str:
        """Of a run over nodes, where it is the system's unless said otherwise."""
        return self.privacy.entropy if "entropy" in self.privacy.model_fields_set else "system"

    def serve(
        self,
        post: Transport,
        terms: ServerTerms,
        out: Path | None = None,
        resume: bool = False,
        progress: Progress | None = None,
    ) -> Result:
        """The same over nodes elsewhere; of the data of this file only its form and its public test
        set are used.
        """
        from dpfl.data.remote_federation import RemoteFederation
        from dpfl.run.folder import RunFolder, new_path
        from dpfl.run.nodes import gather, gather_again
        from dpfl.run.train import train

        out, source = out or new_path(self.algorithm.name), self._source(None)[0]
        proposal = self.proposal(tuple(terms.nodes), terms.public)
        if resume:
            gathering = gather_again(post, terms, RunFolder.open(out), proposal)
        else:
            gathering = gather(post, secrets.token_hex(16), terms, proposal)
        joined, sizes = zip(
            *((member.name, member.size) for member in gathering.members), strict=True
        )
        federation, said = (
            RemoteFederation.of(source.train, source.test, joined, sizes, self.privacy.unit),
            self.model_dump(exclude_none=True),
        )
        return train(
            models.from_name(self.model.name, **self.model.options()),
            replace(federation, notes=gathering.notes, test_persons=source.test_persons),
            algorithms.from_name(self.algorithm.name, **self.algorithm.options()),
            Budget(**self.budget.model_dump()),
            privacy=replace(self.privacy_options(self._entropy), ledger=None, arithmetic="exact"),
            aggregation=self.aggregation_options(),
            evaluation=self.evaluation_options(),
            execution=Execution(
                seed=self.seed,
                out=out,
                resume=resume,
                progress=progress,
                callbacks=loggers.from_words(self.log),
                nodes=gathering,
                experiment=said | {"privacy": said["privacy"] | {"entropy": self._entropy}},
            ),
        )


def load(path: Path | None, settings: Sequence[str] = ()) -> Experiment:
    """The experiment of a file (the demo's without one), with `section.key=value` settings on
    top.
    """
    return parse(with_settings(_read(path) if path else _demo(settings), settings))


def with_settings(content: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """A copy of an experiment's content, with `section.key=value` settings on top."""
    try:
        changed = copy.deepcopy(dict(content))
    except RecursionError:
        raise DpflError("The experiment is nested too deeply; it has sections of keys.") from None
    for setting in settings:
        _set(changed, setting)
    return changed


def _demo(settings: Sequence[str]) -> dict[str, Any]:
    """Options that suit the demo's system go with it where another is asked for."""
    content = copy.deepcopy(DEMO)
    if any(setting.replace(" ", "").startswith("algorithm.name=") for setting in settings):
        content["algorithm"] = {}
    return content


def parse(content: Mapping[str, Any]) -> Experiment:
    try:
        return Experiment.model_validate(content)
    except ValidationError as error:
        raise DpflError(_sentence(error)) from None
    except RecursionError:
        raise DpflError("The experiment is nested too deeply; it has sections of keys.") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise DpflError(
            f"There is no experiment file {path}; without a file, `dpfl run` runs the demo."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DpflError(f"The experiment file {path} cannot be read ({error}).") from None
    except tomllib.TOMLDecodeError as error:
        raise DpflError(f"The experiment file {path} is not valid TOML: {error}.") from None
    except RecursionError:
        raise DpflError(
            f"The experiment file {path} is nested too deeply; an experiment has sections of keys."
        ) from None


def _set(content: dict[str, Any], setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise DpflError(f"--set takes section.key=value, such as budget.rounds=5, not {setting!r}.")
    *sections, last = key.strip().split(".")
    for section in sections:
        content = content.setdefault(section, {})
        if not isinstance(content, dict):
            raise DpflError(f"--set {setting}: {section!r} is a value, not a section.")
    content[last] = _value(text.strip())


def _value(text: str) -> Any:
    """Numbers, truth values and lists as in TOML; any other word as it stands."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def _sentence(error: ValidationError) -> str:
    """The first thing that is wrong, and the nearest key where one is not known."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] != "extra_forbidden":
        return (
            f"{place} in the experiment: {first['msg'].lower()} (it is "
            f"{str(first['input'])[:80]!r})."
        )
    model: Any = Experiment
    for part in first["loc"][:-1]:
        model = model.model_fields[str(part)].annotation
    return (
        f"The experiment has no key {place!r}; {nearest(str(first['loc'][-1]), model.model_fields)}"
    )
