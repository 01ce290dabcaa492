"""Plays the amplification game of `dpfl.audit` on the clipped sums of other packages: `make
amplified-peers` prints a table of docs/peers.md.

A batch gets one unit more, and the model amplifies the last bit of a layer. The table has the
movement of the sum of clipped gradients, in clip norms, at the worst size and place of a bounded
search. There is no noise: a sum that moves by more than 1 gets too little of it. The table says
nothing about models that nobody chose to amplify.
"""

from __future__ import annotations

import argparse
import copy
import importlib.metadata
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dpfl.audit.amplification.amplifiers import Amplifier, backward, convolution, linear, mlp
from dpfl.audit.amplification.search import AmplificationTrial, Sums, furthest_movement

LAYERS: dict[str, Callable[[], Amplifier]] = {
    "linear 3969-10": lambda: linear(3969, 10),
    "linear 13-2": lambda: linear(13, 2),
    "linear 31-2": lambda: linear(31, 2),
    "linear 105-10": lambda: linear(105, 10),
    "mlp 784-200-10": lambda: mlp(784, 200, 10),
    "convolution 3x16x16, 8 filters 3x3": lambda: convolution((3, 16, 16), 8, 3, 10),
    "mlp 49-16-10, backward": lambda: backward(8, 16, 10),
}
BATCH_MULTIPLE = 64
"""The number of rows of a padded batch of jax-privacy is a multiple of this."""


def opacus(mode: str, amplifier: Amplifier) -> Sums:
    """Returns the sums of `PrivacyEngine.make_private` in a mode, without noise."""
    from opacus import PrivacyEngine

    module = copy.deepcopy(amplifier.module)
    one = amplifier.base[None]
    data = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(one, torch.ones(1, dtype=torch.int64))
    )
    parts = PrivacyEngine().make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.0),
        data_loader=data,
        noise_multiplier=0.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
        loss_reduction="sum",
        grad_sample_mode=mode,
        criterion=nn.CrossEntropyLoss(reduction="sum"),
    )
    private, optimizer = parts[0], parts[1]
    criterion = parts[2] if mode == "ghost" else nn.CrossEntropyLoss(reduction="sum")

    def play(x: Tensor, y: Tensor, _: Tensor | None) -> AmplificationTrial:
        optimizer.zero_grad()
        scores = private(x)
        criterion(scores, y).backward()
        optimizer.pre_step()
        total = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
        return AmplificationTrial(
            total.detach().clone(), functional.cross_entropy(scores.detach(), y, reduction="none")
        )

    return play


def jax_privacy(padded: bool, amplifier: Amplifier) -> Sums:
    """Returns the sums of `clipped_grad` over the same layers in JAX, for batches padded or not."""
    import jax
    from jax_privacy import clipped_grad

    weights, forward = in_jax(amplifier.module)

    def loss(weights: list, x: jax.Array, y: jax.Array) -> jax.Array:
        logs = jax.nn.log_softmax(forward(weights, x), axis=-1)
        return -jax.numpy.take_along_axis(logs, y[:, None], axis=1)[:, 0].mean()

    clipped_sum = jax.jit(
        clipped_grad(loss, batch_argnums=(1, 2), l2_clip_norm=1.0, return_values=True)
    )

    def play(x: Tensor, y: Tensor, _: Tensor | None) -> AmplificationTrial:
        size = len(x)
        missing = -size % BATCH_MULTIPLE if padded else 0
        rows = np.concatenate([x.numpy(), np.zeros((missing, *x.shape[1:]), np.float32)])
        labels = np.concatenate([y.numpy(), np.zeros(missing, np.int64)]).astype(np.int32)
        total, aux = clipped_sum(
            weights, rows, labels, is_padding_example=np.arange(size + missing) >= size
        )
        leaves = [
            np.array(leaf).T if leaf.ndim == 2 else np.array(leaf)
            for leaf in jax.tree.leaves(total)
        ]
        return AmplificationTrial(
            torch.cat([torch.from_numpy(leaf.flatten()) for leaf in leaves]),
            torch.from_numpy(np.array(aux.values))[:size].flatten(),
        )

    return play


def in_jax(module: nn.Module) -> tuple[list, Callable]:
    """Returns weights and forward pass of linear layers, convolutions, ReLU and Flatten."""
    import jax

    layers = list(module.children())
    weights = []
    for layer in layers:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            matrix = layer.weight.detach().numpy()
            weights.append(
                (matrix.T.copy() if matrix.ndim == 2 else matrix, layer.bias.detach().numpy())
            )

    def forward(weights: list, x: jax.Array) -> jax.Array:
        remaining = iter(weights)
        for layer in layers:
            if isinstance(layer, nn.Linear):
                matrix, bias = next(remaining)
                x = x @ matrix + bias
            elif isinstance(layer, nn.Conv2d):
                filters, bias = next(remaining)
                x = jax.lax.conv(x, filters, (1, 1), "VALID") + bias[:, None, None]
            else:
                x = jax.nn.relu(x) if isinstance(layer, nn.ReLU) else x.reshape(len(x), -1)
        return x

    return weights, forward


PEERS: dict[str, tuple[str, str, Callable[[Amplifier], Sums]]] = {
    "opacus-hooks": ("opacus", "hooks", lambda amplifier: opacus("hooks", amplifier)),
    "opacus-functorch": ("opacus", "functorch", lambda amplifier: opacus("functorch", amplifier)),
    "opacus-ghost": ("opacus", "ghost clipping", lambda amplifier: opacus("ghost", amplifier)),
    "jax-privacy": ("jax-privacy", "clipped_grad", lambda amplifier: jax_privacy(False, amplifier)),
    "jax-privacy-padded": (
        "jax-privacy",
        f"clipped_grad, padded to {BATCH_MULTIPLE}",
        lambda amplifier: jax_privacy(True, amplifier),
    ),
}


def rows(peer: str, layers: list[str]) -> Iterator[str]:
    """Yields the lines of the table."""
    package, mode, summing = PEERS[peer]
    name = f"{package} {importlib.metadata.version(package)}"
    for layer in layers:
        amplifier = LAYERS[layer]()
        result = furthest_movement(summing(amplifier), amplifier)
        yield f"| {name} | {mode} | {layer} | {result.others} and 1 | {result.movement:.2f} |"


def main() -> None:
    """Plays the game on the chosen peers and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=PEERS, default=list(PEERS), help="these peers")
    parser.add_argument(
        "--layers", nargs="*", choices=LAYERS, default=list(LAYERS), help="these layers"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, one thread")
    print("| package | way | layer | records | moved, in clip norms |\n|---|---|---|---|---|")
    for peer in options.only:
        try:
            for row in rows(peer, options.layers):
                print(row, flush=True)
        except ImportError as error:
            print(f"| {peer} | not installed ({error}) | | | |", flush=True)


if __name__ == "__main__":
    main()
