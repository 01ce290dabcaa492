# ruff: noqa: E501 (the page has long rows)
"""Writes docs/truth.md: every system audited, with claimed, proven and measured epsilon. Run by
`make truth`.
"""

from __future__ import annotations

import json
from pathlib import Path

from dpfl.algorithms import ALGORITHMS, from_name, options_of
from dpfl.audit import AuditFinding, AuditReport, AuditSettings, audit
from dpfl.audit.attacks.inversion import invert
from dpfl.audit.games import GAMES
from dpfl.privacy.mechanisms.noise_shares import NoiseShares
from dpfl.privacy.statement import rounded_up
from dpfl.views.figures.inversion_figure import draw

DOCS = Path(__file__).parents[1] / "docs"
REPEATS = 20
ATTACKS = ("membership", "inversion")

HEAD = """# What audits measured

Made by `make truth` (fixed seeds; some minutes). An audit plays games against the code that really clips, adds noise, samples,
debits and sends. It can refute a guarantee and never prove one: *consistent* means that these games found nothing.

- **claimed**: what the paper's own accounting says. **proven**: what an accountant with a proof says of the release as it is.
  **measured**: a lower bound on epsilon; all bounds of one audit hold together with confidence 95 %.
- *refuted*: more was measured than is claimed. *broken*: more was measured than is proven, a fault in this software; there must
  be none. *not testable*: nothing is claimed.
- delta is 1e-5. Noise that would be planned from a budget has multiplier 1. Games about one release use a model of 16
  parameters, which is enough for each clip to do its worst; published wavelet noise is proven for these 16, and for a real
  model far less is left of it.

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
Each row is `dpfl audit SYSTEM --variant VARIANT` (without `--variant` where there is one only); it shows the game that decides,
and `--json` has all of them. *Largest of 20* is the largest measured epsilon of one release, as a share of what is proven, in
twenty audits with seeds 0 to 19 and fewer trials (sound systems; it must stay below 100 %).
Where a client samples few of its records (q = 0.05 or less), games over several rounds have little to go by and mostly find 0.
A sound system is *refuted* where its paper counts by a limit theorem that lies below the truth for so few releases; what is proven
of it stands.

## What the published systems show

"""

