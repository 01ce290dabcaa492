"""Cases of bad_inputs.py that call the Python API: tables, models, data and options, each wrong in one
way.
"""

# ruff: noqa: E501
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bad_inputs import LONG, Case

ROWS = "age,sex,died,site,id\n40,f,0,a,1\n50,m,1,a,2\n60,f,1,b,3\n70,m,0,b,4\n"
TABLES: dict[str, tuple[bytes, dict[str, object]]] = {
    "empty": (b"", {}), "a header alone": (ROWS.splitlines()[0].encode(), {}), "no such column": (ROWS.encode(), {"label": "dead"}),
    "a label of words": (ROWS.replace(",0,", ",no,").encode(), {}), "a label outside": (ROWS.replace("m,1", "m,7").encode(), {}),
    "a short row": ((ROWS + "3,f\n").encode(), {}), "a long row": ((ROWS + "3,f,0,a,9,9,9\n").encode(), {}),
    "a number of words": (ROWS.replace("40", "forty").encode(), {}), "nothing in a cell": (ROWS.replace("40", "").encode(), {}),
    "an undeclared level": (ROWS.replace("50,m", "50,x").encode(), {}), "an undeclared site": (ROWS.replace(",b,", ",c,").encode(), {}),
    "a person that is not there": (ROWS.encode(), {"person": "who"}), "bounds upside down": (ROWS.encode(), {"columns": {"age": {"low": 9, "high": 1}}}),
    "no columns": (ROWS.encode(), {"columns": {}}), "a label that is a feature": (ROWS.encode(), {"columns": {"died": {"low": 0, "high": 1}}}),
    "latin": ("\xe4ge,sex\n".encode("latin-1") + ROWS.encode(), {}), "zeros": (b"\0" * 200, {}), "two headers alike": (("age," + ROWS).encode(), {}),
    "a task of nothing": (ROWS.encode(), {"task": "binry"}), "a share of 2": (ROWS.encode(), {"test": {"share": 2}}),
}  # fmt: skip


def tables() -> Iterator[Case]:
    """Yields experiments on files of tables."""
    for name, (content, words) in TABLES.items():
        yield Case(f"table: {name}", partial(_table, content, words))


def _table(content: bytes, words: dict[str, object], folder: Path) -> object:
    from dpfl.config.experiment import parse

    (folder / "stays.csv").write_bytes(content)
    columns = {"age": {"low": 0, "high": 100}, "sex": {"levels": ["f", "m"]}}
    data = {
        "name": str(folder / "stays.csv"),
        "label": "died",
        "task": "binary",
        "site": "site",
        "sites": ["a", "b"],
        "columns": columns,
    } | words
    budget = {"epsilon": 1.0, "rounds": 1}
    return parse(
        {
            "data": data,
            "model": {"name": "linear"},
            "algorithm": {"name": "fedavg-dp"},
            "budget": budget,
        }
    ).run(folder / "new", workers=1)


def calls() -> Iterator[Case]:
    """Yields calls of the Python API."""
    for name, call in _python().items():
        yield Case(f"python: {name}", call)


def _train(folder: Path, **options: object) -> object:
    """Trains with valid arguments, except the given ones."""
    import dpfl
    from dpfl.run.flat_options import group_flat_options

    whole: dict[str, object] = {
        "model": dpfl.models.mlp(hidden=4),
        "algorithm": dpfl.algorithms.fedavg_dp(sampling_rate=0.5, noise_multiplier=1.0),
        "budget": dpfl.Budget(rounds=1, delta=1e-3),
        "out": folder / "new",
    }
    whole |= {name: value() if callable(value) else value for name, value in options.items()}
    federation = whole.pop("federation", None) or dpfl.data.npz("own.npz").split(2, dpfl.data.IID())
    groups, _ = group_flat_options(whole)
    return dpfl.train(federation=federation, **groups)


