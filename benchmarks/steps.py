"""Rows 1 and 2: one private step (clipped sum, noise, SGD update), against a plain step and against
other libraries.
"""

from __future__ import annotations

from functools import partial

from benchmarks.harness import Contender
from benchmarks.report import Line, at_least, at_most, peer_over_ours, unavailable

WORK = (("cnn", 90, 1.5), ("mlp", 64, 1.5), ("cnn-wide", 90, 2.0), ("resnet-18", 16, 2.0))
"""Model, batch, and how many plain steps a private one may take."""

TOLERANCE = {"resnet-18": 1e-3}
"""Of 1e-4 otherwise: in float32, PyTorch's own gradients of this network differ by 2e-4 between two
memory formats.
"""

FORMATS = ({"memory_format": "contiguous"}, {"memory_format": "channels_last"})

JAX = {
    "cnn": ({"layout": "NHWC", "microbatch": None}, {"layout": "NCHW", "microbatch": None}),
    "mlp": tuple({"layout": "NHWC", "microbatch": size} for size in (1, 4, 16)),
    "cnn-wide": tuple({"layout": "NHWC", "microbatch": size} for size in (None, 1)),
    "resnet-18": ({"layout": "NHWC", "microbatch": None},),
}
"""The best of NHWC and NCHW, in microbatches or all at once; the others that were tried were
slower, and slow to compile.
"""


def contenders(model: str, batch: int, seconds: float) -> list[Contender]:
    """Returns dpfl, a plain step and the peers."""
    options = {"model": model, "batch": batch, "seconds": seconds, "pinned": True}
    formats = FORMATS if model != "mlp" else FORMATS[:1]
    plain = [{**one, "fused": use_fused} for one in formats for use_fused in (False, True)]
    warm = partial(Contender, warm=True, tolerance=TOLERANCE.get(model, 1e-4))
    return [
        warm("dpfl", "benchmarks.step_torch:private", options),
        warm("plain SGD", "benchmarks.step_torch:plain", options, plain),
        warm("Opacus hooks", "benchmarks.step_opacus:step", {**options, "mode": "hooks"}),
        warm("Opacus ghost", "benchmarks.step_opacus:step", {**options, "mode": "ghost"}),
        warm("jax-privacy", "benchmarks.step_jax:step", options, JAX[model]),
    ]


GOALS = {"Opacus hooks": at_least(3.0), "Opacus ghost": at_least(1.0), "jax-privacy": at_least(1.0)}


def run(bench) -> list[Line]:
    """Measures rows 1 and 2."""
    lines = []
    for model, batch, limit in WORK:
        work = f"private step, {model}, batch {batch}"
        bench.say(work)
        measurements = bench.compare(contenders(model, batch, 0.2 if bench.quick else 0.6))
        bench.keep(work, measurements)
        ours = measurements["dpfl"]
        for name, other in measurements.items():
            if name == "dpfl":
                continue
            if ours.failure or other.failure:
                lines.append(
                    unavailable(
                        1 if name == "plain SGD" else 2, work, name, ours.failure or other.failure
                    )
                )
            elif name == "plain SGD":
                lines.append(Line.ratio(1, work, "dpfl / plain SGD", ours, other, at_most(limit)))
            else:
                lines.append(peer_over_ours(2, work, ours, other, GOALS[name]))
    return lines
