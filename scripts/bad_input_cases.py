"""The cases of bad_inputs.py: settings, files and commands, each wrong in one way."""

# ruff: noqa: E501, SIM905
from __future__ import annotations

import itertools
from collections.abc import Iterator

from bad_input_calls import calls, tables
from bad_inputs import LONG, Case, small_flags

NUMBERS = ("0", "-1", "nan", "inf", "-inf", "1e300", "1e-300", "true", "'one'", "[1]")

SETTINGS = {
    "seed": ("-1", "1180591620717411303424", "0.5", "true", "nan", "'a'", "[0]"),
    "data.clients": ("0", "-3", "1.5", "true", "1000", "1000000000000", "'ten'"),
    "data.public_clients": ("-1", "0.5", "true", "1000"),
    "data.classes": ("0", "-1", "1.5", "true", "2", "1000000000000"),
    "data.test_share": ("0", "1", "-0.1", "nan", "true", "0.5"),
    "data.name": ("mnits", "''", "no.npz", "a-folder", "3", "mnist", "cifar10", "emnist-digit", LONG, f"{LONG}.npz"),
    "data.partition": ("dirichle", "''", "1", "mapping", "shards", "mix"),
    "data.beta": ("0.5",),
    "data.lists": ("[[0, 1]]",),
    "data.data_dir": ("3",),
    "log": ("3",),
    "log.tensorboard": ("3", "/proc/none"),
    "log.mlflow": ("3", "http://127.0.0.1:1", "/proc/none/x.db"),
    "log.tensorbord": ("x",),
    "model.name": ("cnnn", "''", "cnn", "resnet-18", "os:getcwd", "no.module:factory", "json:loads", ":", "3"),
    "model.hidden": ("0", "-1", "1000000000000", "1e3", "true", "'wide'", "99999999999999999999999"),
    "model.activation": ("geluu", "3"),
    "model.depth": ("3",),
    "algorithm.name": ("fedavg-pd", "''", "3", "no.module:factory"),
    "algorithm.tau": ("0", "-1", "1.5", "1000000000", "true", "nan"),
    "algorithm.sampling_rate": ("0", "-0.1", "1.1", "nan", "inf", "true", "'half'"),
    "algorithm.clip": ("0", "-1", "nan", "inf", "true", "1e300", "1e-300"),
    "algorithm.clipping": ("flatt", "3", "true"),
    "algorithm.noise_multiplier": NUMBERS,
    "algorithm.rate": ("0", "-1", "nan", "inf", "1e300", "true", "'fast'"),
    "algorithm.optimiser": ("sdg", "3"),
    "algorithm.weights": ("sizes", "3"),
    "algorithm.server_rate": ("0", "-1", "nan", "inf"),
    "algorithm.server_momentum": ("1", "-0.1", "nan"),
    "algorithm.unknown": ("1",),
    "budget.epsilon": ("0", "-1", "nan", "inf", "true", "1e300", "'two'", "1e-300"),
    "budget.delta": ("0", "1", "-1", "2", "nan", "true", "'small'"),
    "budget.rounds": ("0", "-1", "1.5", "true", "1000000000", "1000000000000000000000", "nan"),
    "budget.bytes": ("0", "-1", "0.5", "true"),
    "budget.seconds": ("0", "-1", "nan", "true"),
    "budget.minutes": ("1",),
    "privacy.accountant": ("plds", "gdp-clt", "3"),
    "privacy.entropy": ("seed", "3"),
    "privacy.noise": ("loud", "secure", "true"),
    "privacy.unit": ("person", "row", "client", "3", "''", "true"),
    "privacy.aggregation": ("secur", "3", "secure"),
    "privacy.survivors": ("0", "-1", "3", "1.5", "1000000"),
    "privacy.colluders": ("-1", "1", "1.5", "true"),
    "data.rows_per_person": ("0", "-1", "3", "1.5", "true"),
    "data.person": ("'id'", "3"),
    "metrics.private": ("1", "'yes'", "true"),
    "metrics.noise": ("1",),
    "metrics.held_out": ("0.5",),
    "engine.deadline": ("0", "-1", "nan", "'soon'", "true"),
    "engine.least_replies": ("0", "-1", "1.5", "true"),
    "engine.masks": ("1", "true"),
    "server.watch": ("-1", "70000", "1.5", "true"),
    "server.nodes": ("3", "['a']"),
    "privacy.ledger": ("own.npz", "own.npz/under", "3", LONG),
    "engine.name": ("ray", "3"),
    "engine.workers": ("0", "-1", "1.5", "true", "1000000"),
    "evaluate.every": ("0", "-1", "1.5", "true"),
    "nothing.at.all": ("1",),
    "budget": ("1",),
    "data": ("'mnist'",),
}  # fmt: skip

