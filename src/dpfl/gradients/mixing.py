"""Refuses a model in which one sample of a batch changes what another contributes.

Clipping bounds what a unit contributes. It does not bound what a unit changes in the contributions
of others, so such a model has no per-sample guarantee. The test changes the samples of a small
batch in turn. It uses random samples, and random weights of its own: whoever sends the model must
not choose what is tested, and a refusal must tell nothing of the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from dpfl.errors import DpflError
from dpfl.gradients.losses import checked_scores
from dpfl.models import FlatModel
from dpfl.models.columns import find_coded_places
from dpfl.models.flat import evaluating

SIZE = 3
# Other samples may not move a score at all; another batch size may choose other kernels, which
# round differently.
_TOLERANCE = 1e-5
_SIZE_TOLERANCE = 1e-3
_WIDE = 10.0


def refuse_mixing(model: FlatModel, x: Tensor) -> None:
    """Changes each sample of a small batch in turn, and refuses the model if another sample's
    scores move.

    Scores and buffers are compared in the modes that the layers are in, and in evaluation mode.
    Samples and weights are random: a refusal tells nothing of private data, and the weights that a
    server sends can neither hide a mixture nor amplify rounding.

    Args:
        model: The model. It is put back as it was.
        x: A batch, of which only the shape and type matter.

    Raises:
        DpflError: The model mixes samples, or a buffer keeps something of them.
    """
    with restoring(model):
        model.load(random_weights(model))
        rows, others = random_rows(model, x), _other_rows(model, x)
        for mode in modes(model.module):
            with mode:
                _refuse_influence(model, rows, others)
                _refuse_dependence_on_size(model, rows)


def random_rows(model: FlatModel, x: Tensor, size: int = SIZE) -> Tensor:
    """Draws random samples: numbers from 0 to 1, tokens that the task has, codes that a table
    declares.

    Args:
        model: The model they are for.
        x: A batch, of which only the shape and type matter.
        size: The number of samples.

    Returns:
        The samples, the same ones every time.
    """
    generator = torch.Generator().manual_seed(0)
    shape = (size, *x.shape[1:])
    if not x.is_floating_point():
        return torch.randint(_tokens(model), shape, generator=generator).to(x)
    rows = torch.rand(shape, generator=generator)
    for place, count in find_coded_places(model.module).items():
        rows[:, place] = torch.randint(count, (size,), generator=generator).float()
    return rows.to(x)


def narrow_and_wide_rows(model: FlatModel, x: Tensor, size: int) -> Tensor:
    """Draws random samples of which every third and fourth have wide values.

    So both kinds are among those that stay when others are replaced by zeros.

    Args:
        model: The model they are for.
        x: A batch, of which only the shape and type matter.
        size: The number of samples.

    Returns:
        The samples, the same ones every time.
    """
    rows = random_rows(model, x, size)
    if x.is_floating_point():
        wide = torch.arange(size) % 4 >= 2
        rows[wide] = _other_rows(model, x, size)[wide]
    return rows


def _other_rows(model: FlatModel, x: Tensor, size: int = SIZE) -> Tensor:
    """Draws samples that differ from `random_rows` everywhere and have wide values, as samples may.

    They are whole numbers where the model takes no others.
    """
    rows = random_rows(model, x, size)
    if not x.is_floating_point():
        return (rows + 1) % _tokens(model)
    others = _WIDE * torch.randn(rows.shape, generator=torch.Generator().manual_seed(1)).to(rows)
    for place, count in find_coded_places(model.module).items():
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
    """Counts the tokens: as many as the task has, or as the smallest embedding."""
    words = [
        layer.num_embeddings for layer in model.module.modules() if isinstance(layer, nn.Embedding)
    ]
    return min(
        [*words, *([model.task.outputs] if model.task and model.task.reads == "tokens" else [])],
        default=2,
    )


def modes(module: nn.Module) -> tuple[AbstractContextManager[None], ...]:
    """Lists the modes in which a model is tested.

    Args:
        module: The model.

    Returns:
        A context for the modes that the layers are in, and one for evaluation mode.
    """
    return nullcontext(), evaluating(module)


@contextmanager
def restoring(model: FlatModel) -> Iterator[None]:
    """Puts back weights, buffers and torch's random state at its end.

    Inside, noise is added to the weights, so that none is zero: a zero could hide a mixture behind
    it.

    Args:
        model: The model.

    Yields:
        Nothing.
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
    """Draws weights for a test, because whoever chooses the model's weights must not choose what is
    tested.

    Args:
        model: The model they are for.

    Returns:
        A vector in layout order, the same one every time.
    """
    generator = torch.Generator().manual_seed(2)
    parts = []
    for name, shape in zip(model.layout.names, model.layout.shapes, strict=True):
        fan_in = max(1, int(torch.Size(shape[1:]).numel())) if len(shape) > 1 else 1
        weights = torch.randn(shape, generator=generator).flatten() / fan_in**0.5
        parts.append(weights.abs() + 0.5 if name.endswith("running_var") else weights)
    return torch.cat(parts).to(model.vector)


def refusal(what: str) -> DpflError:
    """Makes the error for a model that mixes samples.

    Args:
        what: What was observed.

    Returns:
        The error.
    """
    return DpflError(
        f"The model mixes the samples of a batch ({what}), so no per-sample guarantee is possible; "
        "let each sample's scores depend on that sample alone."
    )


def _scores(model: FlatModel, rows: Tensor, seed: int = 0) -> tuple[Tensor, list[Tensor]]:
    """Computes the scores, and the buffers after the forward pass.

    Every call starts from the same buffers and random state.
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
    for changed_row in range(len(rows)):
        batch = rows.clone()
        batch[changed_row] = others[changed_row]
        changed_scores, changed_state = _scores(model, batch)
        rest = torch.arange(len(rows), device=scores.device) != changed_row
        if not _same(changed_scores[rest], scores[rest], _TOLERANCE):
            raise refusal("the scores of one sample change with another sample")
        if not all(_same(a, b, _TOLERANCE) for a, b in zip(changed_state, state, strict=True)):
            raise refusal(
                "a buffer keeps what the model saw of the samples, and the next batch can see it"
            )


def _refuse_dependence_on_size(model: FlatModel, rows: Tensor) -> None:
    scores, _ = _scores(model, rows)
    if not torch.equal(scores, _scores(model, rows, seed=1)[0]):
        return  # dropout draws other numbers for other sizes
    if not _same(_scores(model, rows[:-1])[0], scores[:-1], _SIZE_TOLERANCE):
        raise refusal("the scores of a sample change with the number of samples")


def _same(scores: Tensor, reference: Tensor, tolerance: float) -> bool:
    if torch.equal(scores, reference):
        return True
    finite = reference.isfinite()
    if scores.shape != reference.shape or not torch.equal(finite, scores.isfinite()):
        return False
    a, b = scores[finite].double(), reference[finite].double()
    return not a.numel() or bool((a - b).abs().max() <= tolerance * b.abs().max())