ABOUT = """
## The games

| game | what is played | what it gives |
|---|---|---|
| one release | a canary in or out of one release; the worst of known vectors and of a search, for this clip and this noise | bound: Clopper-Pearson with the sampling, or mu given that the canary was drawn, with what the sampling makes of it |
| survey | one sample more or not in what clients say once, before the first round (a noisy label histogram, a noisy mean, the scales of a table) or after the last (a private metric); each by its own noise, at real nodes, and the one that shows most is told | bound: the better of Clopper-Pearson and of mu by the spread of answers, for noise that is Gaussian |
| slope | the same for the number that adaptive steps pay for, with samples that turn its gradients round | bound: mu by the spread, with what the sampling makes of it |
| leaks | real rounds on neighbouring data, coupled so that all noisy values are equal; everything else that is seen is compared bit for bit | a value that differs: no epsilon holds |
| books | real rounds with ledgers; what left against what was debited, whether two releases share their noise, and whether a round that is made again after a crash is the same to the last bit, or paid again | in order, or *broken* |
| noise | blank data, so that releases of 65,536 numbers are noise and nothing else, half the replies of a round lost: is it as much as is stated, and does any of it come again, at any shift, within a release or in another round, client or run | in order, or *broken* |
| masks | the protocol of secure sums by real members, all numbers 0: what they send over two rounds, the seeds that they open and how many shares give one, the sum with one of them missing, and a server that shows fewer survivors than are needed | in order, or *broken* |
| batches | batches read off updates without noise, cohorts as a prepared run orders them: sizes, how often each comes, who comes twice running or in several steps of a round, against independent draws; and whether a seed, or the system, changes them | in order, or *broken* |
| movement | next to no noise: how far one unit moves what is released, by known extremes and a search over data, for each client in turn where a server weighs them | in order, or *broken* |
| whole run | a canary sample in or out of a real client for some rounds, a score a step, all that the server sees | bound: Clopper-Pearson over runs |
| one run | many canaries, each in by a coin (Steinke et al. 2023) | bound from one run |
| canary clients | clients that send random directions (Andrew et al. 2023) | an estimate |
| membership | training and other samples told apart by the final model: loss threshold, likelihood ratio with shadow models | true positives at low false positive rates beside the ceiling of the proven epsilon; no bound |
| inversion | the image that a curious server rebuilds from one client's update | pictures |

Under secure aggregation the adversary is the server with t clients: it sees what is left of a sum over m clients when these take away what they sent.
All games are played on such sums, by the code that makes the numbers and their shares of the noise.

Thresholds, detectors and canaries are chosen on draws of their own and judged on fresh ones. mu is a bound where noise is
Gaussian, which that of every release here is. Tests of chance (noise, batches) have fixed thresholds, at 7.5 deviations: fair draws
reach one of them less than once in 10^6 audits.

## Rebuilding a client's image

From one update of one image, with noise multiplier 1. Left the image, then what its update shows without the release and with it:

![the image, rebuilt without noise, and with noise](inversion.png)

## Faults put in on purpose

Each is put into the code by a test (`tests/audit/test_sabotage.py`), and turns the verdict from *consistent* to *broken*.

| fault | caught by |
|---|---|
| halve the noise (in steps, on uploads, at the server) | `one release` |
| drop the clip (in steps, on uploads, at the server) | `one release`; in steps also `whole run` |
| reuse a noise key (for another round, or for other data) | `books` |
| forget a debit (of a client, of the federation) | `books` |
| divide by the batch that was drawn | `leaks`; and an algorithm that says so is refused as sound |
| forget the noise of the count by which a quantile clip adapts | `leaks` |
| shuffle batches for poisson (samples, and cohorts): each once an epoch, in batches of one size | `batches` |
| use one batch for all steps of a round | `batches` |
| halve the noise of the mean, halve the noise of the histogram, or halve the noise of the metric | `survey` |
| halve the noise of the slope | `slope` |
| leave weights uncapped, so that a client counts several times | `movement` |
| clip uploads at twice the level (uploads, and the sum of a round), so that they move twice as far as stated | `movement` |
| drop the clip of the steps before a noisy upload | `movement` |
| let the last bit follow the batch: a row's float32 values depend on how many rows there are, and the weights amplify that | `amplification` |
| halve the noise that is secure | `noise` |
| repeat the noise within a release (its second half has that of the first); repeat the noise every few numbers | `noise` |
| repeat the noise in every step of a round; repeat the noise for another client, shifted; repeat the noise whatever the seed; reuse a noise key | `noise` |
| make fresh noise under an old name, after a crash; name system noise as if it could be repeated | `books` |
| adapt the clip before the noise, which is then for a level that the clients did not use | `noise` |
| draw cohorts from a known seed; prepare a system run with a known seed | `batches` |
| count the shares of lost replies, where clients add the noise | `noise` |
| account rows for persons: each of a person's rows is drawn, clipped and answered for by itself | `movement`, `survey` |

Under secure aggregation (`tests/audit/test_sabotage_sums.py`):

| fault | caught by |
|---|---|
| leave out a share of the noise (one client of seven adds none; steps, and the sum of a round) | `noise` |
| count colluders among those who hide (m in the place of m - t) | `noise` |
| count the noise of the missing (all clients in the place of m) | `noise` |
| halve the noise, or halve the shares | `one release` |
| halve the shares of an answer | `survey` |
| count ten times as much beside the vector, for a quantile clip | `one release` |
| drop the clip | `movement` |
| send the same numbers again, after a crash; forget a debit | `books` |
| reuse a noise key, in another round | `noise` |
| let all clients have one coin, where they draw themselves | `batches` |
| reuse the masks of pairs, or reuse all masks, in another round | `masks` |
| mask by a seed of zeros | `masks` |
| open a seed by one share fewer | `masks` |
| leave a number unmasked | `masks` |
| open below the least number of survivors | `masks` |
| leave the masks of the missing in the sum | `masks` |

What is still not caught: noise that repeats in fewer than some 2,000 of 65,536 numbers, or at no fixed shift; less than some 2 % of
the deviation missing; what goes wrong after the third round only, with empty batches, or with samples that are not finite (tests of
their own hold the last two); noise from a seed that an adversary knows by other ways than trying (a `Keyed` run says so in its statement);
draws whose dependence does not show in sizes, in how often each comes, or in two draws running; uploads after several steps that
move further than the search finds (after one step it finds all of it, after three some 3 % of what is stated); and whatever only a
machine, a clock or a network shows.
"""


def main() -> None:
    rows, shown = [], []
    for name in ALGORITHMS:
        for variant in ("sound", "published") if "variant" in options_of(name) else ("sound",):
            print(name, variant, flush=True)
            made = (
                from_name(name, variant=variant)
                if "variant" in options_of(name)
                else from_name(name)
            )
            report = audit(made, games=[game for game in GAMES if game not in ATTACKS])
            rows.append(
                _row(
                    name,
                    report,
                    _largest(report, made) if variant == "sound" and report.findings else "",
                )
            )
            shown += [
                _leak(name, finding)
                for finding in report.findings
                if finding.game == "leaks" and finding.measured
            ]
    secure = [
        _row(f"{name}`, `{', '.join(words)}" if words else name, *_audited(name, words))
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
        + "\n".join(shown)
        + "\n"
        + ABOUT
    )
    (DOCS / "truth.md").write_text(page)


def _audited(name: str, words: list[str]) -> tuple[AuditReport, str]:
    """Under secure aggregation, with options in words."""
    print(name, *words, "secure", flush=True)
    options = {key: json.loads(value) for key, value in (word.split("=", 1) for word in words)}
    made = from_name(name, **options).with_secure_sums(SUMS)
    report = audit(made, games=[game for game in GAMES if game not in ATTACKS])
    return report, _largest(report, made)


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


def _largest(report: AuditReport, made) -> str:  # type: ignore[no-untyped-def]
    """Of twenty audits with bounds only; none may be above what is proven."""
    shares = []
    for seed in range(REPEATS):
        (finding,) = audit(
            made, AuditSettings(seed=seed, trials=1000), games=["one release"]
        ).findings
        assert finding.verdict != "broken", (report.system, seed, finding)
        shares += (
            [finding.measured / finding.proven]
            if finding.measured is not None and finding.proven
            else []
        )
    return f"{max(shares):.0%}" if shares else ""


def _leak(name: str, finding: AuditFinding) -> str:
    return f"- `{name}`: {finding.detail}."


if __name__ == "__main__":
    main()