FINE = {("data.partition", "shards"), ("data.name", "a-folder"), ("engine.masks", "true")}
"""Values that are valid here, or that are invalid only for some draws."""


def cases() -> list[Case]:
    """Returns every case."""
    parts = (
        settings(),
        datasets(),
        files(),
        runs(),
        plans(),
        commands(),
        ledgers(),
        federations(),
        tables(),
        calls(),
    )
    return list(itertools.chain.from_iterable(parts))


def settings() -> Iterator[Case]:
    """Yields runs with one invalid setting."""
    for key, values in SETTINGS.items():
        for value in values:
            words = (
                "run",
                *small_flags(),
                "--set",
                "budget.rounds=1",
                "--set",
                f"{key}={value}",
                "--out",
                "new",
                "--quiet",
            )
            yield Case(
                f"setting: {key}={value if len(value) < 40 else value[:30] + value[-5:]}",
                words,
                (0, 2) if (key, value) in FINE else (2,),
            )
    for value in (
        "",
        "=",
        "=3",
        "budget",
        "budget.rounds",
        "..=1",
        "budget.rounds=",
        f"{LONG}=1",
        "a=" + "[" * 5000,
    ):
        words = (
            "run",
            *small_flags(),
            "--set",
            "budget.rounds=1",
            "--set",
            value,
            "--out",
            "new",
            "--quiet",
        )
        yield Case(f"setting: {value[:40]!r}", words)


def datasets() -> Iterator[Case]:
    """Yields runs on invalid data sets."""
    names = (
        "no-y no-x half empty short flat deep-y nan inf complex words dates nan-y half-y minus-y "
        "huge-y complex-y words-y classes "
        "classes-0 classes-2 classes-huge one two untested test-shape test-label test-huge garbage "
        "nothing pickled missing"
    ).split()
    for name in names:
        file = f"data/{name}.npz"
        flags = ("--set", "budget.rounds=1", "--out", "new", "--quiet")
        yield Case(f"data: run {name}", ("run", *small_flags(file), *flags))
        yield Case(
            f"data: show {name}", ("data", "show", file, "--partition", "iid", "--clients", "2")
        )


def files() -> Iterator[Case]:
    """Yields commands on invalid experiments."""
    for name in (
        "nested.toml tables.toml half.toml binary.toml list.toml word.toml unknown.toml latin.toml "
        "missing.toml a-folder own.npz "
        "key.pem words.txt empty.json"
    ).split():
        yield Case(f"file: run {name}", ("run", name, "--out", "new"))
        yield Case(f"file: audit {name}", ("audit", name, "--quiet"))
    yield Case("file: a path too long", ("run", LONG))
    yield Case("file: a path with a null", ("run", "a\0b"))


RUNS = (
    "no-experiment bad-experiment empty-experiment odd-experiment no-model bad-model "
    "bad-checkpoint bad-metrics no-statement no-result "
    "bad-ledger huge-ledger no-ledgers result-garbage result-list result-nested result-words "
    "statement-garbage statement-list "
    "statement-nested statement-words missing a-folder own.npz"
).split()


