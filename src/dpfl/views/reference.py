"""The reference page: one line for each key of an experiment, option of a system, file of a run and
column of its metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from dpfl.algorithms import ALGORITHMS
from dpfl.algorithms.catalog import describe_one
from dpfl.data.partition import NAMES
from dpfl.run.metrics import COLUMNS, UPDATES

KEYS: Mapping[str, str] = MappingProxyType(
    {
        "seed": "the same seed gives the same run; it also deals the samples to clients, unless "
        "data.seed does",
        "data.name": "mnist-sample, mnist, fashion-mnist, emnist-..., cifar10, randhie, "
        "shakespeare, or the path of an .npz file or a table",
        "data.data_dir": "folder of the data sets; by default DPFL_DATA, or the user's cache",
        "data.partition": "how samples are dealt to clients; its options are listed below",
        "data.clients": "number of clients",
        "data.public_clients": "number of additional public clients; they help to choose settings "
        "and are never trained on",
        "data.classes": "number of classes; needed if there is no public test set to take it from",
        "data.test_share": "share of the records that becomes a public test set, where the data "
        "has none",
        "data.seed": "seed of the partition, so that runs with different seeds can share ledgers",
        "data.rows_per_person": "with privacy.unit = person: only so many rows of each person "
        "count, the first ones; by default all",
        "data.names": "names of the clients, in order; each ledger belongs to a name",
        "model.name": 'a network of the catalogue, or "package.module:factory"; its options are '
        "further keys",
        "algorithm.name": 'a system, or "package.module:factory"; its options are further keys',
        "budget.epsilon": "training stops inside it; if no noise multiplier is given, the noise is "
        "planned for it",
        "budget.delta": "delta of the guarantee; well below 1 / (number of protected units)",
        "budget.rounds": "largest number of rounds",
        "budget.bytes": "largest number of bytes of models and updates, in both directions, "
        "over all clients",
        "budget.seconds": "largest number of seconds that rounds may take in all",
        "privacy.unit": "sample (one row) or person (all rows of one person at a client; needs "
        "data.person)",
        "privacy.accountant": "pld or rdp; by default the tightest that is proven for the release",
        "privacy.ledger": "a folder of ledgers that runs share; by default the run's own",
        "privacy.entropy": "keyed (from the seed: repeatable) or system (from the operating "
        "system, for real data)",
        "privacy.arithmetic": "exact (the numbers of a unit are the same in every batch) or fast "
        "(only for simulations)",
        "privacy.noise": "plain (float32) or secure (on a grid); by default secure with "
        "entropy = 'system'",
        "privacy.aggregation": "plain, or secure: the server sees only sums, and clients share the "
        "noise (privacy.md)",
        "privacy.survivors": "secure sums: number of clients that every sum must include; by "
        "default all",
        "privacy.colluders": "secure sums: number of clients that may collude with the server; "
        "with 0, the guarantee does not cover a client that colludes",
        "engine.name": "local: all clients on this machine; dpfl up and dpfl server run over nodes",
        "engine.workers": "number of worker processes; it does not change the result",
        "engine.masks": "run the protocol of a secure sum in a simulation; it does not change the "
        "result",
        "engine.deadline": "over nodes: seconds after which a round closes with the replies that "
        "have arrived",
        "engine.joining": "over nodes: seconds that nodes have to join",
        "engine.least_replies": "over nodes: number of nodes that must join, and answer each round",
        "server.folder": "folder of the server's certificate, keys and log, from dpfl server init",
        "server.address": "host and port at which nodes reach the server",
        "server.nodes": "public keys of each node, by its name: the line that dpfl node init "
        "prints",
        "server.watch": "port of this machine for /health and /metrics; 0 for none",
        "evaluate.every": "rounds between evaluations on the test set; by default a 25th of all "
        "rounds",
        "metrics.private": "without a public test set: ask the clients for a metric at the end, "
        "paid from their ledgers",
        "metrics.noise": "noise multiplier of that metric; 10 by default",
        "metrics.share": "instead of metrics.noise: share of epsilon that the metric may cost",
        "metrics.held_out": "share of each client's samples that is kept out of training for the "
        "metric; 0 measures it on training samples",
        "metrics.most": "largest loss that one sample counts with; 4 by default",
        "log": "loggers, each with its destination: tensorboard = a folder, mlflow = an SQLite "
        "file; none by default",
    }
)
MEASURES: Mapping[str, str] = MappingProxyType(
    {
        "round": "number of the round, from 1",
        "steps": "local steps of a client in this round (tau)",
        "iterations": "local steps of a client so far",
        "clients": "clients in the round; the expected number where the cohort is secret",
        "accuracy": "share of the test set that is classified correctly, 0 to 1; empty where the "
        "round was not evaluated",
        "loss": "mean cross-entropy on the test set, in nats; empty where the round was not "
        "evaluated",
        "epsilon": "upper bound on the epsilon used so far, at the budget's delta; empty where "
        "none is proven",
        "clip": "the clip norm (L2), where it changes from round to round",
        "bytes": "bytes sent so far in both directions, over all clients",
        "seconds": "seconds that rounds have taken so far",
        "headline": "the first metric of the task (accuracy for classes, AUC for binary, deviance "
        "for counts, ...); empty where the round was not evaluated",
    }
)
STEPS: Mapping[str, str] = MappingProxyType(
    {
        "round": "number of the round, from 1",
        "whose": "empty for the step of the round; a client's name where nothing is private, or "
        "that of a public client",
        "norm": "L2 norm of the mean update of the round, noise included, or of that client's "
        "update",
        "angle": "angle in degrees to the step of the previous round; empty for the first",
        "noise": "the norm that the noise alone would have, from the settings; empty where there "
        "is no noise or its norm is not known",
        "clip": "the clip norm for that client's update, where there is one",
    }
)
FILES: Mapping[str, str] = MappingProxyType(
    {
        "experiment.toml": "the experiment as requested and as resolved; hashes of data, model and "
        "code; versions",
        "ledger/NAME.sqlite": "a client's ledger: every release of its data, debited before it "
        "left",
        "ledger/federation.sqlite": "the federation's ledger, where the noise is added to the sum "
        "of a round",
        "checkpoint.safetensors": "the state after the last finished round; `dpfl run --resume` "
        "continues from it",
        "run.lock": "locked while a process works on the run, so that no second one can; it holds "
        "the id of the process",
        "metrics.sqlite": "one row per round, written as the run goes (table `rounds`), the step "
        "of each round (`updates`), and the replies that did not count (`lost`); -wal and -shm lie "
        "beside it while it is open",
        "metrics.parquet": "the rounds, written when the run ends",
        "model.safetensors": "the weights",
        "README.md": "the model card: data, budget, statement, and how to load the model without "
        "dpfl; pass it on with the model",
        "statement.json": "the privacy statement: unit, neighbours, delta, adversary, accountant, "
        "proven, claimed",
        "result.json": "the outcome of the run, with the statement",
        "audit.json": "what `dpfl audit RUN` measured",
        "audit-private.json": "what the audit showed about training samples; as private as they "
        "are",
        "certificate.json": "what `dpfl certify RUN` signed; `certificate.html` is the page to "
        "print",
        "report.html": "the page that `dpfl report RUN` wrote",
    }
)


def page(keys: Mapping[str, tuple[str, object]]) -> str:
    """Writes the reference page.

    Args:
        keys: Type and default of every key of an experiment, by its dotted name.

    Returns:
        Markdown.
    """
    return "\n".join([*_head(), *_keys(keys), *_partitions(), *_systems(), *_run()]) + "\n"


def _head() -> Iterator[str]:
    yield "# Reference"
    yield (
        "\nGenerated from the code by `python scripts/reference.py`. `dpfl algorithms NAME` shows "
        "the options of one system."
    )


def _keys(keys: Mapping[str, tuple[str, object]]) -> Iterator[str]:
    yield "\n## The experiment file\n"
    rows = (
        (f"`{key}`", kind, default_text(default), KEYS[key])
        for key, (kind, default) in keys.items()
    )
    yield from table(("key", "type", "default", "meaning"), rows)


def _partitions() -> Iterator[str]:
    yield "\n## Partitions\n"
    yield from table(
        ("`data.partition`", "options", "what it does"),
        (_partition(name, how) for name, how in NAMES.items()),
    )


def _partition(name: str, how: type) -> tuple[str, str, str]:
    fields = how.__dataclass_fields__.values()  # type: ignore[attr-defined]
    options = ", ".join(f"`{field.name}`" for field in fields) or "-"
    return f"`{name}`", options, " ".join((how.__doc__ or "").split("\n\n")[0].split())


def _systems() -> Iterator[str]:
    yield "\n## Systems"
    for name in ALGORITHMS:
        system = describe_one(name)
        yield f"\n### `{name}`\n\n{system['paper']}. {_proven(system['proven'])}\n"
        options = system["options"].items()
        rows = (
            (f"`{key}`", option["type"], default_text(option["default"]), option["meaning"])
            for key, option in options
        )
        yield from table(("option", "type", "default", "meaning"), rows)


def _proven(by_variant: Mapping[str, str]) -> str:
    texts = [f"{variant}: {proven}" for variant, proven in by_variant.items()]
    return f"Proven, {'; '.join(texts)}." if len(texts) > 1 else f"Proven: {by_variant['sound']}."


def _run() -> Iterator[str]:
    yield "\n## A run's folder\n"
    yield from table(
        ("file", "what it holds"), ((f"`{file}`", text) for file, text in FILES.items())
    )
    yield "\n## Columns of the metrics\n"
    yield from table(
        ("column", "meaning and unit"), ((f"`{name}`", MEASURES[name]) for name in COLUMNS)
    )
    yield (
        "\n## Columns of the steps\n\nThese are the columns of the table `updates`. For a private "
        "run it holds only what was released.\n"
    )
    yield from table(
        ("column", "meaning and unit"), ((f"`{name}`", STEPS[name]) for name in UPDATES)
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Writes a table in Markdown.

    Args:
        head: The names of the columns.
        rows: One cell per column each. A vertical bar in a cell is escaped.

    Yields:
        The lines of the table.
    """
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        cells = (cell.replace("|", "\\|") for cell in row)
        yield f"| {' | '.join(cells)} |"


def default_text(default: object) -> str:
    """Writes a default as TOML does.

    Args:
        default: The default of a key or an option.

    Returns:
        Its text; "-" if there is no default.
    """
    if default is None or default in ((), {}):
        return "-"
    return str(default).lower() if isinstance(default, bool) else str(default)
