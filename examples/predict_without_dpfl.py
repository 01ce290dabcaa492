"""Predicts from raw rows of a table with a model that dpfl trained. It needs PyTorch and
safetensors, but not dpfl.

python examples/predict_without_dpfl.py runs/NAME/model.safetensors table.csv
"""

import csv
import json
import math
import sys

import torch
from safetensors import safe_open


def features(row: dict[str, str], schema: dict) -> list[float]:
    """Returns the input of the model for a row, by the schema in the file of the model."""
    x = []
    for column in schema["numeric"]:
        cell = row[column["name"]].strip()
        missing = cell in schema["absent"]
        value = column["fill"] if missing else float(cell)
        value = min(max(value, column["low"]), column["high"])
        value = math.log1p(value - column["low"]) if column["log"] else value
        x += [
            (value - column["mean"]) / column["scale"],
            *([float(missing)] if column["missing"] == "indicate" else []),
        ]
    for column in schema["categorical"]:
        cell, numbers = row[column["name"]].strip(), not isinstance(column["levels"][0], str)
        missing = cell in schema["absent"] and cell not in column["levels"]
        level = column["missing"] if missing else float(cell) if numbers else cell
        level = level if level in column["levels"] else "other"
        x += [float(level == one) for one in column["levels"]]
    return x


def predict(scores: torch.Tensor, label: dict) -> torch.Tensor:
    """Returns a number in its own unit, an expected count, or probabilities."""
    match label["task"]:
        case "number":
            low, high = label["low"], label["high"]
            has_bounds = low is not None and high is not None and low < high
            return (low + high + scores * (high - low)) / 2 if has_bounds else scores
        case "counts":
            return (label["mean"] or 1.0) * scores.exp()
        case "classes":
            return scores.softmax(0)
        case _:
            return scores.sigmoid()


def main(model: str, table: str) -> None:
    """Prints a prediction for each row of a table."""
    with safe_open(model, "pt") as file:
        schema = json.loads(file.metadata()["schema"])
        weights = {name.removeprefix("model."): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    linear = torch.nn.Linear(*reversed(weights["1.weight"].shape))
    linear.load_state_dict({"weight": weights["1.weight"], "bias": weights["1.bias"]})
    with open(table, newline="", encoding="utf-8-sig") as file, torch.no_grad():
        for row in csv.DictReader(file):
            scores = linear(torch.tensor(features(row, schema)))
            print(" ".join(f"{figure:.4f}" for figure in predict(scores, schema["label"])))


if __name__ == "__main__":
    main(*sys.argv[1:])
