"""Every system of the registry, in every variant, with noise."""

from dpfl.algorithms import ALGORITHMS, Algorithm, from_name, options_of
from dpfl.audit.audit import ready


def variants(name: str) -> tuple[str, ...]:
    return ("sound", "published") if "variant" in options_of(name) else ("sound",)


def system(name: str, variant: str) -> Algorithm:
    return ready(
        from_name(name, variant=variant) if "variant" in options_of(name) else from_name(name)
    )


SYSTEMS = [(name, variant) for name in ALGORITHMS for variant in variants(name)]
PRIVATE = [
    (name, variant) for name, variant in SYSTEMS if system(name, variant).release is not None
]
CONSTANT_DIVISOR = ready(from_name("ali-dpfl", variant="published", reading="code"))
"""A system whose clients divide by 64, whatever they have."""
SOUND = [name for name, variant in PRIVATE if variant == "sound"]