def runs() -> Iterator[Case]:
    """Yields commands on damaged runs. Some of them do not read the damaged file, and succeed."""
    for name in (*RUNS, LONG):
        yield Case(
            f"run: resume {name[:20]}",
            ("run", "--resume", name, "--quiet", "--workers", "1"),
            (0, 2),
        )
        yield Case(f"run: compare {name[:20]}", ("compare", name), (0, 2))
        yield Case(f"run: certify {name[:20]}", ("certify", name, "--key", "key.pem"), (0, 2))
        yield Case(f"run: ledger {name[:20]}", ("ledger", "show", name), (0, 2))
        if name not in ("own.npz", LONG):
            yield Case(
                f"run: audit {name[:20]}", ("audit", name, "--quiet", "--game", "ledgers"), (0, 2)
            )
    yield Case("run: runs of a folder with damaged ones", ("runs", "."), (0, 2))
    yield Case("run: runs of nothing", ("runs", "missing"), (0,))
    yield Case("run: runs, a path too long", ("runs", LONG), (0, 2))
    yield Case(
        "run: into a file", ("run", *small_flags(), "--set", "budget.rounds=1", "--out", "own.npz")
    )
    yield Case(
        "run: under a file",
        ("run", *small_flags(), "--set", "budget.rounds=1", "--out", "own.npz/run"),
    )
    yield Case(
        "run: over a run", ("run", *small_flags(), "--set", "budget.rounds=1", "--out", "ready")
    )
    yield Case(
        "run: out, a path too long",
        ("run", *small_flags(), "--set", "budget.rounds=1", "--out", LONG),
    )
    yield Case("run: resume and out", ("run", "--resume", "ready", "--out", "new"))
    for workers in ("0", "-1", "two", "1.5"):
        yield Case(
            f"run: workers {workers}",
            ("run", "--set", "budget.rounds=1", "--workers", workers, "--out", "new"),
        )


def plans() -> Iterator[Case]:
    """Yields invalid plans."""
    for option in ("epsilon", "delta", "sampling-rate", "noise-multiplier", "iterations"):
        for value in ("0", "-1", "nan", "inf", "1e300", "1e-300", "word"):
            options = {"epsilon": "1", "noise-multiplier": "1", option: value}
            flags = itertools.chain.from_iterable(
                (f"--{name}", text) for name, text in options.items()
            )
            yield Case(
                f"plan: {option} {value}",
                ("plan", *flags),
                (0, 2) if value in ("1e300", "1e-300") else (2,),
            )
    yield Case(
        "plan: iterations 10^15", ("plan", "--iterations", str(10**15), "--noise-multiplier", "1")
    )
    yield Case(
        "plan: iterations 10^15, epsilon", ("plan", "--iterations", str(10**15), "--epsilon", "1")
    )
    base = ("plan", "--epsilon", "2")
    for words in (
        "--rounds 0", "--rounds -1", "--rounds 1000000000", "--rounds word", "--rounds 5 --tau 0", "--rounds 5 --tau 1000000000",
        "--rounds 5 --sizes 1,a", "--rounds 5 --sizes 0,5", "--rounds 5 --sizes ,", "--rounds 5 --clients 3",
        "--rounds 5 --clients 0 --size 5", "--rounds 5 --clients 2 --size "
            "0", "--rounds 5 --clients 2 --size -1",
        "--rounds 5 --sizes 5 --clients 2", "--rounds 5 --parameters 0", "--rounds 5 --parameters -1", "--rounds 5 --model cnnn",
        "--rounds 5 --model cnn", "--rounds 5 --model cnn --shape "
            "a", "--rounds 5 --model cnn --shape 0,0,0",
        "--rounds 5 --model cnn --shape 5", "--rounds 5 --model mlp --shape "
            "1000000,1000000", "--rounds 5 --data mnist",
        "--rounds 5 --model cnn --data mnits", "--rounds 5 --model mlp --shape 5 --classes "
            "0", "--rounds 5 --classes 3",
        "--rounds 5 --samples-per-round 0", "--rounds 5 --samples-per-round "
            "5", "--rounds 5 --seconds-per-round nan",
        "--rounds 5 --accountant plds", "--rounds 5 --accountant gdp-clt --delta "
            "1", "--rounds 5 --sampling-rate 2",
        "--rounds 5 --iterations 3", "--rounds 5 --noise-multiplier "
            "3", "--rounds 5 --png none/a.png", "--rounds 5 --png a.exe",
        "--rounds 5 --png a-folder", "--rounds 5 --write none/a.toml", "--rounds 5 --write own.npz", "--rounds 5 --write a-folder",
        "--tau 3", "--png a.png", "--epsilon", "--what 3", "extra",
    ):  # fmt: skip
        yield Case(f"plan: {words}", (*base, *words.split()))
    yield Case("plan: nothing", ("plan",))
    yield Case("plan: rounds without epsilon", ("plan", "--rounds", "5"))
    yield Case("plan: png too long", (*base, "--rounds", "5", "--png", f"{LONG}.png"))
    yield Case("plan: write too long", (*base, "--rounds", "5", "--write", LONG))


