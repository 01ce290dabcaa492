# ruff: noqa: E501 (the page has long rows)
"""Writes docs/truth.md: `make truth` audits every system and lists claimed, proven and measured
epsilon.
"""

from __future__ import annotations

import json
from pathlib import Path

from dpfl.algorithms import ALGORITHMS, from_name, options_of
from dpfl.audit import AuditFinding, AuditReport, AuditSettings, audit
from dpfl.audit.attacks.inversion import invert
from dpfl.audit.games import GAMES
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.statement import rounded_up
from dpfl.views.figures.inversion_figure import draw

DOCS = Path(__file__).parents[1] / "docs"
REPEATS = 20
MOST_LEAKS = 4
ATTACKS = ("membership", "inversion")

HEAD = """# What audits measured

`make truth` writes this page (fixed seeds, some minutes). An audit plays games against the code that clips, adds noise, samples,
debits and sends. It can refute a guarantee. It cannot prove one: *consistent* means that these games found nothing.

| term | meaning |
|---|---|
| **claimed** | the epsilon of the paper's own accounting |
| **proven** | the epsilon of the release, by an accountant with a proof |
| **measured** | a lower bound on epsilon; all bounds of one audit hold together with confidence 95 % |
| *refuted* | The measured epsilon is above the claimed one. |
| *broken* | The measured epsilon is above the proven one: a fault in `dpfl`. There must be none. |
| *not testable* | The system claims nothing. |

- Delta is 1e-5. Noise that would be calibrated from a budget has multiplier 1.
- Games about one release use a model of 16 parameters, which is enough for the worst case of each clip.
- The proven epsilon of published wavelet noise is for these 16 parameters. For a real model it is far larger.

## Every system

| system | variant | unit | of | claimed | proven | measured | verdict | largest of 20 |
|---|---|---|---|---|---|---|---|---|
"""

SUMS = NoiseShares(8, 1)
SECURE = (
    ("fedavg-dp", "tau=1"),
    ("auto",),
    ("ali-dpfl", "most_tau=1"),
    ("dyn-dp-sgd", "tau=1"),
    ("dp-sgd-wav", "tau=1"),
    ("dp-fedavg", "cohort=5"),
    ("dp-fedavg", 'clipping="quantile"', "count_noise=1.0"),
    ("dp-fedavg-wav",),
)
SUMS_HEAD = """
The same under secure aggregation, with m = 8 survivors and t = 1 colluder (`dpfl audit EXPERIMENT` with `privacy.aggregation = "secure"`):

| system | variant | unit | of | claimed | proven | measured | verdict | largest of 20 |
|---|---|---|---|---|---|---|---|---|
"""

TABLE_NOTE = """
Each row is `dpfl audit SYSTEM --variant VARIANT` (without `--variant` if there is only one). It shows the game that decides, and
`--json` has all of them.

- *Largest of 20* is the largest measured epsilon of one release, as a share of the proven one, in twenty audits with seeds 0 to 19
  and fewer trials. It must stay below 100 %. Only sound systems have it.
- If a client samples few of its records (q = 0.05 or less), games over several rounds have little power and mostly measure 0.
- A sound system is *refuted* if its paper counts by a limit theorem that lies below the truth for so few releases. Its proven
  epsilon stands.

## What the published systems show

Two neighbouring data sets with equal noisy values give these different values:

"""

