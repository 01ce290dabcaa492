"""Downloads the public data sets from their origins, and checks them against their published
hashes.
"""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Protocol

import pooch

from dpfl.bad_values import suggest
from dpfl.data.sources.files import CIFAR10_TEST, CIFAR10_TRAIN
from dpfl.data.sources.folders import data_folder
from dpfl.errors import DpflError


class DownloadProgress(Protocol):
    """A watcher of a download, as pooch calls it.

    Attributes:
        total: The number of bytes to come.
    """

    total: int

    def update(self, count: int) -> None:
        """Counts bytes that arrived.

        Args:
            count: Their number.
        """

    def reset(self) -> None:
        """Starts counting anew."""

    def close(self) -> None:
        """Ends the display."""


Watch = Callable[[str], AbstractContextManager[DownloadProgress]]
"""Makes a progress bar for the file of this name, while it is fetched."""


@dataclass(frozen=True)
class DownloadSource:
    """The files of a data set at their origin.

    Attributes:
        base_url: The address of the folder that they are in.
        hashes: The name and the published hash of each file.
        unpacked_files: The files that must come out of an archive; none where the files are no
            archive.
    """

    base_url: str
    hashes: tuple[tuple[str, str], ...]
    unpacked_files: tuple[str, ...] = ()


REMOTES: Mapping[str, DownloadSource] = MappingProxyType(
    {
        "mnist": DownloadSource(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            (
                ("train-images-idx3-ubyte.gz", "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"),
                ("train-labels-idx1-ubyte.gz", "md5:d53e105ee54ea40749a09fcbcd1e9432"),
                ("t10k-images-idx3-ubyte.gz", "md5:9fb629c4189551a2d022fa330f9573f3"),
                ("t10k-labels-idx1-ubyte.gz", "md5:ec29112dd5afa0611ce80d1b7f02629c"),
            ),
        ),
        "fashion-mnist": DownloadSource(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            (
                ("train-images-idx3-ubyte.gz", "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                ("train-labels-idx1-ubyte.gz", "md5:25c81989df183df01b3e8a0aad5dffbe"),
                ("t10k-images-idx3-ubyte.gz", "md5:bef4ecab320f06d8554ea6380940ec79"),
                ("t10k-labels-idx1-ubyte.gz", "md5:bb300cfdad3c16e7a12a480ee83cd310"),
            ),
        ),
        "emnist": DownloadSource(
            "https://biometrics.nist.gov/cs_links/EMNIST/",
            (("gzip.zip", "md5:58c8d27c78d21e728a6bc7b3cc06412e"),),
            tuple(
                f"gzip/emnist-{split}-{part}-{kind}-ubyte.gz"
                for split in ("digits", "mnist", "letters", "balanced", "bymerge", "byclass")
                for part in ("train", "test")
                for kind in ("images-idx3", "labels-idx1")
            ),
        ),
        "cifar10": DownloadSource(
            "https://www.cs.toronto.edu/~kriz/",
            (
                (
                    "cifar-10-binary.tar.gz",
                    "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                ),
            ),
            tuple(f"cifar-10-batches-bin/{file}" for file in (*CIFAR10_TRAIN, *CIFAR10_TEST)),
        ),
    }
)


def get(
    name: str,
    folder: str | Path | None = None,
    base_url: str | None = None,
    watch: Watch | None = None,
    remotes: Mapping[str, DownloadSource] = REMOTES,
) -> Path:
    """Downloads a data set into its own folder within the data folder, unless it is there.

    Args:
        name: The name of the data set.
        folder: The folder of all data sets.
        base_url: Another address than the origin's.
        watch: Opens a display for a file's download.
        remotes: The data sets that there are.

    Returns:
        The folder of the data set.

    Raises:
        DpflError: There is no such data set, or the download failed.
    """
    data_set = "emnist" if name.startswith("emnist-") else name
    if data_set == "mnist-sample":
        raise DpflError(
            "mnist-sample comes with the package: there is nothing to get, use it by its name."
        )
    if data_set not in remotes:
        raise DpflError(f"There is no data set {name!r} to get; {suggest(name, remotes)}")
    remote, target = remotes[data_set], data_folder(folder) / data_set
    if remote.unpacked_files and all((target / file).is_file() for file in remote.unpacked_files):
        return target
    for file, known_hash in remote.hashes:
        path = _fetch(
            (base_url or remote.base_url).rstrip("/") + "/" + file, known_hash, target / file, watch
        )
        if remote.unpacked_files:
            unpack(path, target)
            path.unlink()
    if absent := next(
        (file for file in remote.unpacked_files if not (target / file).is_file()), None
    ):
        raise DpflError(
            f"The archive of {data_set} did not hold {absent}: report it, or get the files by hand."
        )
    return target


def unpack(archive: Path, folder: Path) -> None:
    """Writes the regular files of an archive under a folder.

    Args:
        archive: A .zip or .tar.gz file.
        folder: The folder.

    Raises:
        DpflError: The archive is damaged, or a name in it leads out of the folder.
    """
    root = folder.resolve()
    try:
        for name, stream in _members(archive):
            path = (root / name).resolve()
            if not path.is_relative_to(root):
                raise DpflError(
                    f"The archive {archive} wants to write outside its folder ({name}): do not use "
                    "it."
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            part_path = path.with_name(path.name + ".part")
            with part_path.open("wb") as out:
                shutil.copyfileobj(stream, out)
            part_path.replace(path)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise DpflError(
            f"The archive {archive} is damaged ({error}): delete it and get it again."
        ) from error


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as zip_file:
            for info in zip_file.infolist():
                if not info.is_dir():
                    with zip_file.open(info) as stream:
                        yield info.filename, stream
    else:
        with tarfile.open(archive) as tar_file:
            for member in tar_file:
                content = tar_file.extractfile(member) if member.isfile() else None
                if content is not None:
                    yield member.name, content


def _fetch(url: str, known_hash: str, path: Path, watch: Watch | None) -> Path:
    pooch.get_logger().setLevel("WARNING")
    try:
        with watch(path.name) if watch else nullcontext(False) as bar:
            downloader = pooch.HTTPDownloader(progressbar=bar, timeout=60)
            return Path(
                pooch.retrieve(url, known_hash, path.name, path.parent, downloader=downloader)
            )
    except ValueError as error:
        raise DpflError(
            f"What came from {url} does not have the published hash: try again, or tell its host."
        ) from error
    except OSError as error:
        raise DpflError(
            f"{url} could not be downloaded to {path.parent} ({type(error).__name__}): check the "
            "network and "
            "the folder, or put the file there by hand."
        ) from error
