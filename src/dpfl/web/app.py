"""Every address of the web app, and what is answered there. Files of the page itself are in
static/.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from fastapi.staticfiles import StaticFiles

from dpfl import __version__
from dpfl.algorithms.catalog import describe_all, describe_one
from dpfl.bad_values import invalid
from dpfl.errors import DpflError
from dpfl.views.run_tables import RunTables
from dpfl.web import ledger_views, planner, run_views
from dpfl.web.auth import AccessKeys
from dpfl.web.control import RunControl
from dpfl.web.event_stream import EventStream
from dpfl.web.run_index import RunIndex, as_runs_write

STATIC = Path(__file__).parent / "static"
MOST_COMPARED = 24

Name = Annotated[str, Query(max_length=255)]
Names = Annotated[list[str], Query(min_length=1, max_length=MOST_COMPARED)]
Wanted = Annotated[planner.PlanRequest, Query()]


def make_app(root: Path, keys: AccessKeys) -> FastAPI:
    shelf = RunIndex(root)
    control, drawing = RunControl(shelf), threading.Lock()
    live = EventStream(shelf, control.is_starting)
    app = FastAPI(title="dpfl", docs_url=None, redoc_url=None, openapi_url=None, lifespan=_warm)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    _errors(app)

    @app.get("/api/session")
    def session() -> dict[str, Any]:
        return {"write": keys.write, "version": __version__, "root": str(root)}

    @app.get("/api/runs")
    def runs() -> dict[str, Any]:
        return {"runs": shelf.lines(), "starting": control.starting(), "failed": control.failed()}

    @app.get("/api/run")
    def run(name: Name) -> dict[str, Any]:
        folder = shelf.open(name)
        with as_runs_write(name):
            return run_views.run_view(folder, name, shelf.root)

    @app.get("/api/events")
    async def events(name: Name, after: Annotated[int, Query(ge=0)] = 0) -> StreamingResponse:
        await asyncio.to_thread(shelf.open, name)
        live.refuse_more()
        return StreamingResponse(live.watch(name, after), media_type="text/event-stream")

    @app.post("/api/run/{what}")
    def act(what: str, name: Name) -> dict[str, str]:
        actions = {"pause": control.pause, "stop": control.stop, "resume": control.resume}
        if what not in actions:
            raise DpflError(
                f"A run can be paused, stopped and resumed, but not be given {what[:20]!r}."
            )
        actions[what](name)
        return {"done": what}

    @app.get("/api/compare")
    def compare(name: Names) -> dict[str, Any]:
        with as_runs_write(", ".join(name)):
            return run_views.comparison_view(read(name))

    @app.get("/report")
    def report(name: Names) -> HTMLResponse:
        from dpfl.views.figures import pictures
        from dpfl.views.run_report import page, policy

        with drawing, as_runs_write(", ".join(name)):
            tables = read(name)
            text = page(tables, pictures(tables))
        return HTMLResponse(
            text, headers={"content-security-policy": f"{policy()}; frame-ancestors 'none'"}
        )

    @app.get("/api/plan")
    def plan(wanted: Wanted) -> dict[str, Any]:
        return planner.answer(wanted)

    @app.get("/api/experiment")
    def experiment(wanted: Wanted) -> PlainTextResponse:
        said = {"content-disposition": 'attachment; filename="experiment.toml"'}
        return PlainTextResponse(
            tomli_w.dumps(planner.experiment(wanted)), headers=said, media_type="application/toml"
        )

    @app.post("/api/start")
    def start(wanted: planner.StartRequest) -> dict[str, str]:
        control.start(
            wanted.name,
            planner.experiment(planner.PlanRequest(**wanted.model_dump(exclude={"name"}))),
        )
        return {"name": wanted.name}

    @app.get("/api/planner")
    def planner_choices() -> dict[str, Any]:
        return {"data": list(planner.DATA), "models": list(planner.MODELS)}

    @app.get("/api/systems")
    def systems() -> list[dict[str, Any]]:
        return describe_all()

    @app.get("/api/system")
    def system(name: Annotated[str, Query(max_length=60)]) -> dict[str, Any]:
        if ":" in name:
            raise DpflError("Only systems of the catalogue are shown here.")
        return describe_one(name)

    @app.get("/api/ledgers")
    def ledgers(name: Name) -> dict[str, Any]:
        return ledger_views.ledgers_of(shelf, shelf.open(name))

    @app.get("/api/ledger")
    def ledger(name: Name, owner: Annotated[str, Query(max_length=255)]) -> dict[str, Any]:
        return ledger_views.ledger_view(shelf, shelf.open(name), owner)

    @app.post("/api/verify")
    def verify(name: Name) -> dict[str, Any]:
        return ledger_views.verdict(shelf, shelf.open(name))

    @app.get("/certificate")
    def certificate(name: Name) -> FileResponse:
        path = shelf.open(name).file("certificate.html")
        if not path.is_file():
            raise DpflError(
                f"The run {name!r} has no certificate to print; make one with: dpfl certify RUN"
            )
        policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
        return FileResponse(
            path, media_type="text/html", headers={"content-security-policy": policy}
        )

    @app.get("/favicon.ico")
    def icon() -> FileResponse:
        return FileResponse(STATIC / "icon.svg", media_type="image/svg+xml")

    @app.get("/{page:path}")
    def pages(page: str) -> Response:
        known = page in ("", "run", "compare", "plan", "systems", "privacy")
        return FileResponse(STATIC / "index.html", status_code=200 if known else 404)

    def read(names: list[str]) -> list[RunTables]:
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise DpflError(f"The run {twice!r} is named twice; name it once.")
        return [RunTables.read(shelf.open(name).path, name, shelf.root) for name in names]

    return app


@asynccontextmanager
async def _warm(app: FastAPI) -> AsyncIterator[None]:
    """The first plan waits for no import: torch and the accountants are read while the first page
    is looked at.
    """

    def warm() -> None:
        planner.answer(planner.PlanRequest(epsilon=4.0, rounds=80, exact=True))

    threading.Thread(
        target=warm
    ).start()  # one that is cut off inside of torch takes the process down with an abort
    yield


def _errors(app: FastAPI) -> None:
    """One sentence each, whatever went wrong."""

    def sentence(status: int, text: str) -> JSONResponse:
        return JSONResponse({"error": text}, status)

    @app.exception_handler(DpflError)
    async def wrong(request: Request, error: DpflError) -> JSONResponse:
        return sentence(400, str(error))

    @app.exception_handler(RequestValidationError)
    async def unfit(request: Request, error: RequestValidationError) -> JSONResponse:
        return sentence(422, str(invalid(error, "the request")))

    @app.exception_handler(OSError)
    async def unread(request: Request, error: OSError) -> JSONResponse:
        return sentence(
            410, f"A file could not be read ({error.strerror or error}); the run may be gone."
        )
