"""What a user of the library meets: parts by name, short words for large things, modules of one's
own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

import dpfl
from dpfl.data import Federation
from dpfl.errors import DpflError
from tests.conftest import PATIENCE, StopsAfter, small_crowd, small_source


class Own(nn.Module):
    """Its first weights are another draw every time."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(784, 10)
        self.register_buffer("scale", torch.tensor(scale))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.flatten(1)) * self.scale


def test_models_and_algorithms_go_by_name(
    train: Callable[..., dpfl.Result], federation: Federation
) -> None:
    named = train(federation, "fedavg-dp", out="named", model="cnn", epsilon=4.0, rounds=1)
    made = train(
        federation,
        dpfl.algorithms.fedavg_dp(),
        out="made",
        model=dpfl.models.cnn(),
        epsilon=4.0,
        rounds=1,
    )
    assert named.model_sha256 == made.model_sha256
    planned = dpfl.plan(
        epsilon=2,
        rounds=20,
        sizes=[600] * 10,
        model="cnn",
        shape=(1, 28, 28),
        rates=(0.1,),
        taus=(1,),
    )
    assert planned.question.parameters == 26_010


@pytest.mark.parametrize(
    ("model", "algorithm", "says"),
    [
        ("cn", "auto", "did you mean 'cnn'"),
        (Own, "auto", "not the class Own"),
        (3, "auto", "not a int"),
        ("cnn", "outo", "did you mean 'auto'"),
        ("cnn", dpfl.algorithms.auto, "not a function"),
    ],
)
def test_what_is_neither_a_name_nor_a_part_gets_a_sentence(
    train, federation, tmp_path, model, algorithm, says
) -> None:
    with pytest.raises(DpflError, match=says):
        train(federation, algorithm, model=model, epsilon=4.0, rounds=1)
    assert not any(tmp_path.iterdir())


def test_what_is_printed_has_sizes_and_never_samples(
    train: Callable[..., dpfl.Result], federation: Federation
) -> None:
    result = train(federation, "fedavg-dp", epsilon=4.0, rounds=2)
    shown = {
        "4 clients with 250 samples each": federation,
        "3 public clients": small_crowd(),
        "1000 samples of 1 x 28 x 28 in 10 classes": small_source(),
        "after 2 rounds": result,
        "for one sample: epsilon": result,
    }
    for words, thing in shown.items():
        assert words in repr(thing)
    for thing in (*shown.values(), federation.train):
        assert "tensor" not in repr(thing)
        assert len(repr(thing)) < 300


def test_a_module_of_ones_own_resumes_with_the_weights_it_began_with(
    train: Callable[..., dpfl.Result], federation: Federation
) -> None:
    budget = {"epsilon": 4.0, "rounds": 3}
    torch.manual_seed(0)
    whole = train(federation, "fedavg-dp", out="whole", model=Own(), **budget)
    for round in (1, 2):
        torch.manual_seed(0)
        with pytest.raises(KeyboardInterrupt):
            train(
                federation,
                "fedavg-dp",
                out=f"at-{round}",
                model=Own(),
                progress=StopsAfter(round),
                **budget,
            )
        resumed = train(
            federation, "fedavg-dp", out=f"at-{round}", model=Own(), resume=True, **budget
        )
        assert resumed.model_sha256 == whole.model_sha256
        assert resumed.privacy.proven == whole.privacy.proven


def test_a_module_that_stopped_before_its_first_round_was_kept_begins_with_the_same_weights(
    train: Callable[..., dpfl.Result], federation: Federation
) -> None:
    class Stops(StopsAfter):
        def start(self, job: object) -> None:
            raise KeyboardInterrupt

    torch.manual_seed(0)
    whole = train(federation, "fedavg-dp", out="whole", model=Own(), epsilon=4.0, rounds=1)
    torch.manual_seed(0)
    with pytest.raises(KeyboardInterrupt):
        train(federation, "fedavg-dp", model=Own(), epsilon=4.0, rounds=1, progress=Stops(0))
    assert (
        train(federation, "fedavg-dp", model=Own(), epsilon=4.0, rounds=1, resume=True).model_sha256
        == whole.model_sha256
    )


@pytest.mark.parametrize("other", [Own(scale=2.0), nn.Sequential(nn.Flatten(), nn.Linear(784, 10))])
def test_another_module_does_not_resume(
    train: Callable[..., dpfl.Result], federation: Federation, other: nn.Module
) -> None:
    train(federation, "fedavg-dp", model=Own(), epsilon=4.0, rounds=1)
    with pytest.raises(DpflError, match="differs from that of the run"):
        train(federation, "fedavg-dp", model=other, epsilon=4.0, rounds=1, resume=True)


PROMPT = """
import dpfl
from torch import nn

class Net(nn.Sequential):
    pass

data = dpfl.data.sample().split(clients=4, how=dpfl.data.IID(), seed=0)
try:
    execution = dpfl.Execution(out="run", workers=2)
    dpfl.train({model}, data, "fedavg", dpfl.Budget(rounds=1), execution=execution)
except dpfl.DpflError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("flag", "model", "says"),
    [
        (
            "-c",
            "Net(nn.Flatten(), nn.Linear(784, 10))",
            "Net was defined at a prompt): put its class",
        ),
        ("-", "'mlp'", "cannot read the program <stdin>: save it in a file, or set workers = 1"),
    ],
)
def test_workers_and_a_class_of_the_prompt_are_one_sentence(tmp_path, flag, model, says) -> None:
    program = PROMPT.format(model=model)
    words, piped = ([flag, program], None) if flag == "-c" else ([flag], program)
    done = subprocess.run(
        [sys.executable, *words],
        input=piped,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=PATIENCE,
    )
    assert says in done.stdout
    assert len(done.stdout.strip().splitlines()) == 1
    assert not done.stderr
    assert not (tmp_path / "run").exists()


def test_workers_and_a_class_inside_a_function_are_one_sentence(
    train, federation: Federation, tmp_path
) -> None:
    class Inside(nn.Sequential):
        pass

    with pytest.raises(DpflError, match=r"cannot import the model .*Inside.* workers = 1"):
        train(
            federation,
            "fedavg-dp",
            model=Inside(nn.Flatten(), nn.Linear(784, 10)),
            epsilon=4.0,
            rounds=1,
            workers=2,
        )
    assert not any(tmp_path.iterdir())