def _python() -> dict[str, Callable[[Path], object]]:
    import torch
    from torch import nn

    import dpfl
    from dpfl import algorithms
    from dpfl.data import IID, Dirichlet, Federation, tensors
    from dpfl.privacy import Limit, Poisson

    class Raising(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(5, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("two\nlines")

    x, y = torch.ones(6, 2), torch.arange(6) % 3
    models = {
        "nine outputs": lambda: nn.Linear(5, 2), "a wrong input": lambda: nn.Linear(4, 3), "no parameters": nn.Identity,
        "three dimensions": lambda: nn.Sequential(nn.Linear(5, 6), nn.Unflatten(1, (3, 2))), "a forward that raises": Raising,
        "batch norm": lambda: nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)), "float64": lambda: nn.Linear(5, 3).double(),
        "a lazy layer": lambda: nn.LazyLinear(3), "weights of nan": lambda: _fill(nn.Linear(5, 3), torch.nan),
        "weights of inf": lambda: _fill(nn.Linear(5, 3), torch.inf),
    }  # fmt: skip
    rates = {
        f"rate {rate:g}": rate for rate in (float("inf"), float("nan"), 0.0, -1.0, 1e39, 1e300)
    }
    budgets: dict[str, dict[str, object]] = {
        "nothing": {}, "epsilon true": {"epsilon": True}, "epsilon a word": {"epsilon": "2"}, "epsilon nan": {"epsilon": float("nan")},
        "rounds 1.5": {"rounds": 1.5}, "rounds true": {"rounds": True}, "rounds 10^9": {"rounds": 10**9}, "delta 1": {"rounds": 1, "delta": 1},
        "bytes 0": {"bytes": 0}, "seconds -1": {"seconds": -1},
    }  # fmt: skip
    data: dict[str, Callable[[], object]] = {
        "no classes": lambda: tensors(x, y), "complex": lambda: tensors(x * 1j, y, x, y), "half a test set": lambda: tensors(x, y, x, classes=3),
        "labels outside": lambda: tensors(x, y, classes=2), "labels of nan": lambda: tensors(x, y * torch.nan, x, y),
        "labels of 8e9": lambda: tensors(x, y, x, y * 8e9), "nan": lambda: tensors(x * torch.nan, y, x, y), "words": lambda: tensors(["a"], y, x, y),  # type: ignore[arg-type]
        "empty": lambda: tensors(x[:0], y[:0], x, y), "no clients": lambda: Federation.from_tensors([], (x, y)),
        "clients of two shapes": lambda: Federation.from_tensors([(x, y), (x[:, :1], y)], classes=3),
        "a client without classes": lambda: Federation.from_tensors([(x, y)]), "beta 0": lambda: Dirichlet(0.0), "beta nan": lambda: Dirichlet(float("nan")),
        "0 clients": lambda: tensors(x, y, x, y).split(0, IID()), "seed -1": lambda: tensors(x, y, x, y).split(2, IID(), seed=-1),
        "true classes": lambda: tensors(x, y, classes=True), "a share of 2": lambda: dpfl.data.npz("own.npz", test_share=2),
    }  # fmt: skip
    parts: dict[str, Callable[[], object]] = {
        "rate 0": lambda: Poisson(0.0), "limit nan": lambda: Limit(float("nan"), 1e-5, "pld"), "hidden true": lambda: dpfl.models.mlp(hidden=True),
        "limit of no accountant": lambda: Limit(1.0, 1e-5, "plds"), "hidden 10^12": lambda: dpfl.models.mlp(hidden=10**12),
        "noise 1e300": lambda: algorithms.fedavg_dp(noise_multiplier=1e300), "noise 1e-300": lambda: algorithms.fedavg_dp(noise_multiplier=1e-300),
        "tau 10^9": lambda: algorithms.fedavg_dp(tau=10**9), "an unknown option": lambda: algorithms.from_name("fedavg-dp", tua=1),
        "an unknown model": lambda: dpfl.models.from_name("cnnn"), "a module that is none": lambda: dpfl.models.from_module(3),  # type: ignore[arg-type]
        "a plan of 10^9 rounds": lambda: dpfl.plan(1.0, 10**9), "a plan of epsilon nan": lambda: dpfl.plan(float("nan"), 5),
        "a true tau": lambda: algorithms.from_name("fedavg-dp", tau=True), "a word for tau": lambda: algorithms.from_name("fedavg-dp", tau="3"),
    }  # fmt: skip
    options: dict[str, dict[str, object]] = {
        "seed -1": {"seed": -1}, "seed 2^70": {"seed": 2**70}, "seed true": {"seed": True}, "workers 0": {"workers": 0},
        "evaluate every 0": {"evaluate_every": 0}, "evaluate every -1": {"evaluate_every": -1}, "no accountant": {"accountant": "plds"},
        "entropy": {"entropy": "loud"}, "noise": {"noise": "loud"}, "resume nothing": {"resume": True}, "out a file": {"out": "own.npz"},
        "out too long": {"out": LONG}, "ledger a file": {"ledger": "own.npz"}, "ledger under a file": {"ledger": "own.npz/under"},
        "noise secure and keyed": {"noise": "secure", "entropy": "keyed"},
    }  # fmt: skip
    calls: dict[str, Callable[[Path], object]] = {}
    calls |= {f"model of {name}": partial(_train, model=make) for name, make in models.items()}
    calls |= {
        name: partial(
            _train, algorithm=partial(algorithms.fedavg_dp, noise_multiplier=1.0, rate=rate)
        )
        for name, rate in rates.items()
    }
    calls |= {
        f"budget of {name}": partial(_train, budget=partial(dpfl.Budget, **arguments))
        for name, arguments in budgets.items()
    }  # type: ignore[arg-type]
    calls |= {f"data: {name}": (lambda _, make=make: make()) for name, make in data.items()}
    calls |= {f"part: {name}": (lambda _, make=make: make()) for name, make in parts.items()}
    calls |= {f"train: {name}": partial(_train, **arguments) for name, arguments in options.items()}
    return calls


def _fill(module: object, value: float) -> object:
    import torch

    with torch.no_grad():
        for parameter in module.parameters():  # type: ignore[attr-defined]
            parameter.fill_(value)
    return module
