"""The effect of clipping on FedAvg (Zhang et al. 2021): Tables 1 to 4 and Figures 1 to 11."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpfl_papers.cells import Cell, PaperTable
from dpfl_papers.stationary import StationaryPoint
from dpfl_papers.training import Training
from dpfl_papers.updates import UpdateComparison

DELTA, CLIENTS, COHORT, STEPS, BATCH, RATE = 1e-5, 1920, 80, 32, 64, 0.05
ROUNDS, ROUND_OF_UPDATES = 100, 16
CURVE_POINTS, LATER_ROUNDS = 10, (2, 16, 64)
SKEW = [230, 230, 5, 5, 5, 5, 5, 5, 5, 5]
"""Images of each class that a client with 500 has."""
CLIPS = {"mlp": 0.203, "alexnet": 0.403, "mobilenet-v2": 1.45, "resnet-18": 1.43}
"""Half the mean norm of an update, measured once on the embedded images, which are some of MNIST's
training images.
"""
MODELS = {
    "mlp": "MLP",
    "alexnet": "AlexNet",
    "mobilenet-v2": "MobileNetV2",
    "resnet-18": "ResNet-18",
}
GROUPS = {"mnist": "MNIST for EMNIST", "cifar10": "CIFAR-10"}

TABLE_2: dict[tuple[str, str], tuple[float, float, float, float]] = {
    ("alexnet", "mnist"): (98.20, 0.19, 95.60, 3.60),
    ("alexnet", "cifar10"): (66.01, 4.83, 57.14, 7.30),
    ("resnet-18", "mnist"): (99.61, 0.02, 95.43, 0.10),
    ("resnet-18", "cifar10"): (76.36, 0.53, 59.46, 1.55),
}
"""FedAvg on IID data and what clipping takes from it, then the same on other data."""
TABLE_3: dict[str, tuple[float, float | None, float, float]] = {
    "mlp": (94.0, None, 0.29, 1.5),
    "alexnet": (96.4, 1.47, 0.16, 1.5),
    "mobilenet-v2": (97.8, 0.35, 1.62, 1.5),
    "resnet-18": (95.2, -0.15, 3.76, 5.0),
}
"""FedAvg, what clipping takes from it, what noise takes from that, and epsilon."""
TABLE_4 = ("mlp", "alexnet", "resnet-18")

CLIENT_NOTES = (
    "1,920 clients that each draw their own images, so that clients may share some, as the paper "
    "says for CIFAR-10: "
    "60,000 images of MNIST are too few for 1,920 clients of 125 or 500 that share none. N, P and "
    "sizes are the paper's.",
    "MNIST stands in for EMNIST's digits, whose files were not there; with them, `--set "
    "data.name=emnist-digits` is all that "
    "it takes. Skewed clients have the paper's labels: of 500 images 230 of two classes each and 5 "
    "of the other eight "
    "(`data.labels`), of 125 a quarter of that, rounded.",
)
OPEN = (
    f"Open in the paper: rounds ({ROUNDS}), learning rates (0.05 at clients, 1 at the server). "
    "Normalisation is by groups.",
    "Clip: half the mean norm of FedAvg's updates, which the paper takes from the private data. "
    "Here it is a fixed number for "
    f"each model ({', '.join(f'{MODELS[name]} {clip:g}' for name, clip in CLIPS.items())}), "
    "measured on the embedded "
    "images with 4 clients of 125 a round: over 100 rounds (MLP), rounds 2 to 4 (AlexNet) or the "
    "first round (the others).",
    "The embedded images are 8,000 of MNIST's training images: on MNIST no epsilon here covers the "
    "choice of the clip, as none "
    "does in the paper. On CIFAR-10 the clip owes nothing to the data.",
    "A drop of x % is read as x points, and the printed numbers of clipping and noise are those "
    "that it leaves.",
)
PUBLISHED_NOTE = (
    "Rows with `published` have the paper's clip: half the mean norm of an update in a run of "
    "FedAvg without privacy, on the "
    "same clients, for as many rounds, which is made first. No epsilon is proven of them, whatever "
    "their noise is."
)
NOISE = (
    "DP-FedAvg draws 80 clients in the mean (Poisson), as its proof needs, with noise at the "
    "server; the paper draws 80."
)


def tables() -> dict[str, PaperTable]:
    """Builds the tables and figures of the paper and of its appendix.

    Returns:
        The tables by name.
    """
    digits, cifar = _private_digits(), _private_cifar()
    main_part = (
        _stationary(),
        _clipping_accuracies(),
        digits,
        cifar,
        _figure("mnist", 1),
        _figure("cifar10", 2),
    )
    curves = (_curves(digits, 3, "digits"), _curves(cifar, 4, "CIFAR-10"))
    appendix = [_later("mnist", model, 5 + place) for place, model in enumerate(MODELS)]
    appendix += [_later("cifar10", model, 9 + place) for place, model in enumerate(TABLE_4)]
    return {table.name: table for table in (*main_part, *curves, *appendix)}


def population(data: str, skewed: bool, images: int) -> dict[str, Any]:
    """Describes 1,920 clients.

    Args:
        data: Name of the data set.
        skewed: Whether clients have the paper's skewed labels.
        images: Images per client.

    Returns:
        The content of `[data]`.
    """
    return {"name": data, "clients": CLIENTS, "partition": "drawn", "images": images} | (
        {"labels": SKEW} if skewed else {}
    )


def section_2(data: str, skewed: bool) -> dict[str, Any]:
    """Describes the clients of Section 2, who have 500 images each.

    Args:
        data: Name of the data set.
        skewed: Whether clients differ. On CIFAR-10 the text calls clients with 50 balanced images
            non-IID.

    Returns:
        The content of `[data]`.
    """
    return population(data, skewed and data == "mnist", 50 if skewed and data == "cifar10" else 500)


def content(
    data_section: dict[str, Any],
    model: str,
    algorithm: dict[str, Any],
    epsilon: float | None,
    rounds: int,
) -> dict[str, Any]:
    """Writes the content of an experiment file.

    Args:
        data_section: Content of `[data]`.
        model: Name of the network.
        algorithm: Content of `[algorithm]`.
        epsilon: The budget at delta 1e-5; None if the run has no limit on epsilon.
        rounds: Limit on the rounds.

    Returns:
        The sections of the experiment by name.
    """
    budget: dict[str, Any] = {"rounds": rounds}
    return {
        "data": data_section,
        "model": {"name": model},
        "algorithm": algorithm,
        "budget": budget if epsilon is None else budget | {"epsilon": epsilon, "delta": DELTA},
        "evaluate": {"every": max(1, rounds // CURVE_POINTS)},
    }


def method(column: str, model: str) -> dict[str, Any]:
    """Describes the algorithm of a column.

    Args:
        column: Name of the method.
        model: Name of the network, which decides the clip.

    Returns:
        The content of `[algorithm]`.
    """
    common: dict[str, Any] = {"cohort": COHORT, "tau": STEPS, "batch_size": BATCH, "rate": RATE}
    return {
        "FedAvg": {"name": "fedavg"} | common,
        "CE-FedAvg": {"name": "ce-fedavg", "clip": CLIPS[model]} | common,
        "DP-FedAvg": {"name": "dp-fedavg", "clip": CLIPS[model]} | common,
        "DP-FedAvg, published": {"name": "dp-fedavg", "variant": "published"} | common,
    }[column]


def _stationary() -> PaperTable:
    levels = {"no clip": None, "c = 0.1": 0.1, "c = 1": 1.0}
    cells = tuple(
        Cell("", f"Q = {steps}", column, StationaryPoint(steps, level))
        for steps in (1, 2, 32, 128)
        for column, level in levels.items()
    )
    choices = (
        "Learning rate 0.01, Q and c are chosen here: the numbers of the paper's table are lost in "
        "its text.",
        "No training: the root of sum_i clip(w_i (x_i - x), c), w_i = 1 - (1 - eta a_i)^Q. The "
        "optimum is 0.",
    )
    return PaperTable(
        "clipping-1",
        "Clipping, Table 1: where FedAvg stops on problem (8)",
        cells,
        choices,
        value="stationary point",
    )


def _clipping_accuracies() -> PaperTable:
    cells: list[Cell] = []
    for (model, data), numbers in TABLE_2.items():
        for place, column in enumerate(("IID", "non-IID")):
            plain, drop = numbers[2 * place : 2 * place + 2]
            for row, accuracy in (("FedAvg", plain), ("CE-FedAvg", round(plain - drop, 2))):
                work = Training(
                    content(section_2(data, place == 1), model, method(row, model), None, ROUNDS)
                )
                cells.append(Cell(GROUPS[data], f"{MODELS[model]}, {row}", column, work, accuracy))
    odd = "CIFAR-10 that is not IID is 50 images a client with even labels, as the text has it."
    return PaperTable(
        "clipping-2",
        "Clipping, Table 2: accuracy with clipped updates",
        tuple(cells),
        (*CLIENT_NOTES, *OPEN, odd),
    )


def _private_digits() -> PaperTable:
    data_section = population("mnist", True, 125)
    cells = [
        cell
        for model, numbers in TABLE_3.items()
        for cell in _private("mnist", data_section, model, *numbers)
    ]
    missing_numbers = (
        "What clipping takes from the MLP cannot be read in the paper's text, so two of its "
        "numbers are missing."
    )
    title = "Clipping, Table 3: accuracy with clipping and with noise, digits"
    return PaperTable(
        "clipping-3",
        title,
        tuple(cells),
        (*CLIENT_NOTES, *OPEN, PUBLISHED_NOTE, NOISE, missing_numbers),
    )


def _private_cifar() -> PaperTable:
    data_section = population("cifar10", False, 500)
    cells = [
        cell
        for model in TABLE_4
        for cell in _private("cifar10", data_section, model, None, None, None, 1.5)
    ]
    missing_numbers = (
        "The numbers of the paper's table are lost in its text. The clips are those measured "
        "on "
        "MNIST."
    )
    title = "Clipping, Table 4: accuracy with clipping and with noise, CIFAR-10"
    return PaperTable(
        "clipping-4",
        title,
        tuple(cells),
        (CLIENT_NOTES[0], *OPEN, PUBLISHED_NOTE, NOISE, missing_numbers),
    )


def _private(
    data: str,
    data_section: dict[str, Any],
    model: str,
    plain: float | None,
    clipping: float | None,
    noise: float | None,
    epsilon: float,
) -> list[Cell]:
    clipped_accuracy = None if plain is None or clipping is None else round(plain - clipping, 2)
    noisy = (
        None if clipped_accuracy is None or noise is None else round(clipped_accuracy - noise, 2)
    )
    columns = {
        "FedAvg": (plain, None),
        "CE-FedAvg": (clipped_accuracy, None),
        "DP-FedAvg": (noisy, epsilon),
    }
    cells = [
        Cell(
            GROUPS[data],
            MODELS[model],
            column,
            _training(data_section, model, column, limit),
            accuracy,
            limit,
        )
        for column, (accuracy, limit) in columns.items()
    ]
    published_training = _training(data_section, model, "DP-FedAvg, published", epsilon)
    return [
        *cells,
        Cell(
            GROUPS[data],
            f"{MODELS[model]}, published",
            "DP-FedAvg",
            published_training,
            noisy,
            epsilon,
        ),
    ]


def _training(
    data_section: dict[str, Any], model: str, column: str, epsilon: float | None
) -> Training:
    return Training(content(data_section, model, method(column, model), epsilon, ROUNDS))


def _curves(table: PaperTable, number: int, what: str) -> PaperTable:
    """Returns the cells of a table as accuracy against rounds."""
    title = f"Clipping, Figure {number}: test accuracy of FedAvg, CE-FedAvg and DP-FedAvg, {what}"
    cells = tuple(
        replace(
            cell,
            row=f"{cell.column}{', published' * cell.row.endswith('published')}",
            column=_model(cell),
        )
        for cell in table.cells
    )
    return replace(table, name=f"clipping-fig{number}", title=title, cells=cells, picture="curves")


def _model(cell: Cell) -> str:
    return cell.row.removesuffix(", published")


def _later(data: str, model: str, number: int) -> PaperTable:
    """Builds the figure of the updates of one model at several rounds."""
    cells = tuple(
        Cell(
            GROUPS[data],
            f"round {rounds}",
            column,
            UpdateComparison(_updates_content(data, model, place == 1, rounds)),
        )
        for rounds in LATER_ROUNDS
        for place, column in enumerate(("IID", "non-IID"))
    )
    title = (
        f"Clipping, Figure {number}: updates of the clients of FedAvg, {MODELS[model]}, "
        f"{GROUPS[data]}"
    )
    return PaperTable(
        f"clipping-fig{number}",
        title,
        cells,
        (*CLIENT_NOTES, OPEN[0], ANGLES),
        value=UPDATE,
        picture="updates",
    )


UPDATE = "mean norm of an update"
ANGLES = (
    "Angles are in degrees, to the global update of the round before; the black dot is the "
    "mean of all updates."
)


def _figure(data: str, number: int) -> PaperTable:
    cells = tuple(
        Cell(
            GROUPS[data],
            MODELS[model],
            column,
            UpdateComparison(_updates_content(data, model, place == 1)),
        )
        for model in ("alexnet", "resnet-18")
        for place, column in enumerate(("IID", "non-IID"))
    )
    title = (
        f"Clipping, Figure {number}: updates of the clients in round {ROUND_OF_UPDATES} of FedAvg, "
        f"{GROUPS[data]}"
    )
    return PaperTable(
        f"clipping-fig{number}",
        title,
        cells,
        (*CLIENT_NOTES, OPEN[0], ANGLES),
        value=UPDATE,
        picture="updates",
    )


def _updates_content(
    data: str, model: str, skewed: bool, rounds: int = ROUND_OF_UPDATES
) -> dict[str, Any]:
    return content(section_2(data, skewed), model, method("FedAvg", model), None, rounds)
