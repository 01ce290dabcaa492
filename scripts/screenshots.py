"""Takes the pictures of pages that README and docs show: `make screenshots`.

They show real runs, by the real server, in a real browser.

    python scripts/screenshots.py [FOLDER]  # runs that are in the folder do not run again
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
PROGRAM = "from dpfl.cli import main; main()"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
RUNS = {
    "hospitals-a": ["seed=0"],
    "hospitals-b": ["seed=1"],
    "no-privacy": ["algorithm.name=fedavg"],
    "as-published": ["algorithm.name=ali-dpfl", "algorithm.variant=published"],
}
ROUNDS = 10
WIDTH, HEIGHT = 1180, 760
COLOURS = 128
"""The colours of a palette: a picture then has a third of the bytes and looks the same."""

SHOTS = {
    "ui-runs": ("/", "light", WIDTH),
    "ui-run": ("/run?name=hospitals-a", "light", WIDTH),
    "ui-compare": (
        "/compare?name=hospitals-a&name=hospitals-b&name=no-privacy&name=as-published",
        "dark",
        WIDTH,
    ),
    "ui-plan": ("/plan", "light", WIDTH),
    "ui-privacy": ("/privacy?name=hospitals-a", "light", WIDTH),
    "ui-phone": ("/run?name=hospitals-a", "dark", 390),
}


def dpfl(*words: str) -> None:
    """Runs a command of dpfl."""
    subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@contextmanager
def server(runs: Path) -> Iterator[str]:
    """Runs `dpfl ui` over a folder of runs, and yields its address."""
    command = [sys.executable, "-c", PROGRAM, "ui", "--runs", "runs", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=runs.parent)
    assert process.stderr is not None
    line = next(line for line in iter(process.stderr.readline, "") if "http://" in line)
    try:
        yield "http://" + line.partition("http://")[2].split()[0].rstrip("/")
    finally:
        process.terminate()
        process.wait(20)


def take_picture(browser: Browser, address: str, name: str, scheme: str, width: int) -> None:
    """Takes the picture of one page."""
    height = HEIGHT if width > 400 else 780
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=1.25
    )  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(address)
    if address.startswith("http"):
        page.wait_for_selector("#page[data-ready]", timeout=120_000)
    page.wait_for_timeout(2500)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(COLOURS)
    picture.save(PICTURES / f"{name}.png", optimize=True)
    context.close()


def main() -> None:
    """Makes the runs and takes every picture."""
    chromium = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    )
    if not chromium:
        sys.exit("There is no Chromium: apt install chromium, or name one by CHROMIUM.")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        runs = Path(sys.argv[1] if sys.argv[1:] else scratch).resolve() / "runs"
        for name, settings in RUNS.items():
            if (runs / name / "result.json").exists():
                continue
            words = [
                word
                for setting in (f"budget.rounds={ROUNDS}", *settings)
                for word in ("--set", setting)
            ]
            dpfl("run", *words, "--out", str(runs / name), "--quiet")
        if not (runs / "hospitals-a" / "certificate.json").exists():
            dpfl("key", "new", str(Path(scratch) / "key.pem"))
            dpfl("certify", str(runs / "hospitals-a"), "--key", str(Path(scratch) / "key.pem"))
        report = Path(scratch) / "report.html"
        dpfl("report", str(runs / "hospitals-a"), "--out", str(report))
        with sync_playwright() as playwright, server(runs) as address:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            for name, (path, scheme, width) in SHOTS.items():
                take_picture(browser, address + path, name, scheme, width)
            take_picture(browser, f"file://{report}", "report", "light", WIDTH)
            browser.close()
    for picture in sorted(PICTURES.glob("*.png")):
        print(f"{picture.name}  {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
