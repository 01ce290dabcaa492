"""What a server rebuilds from an update, as a picture."""

from __future__ import annotations

from pathlib import Path

from dpfl.audit.attacks.inversion import Draw, Reconstruction


def into(folder: Path) -> Draw:
    """Pictures in this folder, a file a system."""

    def drawn(rebuilt: Reconstruction, system: str) -> str:
        path = folder / f"{system.replace(', ', '-')}-inversion.png"
        draw(rebuilt, path, system)
        return str(path)

    return drawn


def draw(rebuilt: Reconstruction, path: Path, title: str) -> None:
    """The three pictures side by side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    without, released = rebuilt.likeness
    names = (
        "the client's image",
        f"rebuilt without the release ({without:.2f})",
        f"with the release ({released:.2f})",
    )
    figure, axes = pyplot.subplots(1, 3, figsize=(9, 3.4), constrained_layout=True)
    for axis, picture, name in zip(
        axes, (rebuilt.image, rebuilt.without, rebuilt.released), names, strict=True
    ):
        axis.imshow(picture.numpy(), cmap="gray")
        axis.set_title(name, fontsize="medium")
        axis.set_axis_off()
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
