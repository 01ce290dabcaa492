from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.data import (
    IID,
    CappedDirichlet,
    Dirichlet,
    LabelSkew,
    Mix,
    Shards,
    Unequal,
)
from dpfl.data.partition_kinds import UNITS
from dpfl.errors import DpflError

MINIMUM = 5
PARTITIONS = st.one_of(
    st.just(IID()),
    st.builds(Dirichlet, st.floats(0.01, 10), st.just(MINIMUM)),
    st.builds(Shards, st.integers(60, 120), st.integers(1, 5)),
    st.builds(LabelSkew, st.integers(1, 3), st.integers(9, 300), st.integers(0, 9)),
    st.builds(Unequal, st.floats(1, 100), st.just(MINIMUM)),
    st.builds(Mix, st.floats(0, 1), st.just(IID()), st.just(Dirichlet(0.1, MINIMUM))),
)


def run(how, labels, clients, seed=0):
    return how(labels, clients, np.random.default_rng(seed))


@settings(max_examples=150, deadline=None)
@given(
    how=PARTITIONS,
    count=st.integers(200, 800),
    classes=st.integers(3, 12),
    clients=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
def test_parts_are_disjoint_cover_the_data_or_say_so_and_repeat(how, count, classes, clients, seed):
    labels = np.random.default_rng(seed).permutation(np.arange(count) % classes)
    parts, notes = run(how, labels, clients, seed)
    together = np.concatenate(parts)
    assert len(parts) == clients
    assert len(np.unique(together)) == len(together)
    assert together.min() >= 0
    assert together.max() < count
    left = count - len(together)
    assert not left or f"{left} of {count} {UNITS} belong to no client" in notes
    if isinstance(how, Dirichlet | Unequal):
        assert left == 0
        assert min(len(part) for part in parts) >= MINIMUM
    again, notes_again = run(how, labels, clients, seed)
    assert notes == notes_again
    assert all(np.array_equal(one, two) for one, two in zip(parts, again, strict=True))


@pytest.mark.parametrize(("beta", "expected"), [(0.05, 0.7), (0.5, 0.25), (1.0, 2 / 11)])
def test_dirichlet_proportions_have_the_expected_concentration(beta, expected):
    # E sum p^2 = (beta + 1) / (N beta + 1) for N clients.
    assert expected == pytest.approx((beta + 1) / (10 * beta + 1))
    proportions = Dirichlet(beta).proportions(20_000, 10, np.random.default_rng(0))
    assert np.allclose(proportions.sum(axis=1), 1)
    squares = (proportions**2).sum(axis=1)
    assert squares.mean() == pytest.approx(expected, abs=5 * squares.std() / np.sqrt(len(squares)))


def test_dirichlet_parts_follow_the_proportions_drawn():
    labels = np.repeat(np.arange(10), 1000)
    parts, notes = run(Dirichlet(0.5, minimum=0), labels, 10)
    drawn = np.array([np.bincount(labels[part], minlength=10) for part in parts]) / 1000
    assert notes == ()
    assert 0.18 < (drawn**2).sum(axis=0).mean() < 0.33


def test_dirichlet_says_what_it_moved():
    labels = np.arange(400) % 2
    parts, notes = run(Dirichlet(0.05, minimum=20), labels, 10)
    moved = [note for note in notes if "to reach the minimum of 20" in note]
    assert len(moved) >= 7
    assert min(len(part) for part in parts) == 20
    with pytest.raises(DpflError, match="too few for 30 clients"):
        run(Dirichlet(0.05, minimum=20), labels, 30)


def test_a_client_that_has_its_share_is_closed_to_the_classes_after():
    """Only the class that fills a client can bring it above an equal share; a tenth of these images
    has each label.
    """
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 500))
    for seed in range(20):
        parts, notes = CappedDirichlet(0.05, 40)(labels, 10, np.random.default_rng(seed))
        assert notes == ()
        assert sorted(np.concatenate(parts).tolist()) == list(range(5000))
        assert min(map(len, parts)) >= 40
        for part in parts:
            last = labels[part].max()
            assert np.sum(labels[part] < last) < 500
    with pytest.raises(DpflError, match="In each of 1,000 draws some client had fewer than 499"):
        CappedDirichlet(0.05, 499)(labels, 10, np.random.default_rng(0))


def test_shards_deal_few_labels_to_each_client():
    labels = np.random.default_rng(0).integers(0, 10, 1000)
    parts, notes = run(Shards(shards=20, per_client=2), labels, 8)
    assert all(len(part) == 100 for part in parts)
    assert all(len(np.unique(labels[part])) <= 4 for part in parts)
    assert notes == (f"200 of 1000 {UNITS} belong to no client",)
    with pytest.raises(DpflError, match="need 22 shards"):
        run(Shards(shards=20, per_client=2), labels, 11)
    with pytest.raises(DpflError, match="cannot be cut"):
        run(Shards(), labels[:100], 2)


def test_label_skew_gives_the_counts_of_the_paper():
    labels = np.arange(60_000) % 10
    parts, _ = run(LabelSkew(), labels, 10)
    for part in parts:
        assert Counter(np.bincount(labels[part], minlength=10).tolist()) == {230: 2, 5: 8}


def test_label_skew_scales_down_in_proportion():
    labels = np.arange(3000) % 10
    parts, notes = run(LabelSkew(), labels, 10)
    counts = Counter(np.bincount(labels[parts[0]], minlength=10).tolist())
    (minor, eight), (major, two) = sorted(counts.items())
    assert (two, eight) == (2, 8)
    assert 2 * major + 8 * minor <= 300
    assert minor == 5 * major // 230
    assert notes[0] == f"too few {UNITS} for counts of 230 and 5: scaled to {major} and {minor}"
    with pytest.raises(DpflError, match="ask for fewer clients"):
        run(LabelSkew(), labels, 400)
    with pytest.raises(DpflError, match="lower major"):
        run(LabelSkew(major=11), labels, 2)


def test_unequal_sizes_are_geometric():
    parts, notes = run(Unequal(ratio=10), np.arange(10_000) % 10, 10)
    sizes = np.array([len(part) for part in parts])
    assert sizes[0] / sizes[-1] == pytest.approx(10, rel=0.01)
    assert np.allclose(sizes[:-1] / sizes[1:], 10 ** (1 / 9), rtol=0.01)
    assert notes == ()


def test_mix_has_skewed_clients_first_and_iid_clients_last():
    labels = np.arange(10_000) % 10
    parts, notes = run(Mix(0.4), labels, 10)
    counts = np.array([np.bincount(labels[part], minlength=10) for part in parts])
    assert (counts[6:] > 50).all()
    assert ((counts[:6] == 0).sum(axis=1) >= 3).all()
    assert "clients 0 to 5 are skewed, the rest is IID" in notes
