"""Draws what a server can reconstruct from a client's update."""

from __future__ import annotations

from pathlib import Path

from dpfl.audit.attacks.inversion import Draw, Reconstruction


def draw_into(folder: Path) -> Draw:
    """Makes a function that draws reconstructions into a folder, one file per system.

    Args:
        folder: The folder. It is created when the first picture is drawn.

    Returns:
        A function from a reconstruction and the name of a system to the path of the picture.
    """

    def save(rebuilt: Reconstruction, system: str) -> str:
        path = folder / f"{system.replace(', ', '-')}-inversion.png"
        draw(rebuilt, path, system)
        return str(path)

    return save


def draw(rebuilt: Reconstruction, path: Path, title: str) -> None:
    """Draws the image, and its reconstruction without and with the release, side by side.

    Args:
        rebuilt: The image and both reconstructions.
        path: The file to write. Its folder is created.
        title: The title, such as the name of the system.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    without, with_release = rebuilt.likeness
    names = (
        "the client's image",
        f"reconstructed from the raw update ({without:.2f})",
        f"from the released update ({with_release:.2f})",
    )
    figure, axes = pyplot.subplots(1, 3, figsize=(9, 3.4), constrained_layout=True)
    for axis, picture, name in zip(
        axes, (rebuilt.image, rebuilt.from_update, rebuilt.from_release), names, strict=True
    ):
        axis.imshow(picture.numpy(), cmap="gray")
        axis.set_title(name, fontsize="medium")
        axis.set_axis_off()
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
