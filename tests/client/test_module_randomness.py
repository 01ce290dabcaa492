"""Torch's random numbers at a node are those of a hidden state of 19,937 bits."""

import numpy as np
import torch

from dpfl.client.module_randomness import WORDS, drawing_from, state_from


def test_the_whole_state_is_drawn() -> None:
    """Torch's numbers are those of numpy's Mersenne Twister with the same words."""
    words = np.random.default_rng(5).integers(2**32, size=WORDS, dtype=np.uint64).astype(np.uint32)
    twister = np.random.MT19937()
    twister.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": WORDS}}
    generator = torch.Generator()
    generator.set_state(state_from(np.random.default_rng(5)))
    drawn = torch.rand(2000, generator=generator).double().numpy()
    assert np.array_equal(drawn, (twister.random_raw(2000) % 2**24) / 2**24)


def test_a_seed_has_32_bits_and_this_has_more() -> None:
    """Why seeds are not enough: two that differ above their 32nd bit give the same masks."""
    first, second = (torch.Generator().manual_seed(seed) for seed in (5, 5 + 2**32))
    assert torch.equal(torch.rand(9, generator=first), torch.rand(9, generator=second))
    states = {state_from(np.random.default_rng(seed)).numpy()[24:].tobytes() for seed in range(3)}
    assert len(states) == 3


def test_what_torch_had_is_put_back() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    draws = []
    for _ in range(2):
        with drawing_from(np.random.default_rng(1)):
            draws.append(torch.rand(4))
    assert torch.equal(*draws)
    assert torch.equal(torch.get_rng_state(), before)
