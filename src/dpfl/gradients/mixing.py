"""Refuses models in which one sample of a batch changes what another contributes: no per-sample
guarantee holds for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from dpfl.errors import DpflError
from dpfl.gradients.losses import checked_scores
from dpfl.models import FlatModel
from dpfl.models.columns import coded
from dpfl.models.flat import evaluating

SIZE = 3
# Other samples may not move a score at all; another batch size may choose other kernels, which
# round differently.
_TOLERANCE = 1e-5
_SIZE_TOLERANCE = 1e-3
_WIDE = 10.0


def refuse_mixing(model: FlatModel, x: Tensor) -> None:
    """Changes each sample of a small batch in turn, in training and in evaluation mode; the others'
    scores must not move.

    The samples are random, of the shape and kind of those in x: what is refused says nothing of
    private data. So are the weights: those that a server sends could hide a mixture, or make much
    of rounding.
    """
    with untouched(model):
        model.load(random_weights(model))
        rows, others = random_rows(model, x), _other_rows(model, x)
        for mode in modes(model.module):
            with mode:
                _refuse_influence(model, rows, others)
                _refuse_dependence_on_size(model, rows)


def random_rows(model: FlatModel, x: Tensor, size: int = SIZE) -> Tensor:
    """Numbers from 0 to 1, tokens that the task has, codes that a table declares."""
    generator = torch.Generator().manual_seed(0)
    shape = (size, *x.shape[1:])
    if not x.is_floating_point():
        return torch.randint(_tokens(model), shape, generator=generator).to(x)
    rows = torch.rand(shape, generator=generator)
    for place, count in coded(model.module).items():
        rows[:, place] = torch.randint(count, (size,), generator=generator).float()
    return rows.to(x)


def mixed_rows(model: FlatModel, x: Tensor, size: int) -> Tensor:
    """Random rows of which every third and fourth are wide, so that either kind is among those that
    stay beside zeros.
    """
    rows = random_rows(model, x, size)
    if x.is_floating_point():
        wide = torch.arange(size) % 4 >= 2
        rows[wide] = _other_rows(model, x, size)[wide]
    return rows


def _other_rows(model: FlatModel, x: Tensor, size: int = SIZE) -> Tensor:
    """Unlike in every place, and wide, as samples may be; whole numbers where the model takes no
    others.
    """
    rows = random_rows(model, x, size)
    if not x.is_floating_point():
        return (rows + 1) % _tokens(model)
    others = _WIDE * torch.randn(rows.shape, generator=torch.Generator().manual_seed(1)).to(rows)
    for place, count in coded(model.module).items():
        others[:, place] = (rows[:, place] + 1) % count
    try:
        with evaluating(model.module):
            _scores(model, others)
    except DpflError:
        raise
    except Exception:  # the user's own code can fail in any way
        return torch.randint(
            _tokens(model), rows.shape, generator=torch.Generator().manual_seed(1)
        ).to(rows)
    return others


def _tokens(model: FlatModel) -> int:
    """How many there are: as many as the task has, or as the smallest table of words."""
    words = [
        layer.num_embeddings for layer in model.module.modules() if isinstance(layer, nn.Embedding)
    ]
    return min(
        [*words, *([model.task.outputs] if model.task and model.task.reads == "tokens" else [])],
        default=2,
    )


def modes(module: nn.Module) -> tuple[AbstractContextManager[None], ...]:
    """The modes that the layers are in, and evaluation mode."""
    return nullcontext(), evaluating(module)


@contextmanager
def untouched(model: FlatModel) -> Iterator[None]:
    """Puts back weights, buffers and torch's random state. Inside, no weight is zero: it could hide
    a mixture behind it.
    """
    buffers = [(buffer, buffer.clone()) for buffer in model.module.buffers()]
    vector = model.read()
    generator = torch.Generator().manual_seed(0)
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            for parameter in model.parameters:
                fan_in = parameter[0].numel() if parameter.dim() > 1 else 1
                noise = torch.randn(parameter.shape, generator=generator) * (0.1 / fan_in**0.5)
                parameter.add_(noise.to(parameter.device))
            yield
    finally:
        model.load(vector)
        for buffer, value in buffers:
            buffer.copy_(value)


def random_weights(model: FlatModel) -> Tensor:
    """Weights of a test's own: who chooses the model's must not choose what is tested."""
    generator = torch.Generator().manual_seed(2)
    parts = []
    for name, shape in zip(model.layout.names, model.layout.shapes, strict=True):
        fan_in = max(1, int(torch.Size(shape[1:]).numel())) if len(shape) > 1 else 1
        weights = torch.randn(shape, generator=generator).flatten() / fan_in**0.5
        parts.append(weights.abs() + 0.5 if name.endswith("running_var") else weights)
    return torch.cat(parts).to(model.vector)


def refusal(what: str) -> DpflError:
    return DpflError(
        f"The model mixes the samples of a batch ({what}), so no per-sample guarantee is possible; "
        "let each sample's scores depend on that sample alone."
    )


def _scores(model: FlatModel, rows: Tensor, seed: int = 0) -> tuple[Tensor, list[Tensor]]:
    """Scores, and the buffers as they are after the forward pass, which starts from the same
    buffers and random state.
    """
    before = [(buffer, buffer.clone()) for buffer in model.module.buffers()]
    torch.default_generator.manual_seed(
        seed
    )  # alone: torch.manual_seed writes down the stack for every other device
    scores = checked_scores(model.module(model.arrange(rows)), len(rows))
    after = [buffer.clone() for buffer, _ in before]
    for buffer, value in before:
        buffer.copy_(value)
    return scores, after


def _refuse_influence(model: FlatModel, rows: Tensor, others: Tensor) -> None:
    scores, state = _scores(model, rows)
    for changed in range(len(rows)):
        batch = rows.clone()
        batch[changed] = others[changed]
        found, found_state = _scores(model, batch)
        rest = torch.arange(len(rows), device=scores.device) != changed
        if not _same(found[rest], scores[rest], _TOLERANCE):
            raise refusal("the scores of one sample change with another sample")
        if not all(_same(a, b, _TOLERANCE) for a, b in zip(found_state, state, strict=True)):
            raise refusal(
                "a buffer keeps what the model saw of the samples, and the next batch can see it"
            )


def _refuse_dependence_on_size(model: FlatModel, rows: Tensor) -> None:
    scores, _ = _scores(model, rows)
    if not torch.equal(scores, _scores(model, rows, seed=1)[0]):
        return  # dropout draws other numbers for other sizes
    if not _same(_scores(model, rows[:-1])[0], scores[:-1], _SIZE_TOLERANCE):
        raise refusal("the scores of a sample change with the number of samples")


def _same(found: Tensor, expected: Tensor, tolerance: float) -> bool:
    if torch.equal(found, expected):
        return True
    finite = expected.isfinite()
    if found.shape != expected.shape or not torch.equal(finite, found.isfinite()):
        return False
    a, b = found[finite].double(), expected[finite].double()
    return not a.numel() or bool((a - b).abs().max() <= tolerance * b.abs().max())
