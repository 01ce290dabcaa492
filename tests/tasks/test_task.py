"""The loss of a sample, and its slope at the scores, against formulas written out here."""

import math

import pytest
import torch

from dpfl import tasks
from dpfl.errors import DpflError

SEQUENCE = torch.tensor([[1, 0, -100], [-100, -100, -100], [2, 2, 1]])

CASES = [
    (tasks.MultiClass(3), (4, 3), torch.tensor([0, 1, 2, 1])),
    (tasks.MultiClass(3, (1.0, 0.5, 2.0)), (4, 3), torch.tensor([0, 1, 2, 1])),
    (tasks.Binary(), (4, 1), torch.tensor([0.0, 1.0, 1.0, 0.0])),
    (tasks.Binary(), (4,), torch.tensor([0.0, 1.0, 1.0, 0.0])),
    (tasks.Binary((1.0, 3.0)), (4, 1), torch.tensor([0.0, 1.0, 1.0, 0.0])),
    (tasks.MultiLabel(2), (3, 2), torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])),
    (tasks.Ordinal(4), (4, 3), torch.tensor([0, 1, 2, 3])),
    (tasks.Regression(), (3, 1), torch.tensor([0.5, -2.0, 3.0])),
    (tasks.Regression("huber", width=0.7), (3, 1), torch.tensor([0.5, -2.0, 3.0])),
    (tasks.Counts(), (3, 1), torch.tensor([0.0, 2.0, 40.0])),
    (tasks.Counts(mean=2.5), (3, 1), torch.tensor([0.0, 2.0, 40.0])),
    (tasks.NextToken(4), (3, 3, 4), SEQUENCE),
]
IDS = [f"{task.name}-{number}" for number, (task, *_) in enumerate(CASES)]


def written_out(task, scores, y):
    """The loss of one sample, by its formula, in plain Python."""
    match task:
        case tasks.MultiClass():
            weight = task.weights[y] if task.weights else 1
            return weight * (math.log(sum(math.exp(s) for s in scores)) - scores[y])
        case tasks.Binary():
            weight = task.weights[int(y)] if task.weights else 1
            return weight * (math.log(1 + math.exp(scores[0])) - y * scores[0])
        case tasks.MultiLabel():
            return (
                sum(math.log(1 + math.exp(s)) - b * s for s, b in zip(scores, y, strict=True))
                / task.count
            )
        case tasks.Ordinal():
            return sum(math.log(1 + math.exp(s)) - (y > k) * s for k, s in enumerate(scores)) / (
                task.levels - 1
            )
        case tasks.Regression():
            far = abs(scores[0] - y)
            inside = task.loss == "squared" or far <= task.width
            return far**2 / 2 if inside else task.width * far - task.width**2 / 2
        case tasks.Counts():
            return math.exp(scores[0]) - y / task.mean * scores[0]
        case tasks.NextToken():
            known = [(place, token) for place, token in enumerate(y) if token != -100]
            lost = [
                math.log(sum(math.exp(s) for s in scores[place])) - scores[place][token]
                for place, token in known
            ]
            return sum(lost) / len(lost) if lost else 0.0


@pytest.mark.parametrize(("task", "shape", "y"), CASES, ids=IDS)
def test_the_loss_is_that_of_the_formula(task, shape, y):
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    rows = scores.unsqueeze(1) if scores.dim() == 1 else scores
    expected = [
        written_out(task, row, label) for row, label in zip(rows.tolist(), y.tolist(), strict=True)
    ]
    assert task.losses(scores, y).tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert task.losses_and_slopes(scores, y)[0].tolist() == pytest.approx(
        expected, rel=1e-5, abs=1e-6
    )


