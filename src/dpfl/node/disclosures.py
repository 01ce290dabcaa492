"""Says in plain words what a node's policy lets out of the node, and what it does not.

`dpfl node check` shows this to the owner before the node starts.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpfl.node.policy import NodePolicy
from dpfl.node.policy_sections import SecureSumGroup


def describe_disclosures(policy: NodePolicy) -> Iterator[str]:
    """Describes what the owner agrees to with a policy.

    Args:
        policy: The node's policy.

    Yields:
        What may leave the node, a phrase each.
    """
    limits, allow, tell = policy.limits, policy.allow, policy.tell
    at = (
        f"at delta {limits.delta:g} by {limits.accountant}, for one {limits.unit} "
        f"({limits.neighbours})"
    )
    parts = {
        "in all": limits.epsilon,
        "a year": limits.epsilon_a_year,
        "a run": limits.epsilon_a_run,
    }
    most = ", ".join(
        f"{epsilon:g} {part}" for part, epsilon in parts.items() if epsilon is not None
    )
    yield f"noisy updates of models, and noisy answers to surveys: epsilon {most} at most, {at}"
    noise = (
        "secure noise" if tell.secure else "noise, in floating point where the server asks for it"
    )
    yield (
        f"each with {noise} of multiplier {allow.least_noise_multiplier:g} or more, clipped at "
        f"{allow.largest_clip:g} or less, "
        f"from batches of {allow.largest_sampling_rate:.0%} of the {limits.unit}s or fewer"
    )
    if policy.secure:
        yield from _secure_sums(policy.secure)
    yield f"how many {limits.unit}s there are: {tell.size_rule.describe()}"
    yield "its name, the form of its samples, the version of dpfl, and when and how long it works"
    yield (
        "signed statements of what its ledger holds, and how far it had come with every reply, "
        "to owners of joined runs"
    )
    yield (
        "how far the ledgers of other nodes had come, as they signed it, to owners of runs with "
        "these nodes"
    )
    if tell.trusted:
        yield "CLIPPED UPDATES WITHOUT NOISE, to a server that is trusted to add it"
    if tell.bare:
        yield "UPDATES WITHOUT ANY NOISE"


def describe_protection(policy: NodePolicy) -> Iterator[str]:
    """Describes what a policy keeps at the node.

    Args:
        policy: The node's policy.

    Yields:
        What never leaves the node, a phrase each.
    """
    yield "samples, labels, identities, and anything that is computed from them without noise"
    if not (policy.tell.trusted or policy.tell.bare):
        yield (
            "losses, accuracies, counts and gradients, unless they have noise that the ledger "
            "pays for"
        )
    yield f"anything at all for runs of variants other than {', '.join(policy.allow.variants)}"
    yield (
        f"anything for orders that none of {len(policy.owners)} named owners signed, or beyond "
        "these limits"
    )
    if policy.secure:
        yield "what it adds to a secure sum, to anybody who has not the sum of all who are in it"
    yield "what the log, the ledger and the kept orders say"


def _secure_sums(secure: SecureSumGroup) -> Iterator[str]:
    """States the conditions under which a share of the noise is enough. By itself a share hides
    nobody.
    """
    yield (
        "in runs with secure sums, numbers with a share of that noise, masked: sums over at least "
        f"{secure.least_survivors} of "
        f"{len(secure.members)} members are opened, and nothing else"
    )
    count = secure.least_colluders
    helpers = (
        f"up to {count} of them may help the server"
        if count
        else "none of them helps the server, or looks itself"
    )
    yield f"what that costs holds if {helpers}, and if the keys in secure.members are theirs"
