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
        "per year": limits.epsilon_a_year,
        "per run": limits.epsilon_a_run,
    }
    most = ", ".join(
        f"{epsilon:g} {part}" for part, epsilon in parts.items() if epsilon is not None
    )
    yield f"noisy model updates, and noisy answers to private queries: epsilon at most {most}, {at}"
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
        "to the owners of runs that it joined: signed statements of its ledger, and the head of "
        "its ledger with every reply"
    )
    yield "to the owners of runs with other nodes: the ledger heads that these nodes signed"
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
        "anything in reply to a message that no key in [owners] signed, and anything beyond these "
        "limits"
    )
    if policy.secure:
        yield "its own numbers in a secure sum: only the sum over its survivors is opened"
    yield "the contents of the log, of the ledger and of the task log"


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
        f"at most {count} of them help the server"
        if count
        else "none of them helps the server or attacks on its own"
    )
    yield (
        f"the epsilon of these runs holds if {helpers}, and if the keys in secure.members are "
        "theirs"
    )