def commands() -> Iterator[Case]:
    """Yields invalid words of other commands."""
    for words in (
        "rn", "algorithms fedavg-pd", "algorithms a b", "data shw", "data get", "data get mnits", "data get mnist-sample",
        "data show mnits", "data show --clients 0", "data show --clients -1", "data show --clients 100000", "data show --clients x",
        "data show --seed -1", "data show --seed "
            "1180591620717411303424", "data show --beta 0", "data show --beta nan",
        "data show --beta -1", "data show --partition iidd", "data show --partition iid --beta "
            "1", "data show --public-clients -1",
        "data show --set beta", "data show --partition shards --set "
            "shards=0", "data show --partition label-skew --set classes=99",
        "data show --partition mapping", "data show --partition mapping --set "
            "lists=missing.json", "data show --png none/a.png",
        "data show --partition mapping --set "
            "lists=own.npz", "data show --partition mapping --set lists=words.txt",
        "data show --partition mapping --set "
            "lists=certificates.json", "data show --partition mapping --set lists=[[0,0],[1,2]]",
        "data show --png a.exe", "data show --png a-folder", "data show own.npz --classes "
            "0", "data show own.npz --test-share 0.5",
        "data show mnist-sample --classes 3", "data show data/untested.npz --test-share "
            "2", "data show mnist --data-dir own.npz",
        "compare ready --png none/a.png", "compare ready --png a.exe", "compare ready --png "
            "a-folder", "compare", "compare ready missing",
        "certify", "certify ready", "certify ready --key "
            "missing.pem", "certify ready --key bad.pem", "certify ready --key "
            "words.txt",
        "certify ready --key a-folder", "certify ready --key key.pem --out "
            "none/c.json", "certify ready --key key.pem --out own.npz",
        "certify ready --key key.pem --out a-folder", "certify ready --key key.pem --out c.html",
        "verify missing.json", "verify own.npz", "verify a-folder", "verify empty.json", "verify cert.json", "verify certificates.json",
        "verify words.txt", "verify cert.json --key "
            "missing.pub", "verify cert.json --run missing", "verify",
        "key new key.pem", "key new a-folder", "key new own.npz/key.pem", "key nw",
        "audit fedavg-pd", "audit fedavg-dp --delta 0", "audit fedavg-dp --delta nan", "audit fedavg-dp --delta 2",
        "audit fedavg-dp --confidence 0", "audit fedavg-dp --confidence 1", "audit fedavg-dp "
            "--confidence nan", "audit fedavg-dp --trials 0",
        "audit fedavg-dp --trials -5", "audit fedavg-dp --trials "
            "1000000000000000", "audit fedavg-dp --seed -1",
        "audit fedavg-dp --seed 1180591620717411303424", "audit fedavg-dp --game "
            "chess", "audit fedavg-dp --variant loud",
        "audit ali-dpfl --variant loud", "audit fedavg-dp --out own.npz", "audit fedavg-dp --out "
            "own.npz/under", "audit ready --out own.npz",
        "reproduce ali-33", "reproduce ali-3 --cells "
            "none", "reproduce ali-3 --seeds 0", "reproduce ali-3 --seeds -1",
        "reproduce ali-3 --done", "reproduce ali-3 --out own.npz", "reproduce ali-3 --workers 0 "
            "--out new", "reproduce ali-3 --workers -1",
        "reproduce ali-3 --set budget --out new", "reproduce ali-3 --set budget.rounds=0 --out new",
    ):  # fmt: skip
        code = (1, 2) if words.startswith("verify") else (2,)
        yield Case(f"command: {words}", tuple(words.split()), code)
    yield Case("command: verify, a path too long", ("verify", LONG), (1, 2))
    yield Case("command: key, a path too long", ("key", "new", LONG))
    yield Case("command: audit, a path too long", ("audit", LONG))
    yield Case("command: audit into a path too long", ("audit", "fedavg-dp", "--out", LONG))
    for words in (
        "run missing.toml",
        "plan",
        "compare missing",
        "ledger show missing",
        "verify missing.json",
        "rn",
    ):
        yield Case(
            f"command: {words}, in a process of its own", tuple(words.split()), (1, 2), apart=True
        )