ABOUT = """
## The games

| game | what is played |
|---|---|
| one release | a canary in or out of one release; the worst of known vectors and of a search, for this clip and this noise |
| query | one sample more or less in the answer to a query (a label histogram, a mean, column scales, a private metric), at real nodes |
| slope | the same for the number that adaptive steps pay for, with samples that reverse its gradients |
| leaks | real rounds on neighbouring data with equal noisy values; everything else that is seen is compared bit for bit |
| ledgers | real rounds with ledgers: what left against what was debited, also for a round that is repeated after a crash |
| noise | blank data, and half the replies of a round lost: is the noise as large as stated, and is none of it repeated? |
| masks | the protocol of secure sums between real members, all numbers 0: masks, seeds, shares, and lists that are too short |
| batches | sizes, frequencies and repetitions of batches and cohorts, against independent draws; and whether a seed changes them |
| sensitivity | almost no noise: how far one unit moves a release, by known extremes and by a search over data |
| amplification | weights that amplify the last bit: can one unit change a sum by more than the clip norm? |
| whole run | a canary sample in or out of a real client for some rounds, one score per step, from all that the server sees |
| one run | many canaries, each in or out by a coin (Steinke et al. 2023) |
| canary clients | clients that send random directions (Andrew et al. 2023) |
| membership | training samples against others by the final model: a loss threshold, and a likelihood ratio with shadow models |
| inversion | the image that a curious server reconstructs from one client's update |

| games | what they give |
|---|---|
| *one release* | a bound: Clopper-Pearson with the sampling, or mu given that the canary was drawn |
| *query*, *slope* | a bound: mu by the spread of the answers; for queries the better of it and Clopper-Pearson |
| *whole run*, *one run* | a bound: Clopper-Pearson over runs, or from one run |
| *leaks* | a value that differs, so that no epsilon holds |
| *ledgers*, *noise*, *masks*, *batches*, *sensitivity*, *amplification* | in order, or *broken* |
| *canary clients* | an estimate |
| *membership* | true positives at low false positive rates, beside the most that the proven epsilon allows; no bound |
| *inversion* | pictures |

Under secure aggregation the adversary is the server with t clients. It subtracts what these clients sent from a sum over m clients.
All games are played on such sums, with the code that computes the numbers and their shares of the noise.

Thresholds, detectors and canaries are chosen on separate draws and judged on fresh ones. mu gives a bound because the noise of
every release here is Gaussian. The statistical tests (*noise*, *batches*) have fixed thresholds of 7.5 standard deviations.
Correct draws exceed one of them less than once in 10^6 audits.

## Reconstructing a client's image

One update of one image, with noise multiplier 1. The image is on the left, then its reconstruction without the release and with it:

![the image, reconstructed without noise, and with noise](inversion.png)

## Planted faults

A test plants each fault in the code (`tests/audit/test_sabotage.py`). The verdict then changes from *consistent* to *broken*.

| fault | caught by |
|---|---|
| halve the noise (in steps, on updates, at the server) | `one release` |
| omit the clip (in steps, on updates, at the server) | `one release`; in steps also `whole run` |
| reuse a noise key (for another round, or for other data) | `ledgers` |
| omit a debit (of a client, of the federation) | `ledgers` |
| divide by the batch that was drawn | `leaks`; a sound algorithm that declares it is refused |
| omit the noise of the count by which a quantile clip adapts | `leaks` |
| use shuffled batches or cohorts of one size instead of Poisson draws | `batches` |
| use one batch for all steps of a round | `batches` |
| halve the noise of a mean, a histogram or a metric | `query` |
| halve the noise of a slope | `slope` |
| do not cap weights, so that one client counts several times | `sensitivity` |
| clip updates at twice the clip norm (updates, and the sum of a round) | `sensitivity` |
| omit the clip of the steps before a noisy update | `sensitivity` |
| let float32 values depend on the number of rows, with weights that amplify the last bit | `amplification` |
| halve secure noise | `noise` |
| repeat noise within a release: its second half, or every few numbers | `noise` |
| repeat noise in every step, for another client (shifted), or for every seed; reuse a noise key | `noise` |
| draw fresh noise under an old name after a crash; name system noise as if it were repeatable | `ledgers` |
| adapt the clip before the noise, which is then for another clip norm | `noise` |
| draw cohorts from a known seed; prepare a run with system entropy from a known seed | `batches` |
| count the shares of lost replies, where clients add the noise | `noise` |
| treat rows as persons: draw, clip and answer for each row of a person separately | `sensitivity`, `query` |

Under secure aggregation (`tests/audit/test_sabotage_sums.py`):

| fault | caught by |
|---|---|
| omit a share of the noise (one client of seven adds none; steps, and the sum of a round) | `noise` |
| count colluders among the honest clients (m instead of m - t) | `noise` |
| count the noise of missing clients (all clients instead of m) | `noise` |
| halve the noise, or halve the shares | `one release` |
| halve the shares of an answer | `query` |
| count ten times as much beside the vector, for a quantile clip | `one release` |
| omit the clip | `sensitivity` |
| send the same numbers again after a crash; omit a debit | `ledgers` |
| reuse a noise key in another round | `noise` |
| give all clients the same coin when they draw themselves | `batches` |
| reuse the masks of pairs, or all masks, in another round | `masks` |
| mask with a seed of zeros | `masks` |
| open a seed with one share fewer | `masks` |
| leave a number unmasked | `masks` |
| open a sum with too few survivors | `masks` |
| leave the masks of missing members in the sum | `masks` |

Audits do not catch these faults:

- noise that repeats in fewer than some 2,000 of 65,536 numbers, or at no fixed shift;
- a standard deviation that is less than some 2 % too small;
- faults that occur only after the third round, with empty batches, or with samples that are not finite (separate tests cover the
  last two);
- noise from a seed that an adversary learns without trying seeds (the statement of a `Keyed` run warns of this);
- dependent draws that change neither sizes, nor frequencies, nor two consecutive draws;
- updates after several steps that move further than the search finds (it finds all of it after one step, and some 3 % of what is
  stated after three);
- faults that only a machine, a clock or a network shows.
"""


