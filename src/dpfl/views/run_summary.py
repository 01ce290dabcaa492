"""One run as a row of figures: what lists, comparisons and `dpfl runs --json` show of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfl.run.folder import RunFolder


def summary(folder: RunFolder) -> dict[str, Any]:
    """Reads the settings and the outcome of a run.

    Args:
        folder: The run's folder. The run may be finished or under way.

    Returns:
        One entry per column. What a run under way does not have yet is None.
    """
    record = folder.experiment()
    result = folder.json("result.json") or {}
    resolved = record.get("resolved", {})
    privacy = result.get("privacy", {})
    return {
        "run": str(folder.path),
        "algorithm": resolved.get("algorithm", {}).get("name"),
        "model": resolved.get("model"),
        "clients": resolved.get("clients"),
        "seed": resolved.get("seed"),
        "settings": settings(record),
        "started": record.get("run", {}).get("started"),
        "rounds": result.get("rounds"),
        "iterations": result.get("iterations"),
        "accuracy": result.get("accuracy"),
        "loss": result.get("loss"),
        "headline": result.get("headline"),
        "figure": result.get("metrics", {}).get(result.get("headline")),
        "noisy": bool(result.get("noisy")),
        "stopped_by": result.get("stopped_by", "unfinished"),
        "unit": privacy.get("unit"),
        "delta": privacy.get("delta"),
        "accountant": privacy.get("accountant"),
        "proven": privacy.get("proven"),
        "used": privacy.get("used"),
        "claimed": privacy.get("claimed"),
        "model_sha256": result.get("model_sha256"),
    }


def settings(record: Mapping[str, Any]) -> dict[str, Any]:
    """Reads everything that makes a run what it is, except its seed and the place of its ledgers.

    The algorithm is the one that was asked for: noise and rates planned for it depend on the
    clients, and those depend on the seed.

    Args:
        record: The content of `experiment.toml` in a run's folder.

    Returns:
        The settings. Runs with equal settings differ only by their seed.
    """
    resolved, hashes = record.get("resolved", {}), record.get("hashes", {})
    own = ("seed", "ledger", "largest")
    return {name: value for name, value in resolved.items() if name not in own} | {
        "algorithm": record.get("asked", resolved.get("algorithm")),
        "data": {name: hashes.get(name) for name in ("train", "test")},
        "module": hashes.get("model"),
    }