def ledgers() -> Iterator[Case]:
    """Yields invalid words of `dpfl ledger`."""
    for words in (
        "show missing", "show own.npz", "show a-folder", "show words.txt", "show ready --delta 0", "show ready --delta nan",
        "show ready --delta 2", "show ready --delta -1", "show ready --delta 1", "show ready --delta x", "show",
        "limit missing --epsilon 1", "limit ready --epsilon 0", "limit ready --epsilon -1", "limit ready --epsilon nan",
        "limit ready --epsilon inf", "limit ready --epsilon 1 --delta "
            "0", "limit ready --epsilon 1 --delta 2",
        "limit ready --epsilon 1 --delta nan", "limit ready --epsilon 1 --accountant "
            "plds", "limit ready --epsilon 1 --accountant gdp-clt",
        "limit own.npz --epsilon 1", "limit ready", "limit", "shw ready", "show ready extra",
    ):  # fmt: skip
        yield Case(f"ledger: {words}", ("ledger", *words.split()))


def federations() -> Iterator[Case]:
    """Yields invalid words of `dpfl node`, `server` and `up`."""
    for words in (
        "node missing.toml", "node run missing.toml", "node check missing.toml", "node check own.npz", "node check a-folder",
        "node check half.toml", "node check nested.toml", "node check unknown.toml", "node check binary.toml", "node statement missing.toml",
        "node init own.npz", "node init own.npz/under", "node init new --name ../up", "node init new --name "
            "federation", "node int",
        "server missing.toml", "server run half.toml", "server run unknown.toml", "server --resume missing", "server --resume ready",
        "server --resume ready --out new", "server init own.npz", "server init own.npz/under", "up missing.toml", "up --nodes 0", "up --nodes 1000000",
        "up --nodes x", "up --out ready", "up --set algorithm.name=fedavg-pd --out "
            "new", "up --set budget.epsilon=-1 --out new",
        "up --set data.public_clients=1 --out new", "up --set privacy.aggregation=secure --out "
            "new", "up --set privacy.entropy=keyed --out new",
        "up --set algorithm.name=dp-sgd-wav --out new", "up --set data.name=mnits --out "
            "new", "verify cert.json missing.json",
        "verify cert.json empty.json", "verify cert.json own.npz",
    ):  # fmt: skip
        yield Case(
            f"federation: {words}",
            tuple(words.split()),
            (1, 2)
            if words.startswith("verify")
            else (0, 2)
            if words == "node" or words == "server"
            else (2,),
        )
