"""What each option of the systems means, in a line; `system.option` where a system means something
else by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "alpha": "the next clip, in mean norms of the gradients released last",
        "averaging": "power p: iterate t weighs about t^p in the mean that is the model; 0 is no "
        "mean",
        "bands": "diagonals of the matrix, hence rounds that share noise; by default one a turn",
        "batch_size": "samples in a step without noise of its own",
        "hw-dpfl.batch_size": "samples in a step, b; every batch has exactly so many",
        "beta": "factor of the noise after three rounds in which the public loss fell",
        "by_layer": "Haar coefficients of one parameter at a time, not of the whole vector",
        "clients": "N of the paper's noise: how many clients there are",
        "clip": "largest L2 norm of what gets the noise: a sample's gradient, a client's update or "
        "its model",
        "ce-fedavg.clip": "largest L2 norm of what is clipped; there is no noise",
        "clip_decay": "the last clip over the first",
        "clipping": "flat (one norm), or per-layer",
        "ce-fedavg.clipping": "difference (the update) or model",
        "dp-sgd-wav.clipping": "flat, or levels (as published: each level of coefficients by "
        "itself)",
        "dp-fedavg-wav.clipping": "updates, or gradients (as published: of samples); by the "
        "variant if not given",
        "dp-fedavg.clipping": "flat, per-layer, quantile (paid for), or public-median (of public "
        "clients)",
        "custom.clipping": "flat, per-layer, haar; for the sum of a round also quantile and "
        "public-median",
        "cohort": "clients expected in a round; all of them if not given",
        "dp-ftrl.cohort": "clients in a group; groups take turns",
        "controls": "SCAFFOLD's control variates",
        "count_noise": "noise on the count of updates inside the quantile's clip",
        "delta": "delta of the paper's noise",
        "energies": "public energies of the Haar bands, for haar_weights = 'matched'",
        "estimates": "where rho, beta and xi come from: released, public or raw; by the variant if "
        "not given",
        "exposures": "L of the paper's noise: how often an upload is seen",
        "formula": "tau's bound: corrected, printed, consistent or code (the authors'); by the "
        "variant if not given",
        "gamma": "Gamma, how unlike the clients are: a number, public or raw; by variant and "
        "reading if not given",
        "custom.gamma": "Gamma, how unlike the clients are, for steps = 'ali'",
        "haar_weights": "paper (m, then 2^level), orthonormal or matched",
        "histogram_noise": "noise multiplier of the label histogram that weights are made of",
        "lam": "lambda of the bound (13): the least loss above the optimum, below 1",
        "lemma": "as published: add the noise of Lemma 2, sqrt(2 / (2 + log2 m)) of what is "
        "counted",
        "mean_noise": "noise multiplier of the samples' mean, for models that subtract it; 0 asks "
        "for none",
        "most_tau": "tau is at most this; 1 is one step in every round, which secure aggregation "
        "needs",
        "mu": "weight of the contrast in the loss",
        "ali-dpfl.clip": "largest L2 norm of a sample's gradient; 1, or 0.1 in the code's reading, "
        "if not given",
        "ali-dpfl.mu": "the bound's mu: a number, released, paid, public, raw or steps; by variant "
        "and reading if not given",
        "mu_decay": "the last noise multiplier over the first",
        "noise": "who adds it: server, or clients (needs secure aggregation)",
        "noise_multiplier": "noise over sensitivity; the least that lasts within epsilon if not "
        "given",
        "ali-dpfl.noise_multiplier": "noise over sensitivity",
        "als-dpfl.noise_multiplier": "noise over sensitivity",
        "omega": "omega of the bound (13): the inverse square of the way to the optimum",
        "objective": "plain cross-entropy, contrastive or perturbed; the last two without noise in "
        "steps",
        "optimiser": "of local steps: sgd, momentum, adam or adagrad",
        "perturbation": "deviation of the noise on the last layer inside the loss",
        "phases": "in so many phases the noise moves",
        "phi": "phi of the bound: 5e-5 suits CNNs, 0.025 convex models",
        "fedprox.noise_multiplier": "noise over sensitivity of DP-SGD steps; with private, the "
        "least within epsilon",
        "private": "DP-SGD steps with planned noise; else none, unless there is a noise_multiplier",
        "pilot": "as published: rounds of the run without privacy that the clip comes from; as "
        "many as the run's if not given",
        "public_clip": "the clip is the median of public clients (data.public_clients)",
        "prox": "strength of the pull to the global model",
        "quantile": "share of updates that the clip should not cut",
        "rate": "learning rate of local steps",
        "auto.rate": "learning rate of local steps; from noise and walk if not given",
        "auto.clip": "bound on the norm of a sample's gradient; 0.05 if not given, and on rows of "
        "a table about the usual norm",
        "auto.walk": "how far the noise of the whole run may move the model; 15 if not given, and "
        "by the row on a table",
        "reading": "as published: by the paper, or by its authors' code; the paper if not given",
        "round_epsilon": "epsilon of a round in the paper's noise, as published",
        "rounds": "T of the paper's noise, as published",
        "samples": "samples of a client in the paper's noise, as published",
        "hw-dpfl.samples": "n_k of the paper's noise for all clients, as published; each one's own "
        "if not given",
        "dp-fedavg-wav.samples": "samples of the largest client, as published",
        "sampling": "of the cohort: poisson, or fixed-size (exactly so many)",
        "sampling_rate": "chance of each sample to be in a step, q",
        "server_momentum": "momentum of the server's step",
        "server_rate": "the server's step along the mean update, eta_g",
        "share": "weight of the perturbed loss, lambda",
        "steps": "local steps a round: fixed, ali or als",
        "tau": "local steps a round",
        "hw-dpfl.tau": "local steps a round, E; by the variant if not given",
        "temperature": "temperature of the contrast",
        "total_epsilon": "epsilon of the run in the paper's noise, as published",
        "variant": "sound, or published: as the paper prints it, with what that leaks",
        "weights": "of clients: size (declared), or uniform",
        "hw-dpfl.weights": "similarity or distance of label histograms; by the variant if not "
        "given",
        "custom.weights": "size, uniform, or by label histograms: similarity or distance",
        "where": "what gets the noise: steps, uploads, round (its sum) or none",
        "whole_budget": "raise tau to what uses up epsilon by the last round",
    }
)


def meaning(system: str, option: str) -> str:
    """Nothing for an option of a user's own system."""
    return MEANINGS.get(f"{system}.{option}", MEANINGS.get(option, "") if ":" not in system else "")