def main() -> None:
    """Audits every system and writes the page."""
    rows, leaks = [], []
    for name in ALGORITHMS:
        for variant in ("sound", "published") if "variant" in options_of(name) else ("sound",):
            print(name, variant, flush=True)
            algorithm = (
                from_name(name, variant=variant)
                if "variant" in options_of(name)
                else from_name(name)
            )
            report = audit(algorithm, games=[game for game in GAMES if game not in ATTACKS])
            rows.append(
                _row(
                    name,
                    report,
                    _largest(report, algorithm) if variant == "sound" and report.findings else "",
                )
            )
            leaks += [
                _leak(name, finding)
                for finding in report.findings
                if finding.game == "leaks" and finding.measured
            ]
    secure = [
        _row(f"{name}`, `{', '.join(words)}" if words else name, *_audit_secure(name, words))
        for name, *words in SECURE
    ]
    draw(invert(from_name("fedavg-dp", noise_multiplier=1.0)), DOCS / "inversion.png", "")
    page = (
        HEAD
        + "\n".join(rows)
        + "\n"
        + SUMS_HEAD
        + "\n".join(secure)
        + "\n"
        + TABLE_NOTE
        + "\n".join(leaks)
        + "\n"
        + ABOUT
    )
    (DOCS / "truth.md").write_text(page)


def _audit_secure(name: str, words: list[str]) -> tuple[AuditReport, str]:
    """Audits a system under secure aggregation, with options such as `tau=1`."""
    print(name, *words, "secure", flush=True)
    options = {key: json.loads(value) for key, value in (word.split("=", 1) for word in words)}
    algorithm = from_name(name, **options).with_secure_sums(SUMS)
    report = audit(algorithm, games=[game for game in GAMES if game not in ATTACKS])
    return report, _largest(report, algorithm)


def _row(name: str, report: AuditReport, largest: str) -> str:
    deciding = report.deciding
    words = ["", "", "", ""] if deciding is None else [deciding.scope, *_figures(deciding)]
    cells = [
        f"`{name}`",
        report.variant,
        report.unit,
        *words,
        report.verdict if deciding else f"{report.verdict}: no noise",
        largest,
    ]
    return f"| {' | '.join(cells)} |"


def _figures(finding: AuditFinding) -> list[str]:
    claimed, proven = (_figure(epsilon) for epsilon in (finding.claimed, finding.proven))
    value = finding.display_value
    measured = value if isinstance(value, str) else f">= {value:.3f}"
    return [claimed, proven, "unbounded: a leak" if measured == "unbounded" else measured]


def _figure(epsilon: float | None) -> str:
    if epsilon is None:
        return "nothing"
    return "unbounded" if epsilon == float("inf") else f"{rounded_up(epsilon, 3):.3f}"


def _largest(report: AuditReport, algorithm) -> str:  # type: ignore[no-untyped-def]
    """Returns the largest share of the proven epsilon that twenty audits measure."""
    shares = []
    for seed in range(REPEATS):
        (finding,) = audit(
            algorithm, AuditSettings(seed=seed, trials=1000), games=["one release"]
        ).findings
        assert finding.verdict != "broken", (report.system, seed, finding)
        shares += (
            [finding.measured / finding.proven]
            if finding.measured is not None and finding.proven
            else []
        )
    return f"{max(shares):.0%}" if shares else ""


def _leak(name: str, finding: AuditFinding) -> str:
    values = finding.detail.split("; ")
    more = f"; and {len(values) - MOST_LEAKS} more" if len(values) > MOST_LEAKS else ""
    return f"- `{name}`: {'; '.join(values[-MOST_LEAKS:])}{more}."


if __name__ == "__main__":
    main()
