"""Torch's random numbers at a client, for dropout and the like, from a hidden state of more than 32
bits.

The proof takes the masks of units as independent of each other and unknown to the server. Torch
seeds its generator by 32 bits, which a server can try one by one; so here the whole state of the
generator is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

WORDS = 624
"""The state of a Mersenne Twister (MT19937), in words of 32 bits."""

_FIRST = 24
# Bytes of torch's state before the words, which take 8 bytes each.


@contextmanager
def drawing_from(rng: np.random.Generator) -> Iterator[None]:
    """Lets torch draw from a state that the generator gives, and restores torch's own state
    afterwards.

    Args:
        rng: A generator that the server does not know.

    Yields:
        Nothing; torch has its own state again after the block.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.set_state(state_from(rng))
        yield


def state_from(rng: np.random.Generator) -> torch.Tensor:
    """Draws a state of torch's generator on the CPU.

    Args:
        rng: Gives all words of the state.

    Returns:
        The state, for `set_state`.
    """
    state = torch.Generator().manual_seed(0).get_state()
    words = state.numpy()[_FIRST : _FIRST + 8 * WORDS].view(np.uint64)
    words[:] = rng.integers(2**32, size=WORDS, dtype=np.uint64)
    return state
