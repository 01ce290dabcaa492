import hashlib
import io
import socket
import tarfile
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from dpfl.data import catalog
from dpfl.data.sources.download import REMOTES, DownloadSource, get, unpack
from dpfl.errors import DpflError
from dpfl.views.terminal.download_progress import watch
from tests.data.writers import write_cifar10, write_mnist


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def host(tmp_path):
    """A loopback web server of the folder `origin`: its address and the folder."""
    origin = tmp_path / "origin"
    origin.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(origin)))
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", origin
    server.shutdown()
    server.server_close()
    thread.join()


def remote_of(origin, address, unpacked=()):
    hashes = tuple(
        (path.name, f"md5:{hashlib.md5(path.read_bytes()).hexdigest()}")
        for path in sorted(origin.iterdir())
    )
    return DownloadSource(address, hashes, unpacked)


def cifar10_archive(origin, folder):
    write_cifar10(folder / "cifar-10-batches-bin")
    with tarfile.open(origin / "cifar-10-binary.tar.gz", "w:gz") as archive:
        archive.add(folder / "cifar-10-batches-bin", "cifar-10-batches-bin")


@pytest.mark.parametrize("watched", [watch, None])
def test_get_downloads_into_the_data_sets_own_folder(tmp_path, host, watched):
    address, origin = host
    write_mnist(origin)
    remotes = {"mnist": remote_of(origin, address)}
    folder = get("mnist", tmp_path / "data", watch=watched, remotes=remotes)
    assert folder == tmp_path / "data" / "mnist"
    assert len(catalog.mnist(tmp_path / "data").train) == 40
    for path in origin.iterdir():
        path.unlink()
    assert get("mnist", tmp_path / "data", remotes=remotes) == folder


def test_another_address_may_serve_the_files(tmp_path, host):
    address, origin = host
    write_mnist(origin)
    remotes = {"mnist": remote_of(origin, "http://origin.invalid")}
    assert get("mnist", tmp_path / "data", base_url=address + "/", remotes=remotes).is_dir()


def test_a_wrong_hash_is_refused_and_leaves_nothing(tmp_path, host):
    address, origin = host
    write_mnist(origin)
    remotes = {"mnist": remote_of(origin, address)}
    (origin / "t10k-images-idx3-ubyte.gz").write_bytes(b"something else")
    with pytest.raises(
        DpflError, match=r"t10k-images-idx3-ubyte.gz does not have the published hash"
    ):
        get("mnist", tmp_path / "data", remotes=remotes)
    assert list((tmp_path / "data").rglob("t10k-images*")) == []


def test_no_network_is_said(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(DpflError, match="could not be downloaded"):
        get("mnist", tmp_path, base_url=address)


def test_a_file_that_is_not_there_is_said(tmp_path, host):
    with pytest.raises(DpflError, match=r"gzip.zip could not be downloaded"):
        get("emnist-digits", tmp_path, base_url=host[0])


def test_an_archive_is_unpacked_and_removed(tmp_path, host):
    address, origin = host
    cifar10_archive(origin, tmp_path / "made")
    remotes = {"cifar10": remote_of(origin, address, REMOTES["cifar10"].unpacked_files)}
    folder = get("cifar10", tmp_path / "data", remotes=remotes)
    assert len(catalog.cifar10(tmp_path / "data").train) == 20
    assert not list(folder.rglob("*.gz"))
    (origin / "cifar-10-binary.tar.gz").unlink()
    assert get("cifar10", tmp_path / "data", remotes=remotes) == folder


def test_an_archive_without_the_files_is_said(tmp_path, host):
    address, origin = host
    with zipfile.ZipFile(origin / "gzip.zip", "w") as archive:
        archive.writestr("gzip/readme", "nothing")
    remotes = {"emnist": remote_of(origin, address, REMOTES["emnist"].unpacked_files)}
    with pytest.raises(DpflError, match="did not hold gzip/emnist-digits-train-images"):
        get("emnist", tmp_path / "data", remotes=remotes)


@pytest.mark.parametrize("name", ["../escaped", "/tmp/dpfl-escaped", "inside/../../escaped"])
@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_an_archive_cannot_write_outside_its_folder(tmp_path, name, kind):
    path = tmp_path / f"bad.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, "x")
    else:
        with tarfile.open(path, "w:gz") as archive:
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(DpflError, match="outside its folder"):
        unpack(path, tmp_path / "target")
    assert not (tmp_path / "escaped").exists()


def test_links_in_an_archive_are_left_out(tmp_path):
    with tarfile.open(tmp_path / "links.tar.gz", "w:gz") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(link)
    unpack(tmp_path / "links.tar.gz", tmp_path / "target")
    assert not (tmp_path / "target" / "link").exists()


@pytest.mark.parametrize("name", ["broken.zip", "broken.tar.gz"])
def test_a_damaged_archive_is_said(tmp_path, name):
    (tmp_path / name).write_bytes(b"broken")
    with pytest.raises(DpflError, match="is damaged"):
        unpack(tmp_path / name, tmp_path / "target")


def test_names_that_cannot_be_got():
    with pytest.raises(DpflError, match="comes with the package"):
        get("mnist-sample")
    with pytest.raises(DpflError, match="did you mean 'fashion-mnist'"):
        get("fashionmnist")


def test_the_table_of_files_is_whole():
    assert set(REMOTES) == {"mnist", "fashion-mnist", "emnist", "cifar10"}
    lengths = {"md5": 32, "sha256": 64}
    for remote in REMOTES.values():
        for _, known in remote.hashes:
            kind, digest = known.split(":")
            assert len(digest) == lengths[kind]
    with pytest.raises(TypeError):
        REMOTES["own"] = REMOTES["mnist"]