@pytest.mark.parametrize(("task", "shape", "y"), CASES, ids=IDS)
@pytest.mark.parametrize("size", [0.1, 3.0, 30.0])
def test_slopes_are_the_gradients_of_the_losses(task, shape, y, size):
    scores = (
        size * torch.randn(shape, generator=torch.Generator().manual_seed(2))
    ).requires_grad_()
    expected = torch.autograd.grad(task.losses(scores, y).sum(), scores)[0]
    losses, slopes = task.losses_and_slopes(scores.detach(), y)
    assert slopes.shape == scores.shape
    torch.testing.assert_close(slopes, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(losses, task.losses(scores, y).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("task", "shape", "y"), CASES, ids=IDS)
def test_the_loss_of_a_sample_does_not_depend_on_the_others(task, shape, y):
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    together, slopes = task.losses_and_slopes(scores, y)
    for row in range(len(y)):
        alone, slope = task.losses_and_slopes(scores[row : row + 1], y[row : row + 1])
        torch.testing.assert_close(alone, together[row : row + 1])
        torch.testing.assert_close(slope, slopes[row : row + 1])


@pytest.mark.parametrize(("task", "shape", "y"), CASES, ids=IDS)
def test_a_model_of_another_size_is_refused(task, shape, y):
    wrong = torch.zeros(*shape[:-1], shape[-1] + 1) if len(shape) > 1 else torch.zeros(shape[0], 2)
    with pytest.raises(DpflError, match="outputs per sample"):
        task.losses(wrong, y)
    with pytest.raises(DpflError, match="outputs per sample"):
        task.losses_and_slopes(wrong, y)


@pytest.mark.parametrize(
    ("task", "given", "match"),
    [
        (tasks.MultiClass(3), [0, 3], "from 0 to 2"),
        (tasks.MultiClass(3), [-1, 1], "from 0 to 2"),
        (tasks.MultiClass(3), [0.5, 1.0], "whole numbers"),
        (tasks.MultiClass(3), [math.nan, 1.0], "not finite"),
        (tasks.MultiClass(3), [8e9, 1.0], "from 0 to 2"),
        (tasks.MultiClass(3), [[0, 1], [1, 2]], "one label for each sample"),
        (tasks.Binary(), [0, 2], "from 0 to 1"),
        (tasks.MultiLabel(3), [[0, 1], [1, 0]], "3 of 0 or 1"),
        (tasks.Ordinal(3), [0, 5], "from 0 to 2"),
        (tasks.Regression(), [math.inf], "finite"),
        (tasks.Counts(), [-1], "at least 0"),
        (tasks.Counts(), [1.5], "whole numbers"),
        (tasks.NextToken(4), [1, 2], "one row per sequence"),
        (tasks.NextToken(4), [[1, 4]], "from 0 to 3"),
    ],
)
def test_labels_that_do_not_fit_are_refused(task, given, match):
    with pytest.raises(DpflError, match=match):
        task.labels(torch.tensor(given))


def test_labels_get_the_form_that_the_loss_takes():
    assert tasks.MultiClass(3).labels(torch.tensor([[0.0], [2.0]])).tolist() == [0, 2]
    assert tasks.Binary().labels(torch.tensor([0, 1])).dtype == torch.float32
    assert tasks.Regression(centre=10.0, scale=2.0).labels(torch.tensor([12, 8])).tolist() == [
        12.0,
        8.0,
    ]


@pytest.mark.parametrize(("task", "shape", "y"), CASES, ids=IDS)
def test_labels_that_have_their_form_keep_it(task, shape, y):
    once = task.labels(y)
    assert torch.equal(task.labels(once), once)
    assert once.dtype == task.examples(3).dtype


@pytest.mark.parametrize(("task", "shape", "y"), CASES, ids=IDS)
def test_what_is_shown_under_way_is_measured_alike_at_the_end(task, shape, y):
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(4)).numpy()
    shown, measured = task.live_metrics(scores, y.numpy()), task.metrics(scores, y.numpy())
    assert task.headline in shown
    assert ("accuracy" in shown) == ("accuracy" in measured)
    assert shown == pytest.approx({name: measured[name] for name in shown}, nan_ok=True)


@pytest.mark.parametrize("task", [task for task, *_ in CASES], ids=IDS)
def test_examples_fit_their_task(task):
    y = task.examples(5)
    shape = (
        (*y.shape, task.outputs) if isinstance(task, tasks.NextToken) else (len(y), task.outputs)
    )
    assert torch.isfinite(task.losses(torch.zeros(shape), y)).all()


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("class", {}, "no task"),
        ("classes", {"classes": 0}, "at least 1"),
        ("classes", {"classes": 3, "weights": (1.0,)}, "class weights"),
        ("binary", {"weights": (1.0, 0.0)}, "positive"),
        ("ordinal", {"levels": 1}, "at least 2"),
        ("number", {"loss": "absolute"}, "squared, huber"),
        ("number", {"scale": 0.0}, "positive"),
        ("tokens", {"vocabulary": 1}, "at least 2"),
        ("tokens", {"vocabulary": "many"}, "vocabulary"),
        ("tokens", {}, "vocabulary"),
        ("counts", {"classes": 3}, "no option"),
    ],
)
def test_tasks_that_make_no_sense_are_refused(name, options, match):
    with pytest.raises(DpflError, match=match):
        tasks.from_name(name, **options)
