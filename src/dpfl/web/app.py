"""Every address of the web app and its answer. The pages themselves are in `static/`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from fastapi import APIRouter, FastAPI, Query, Request
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
from dpfl.bad_values import choose, invalid
from dpfl.errors import DpflError
from dpfl.privacy.statement_view import protected_unit
from dpfl.views.run_tables import RunTables
from dpfl.web import ledger_views, planner, run_views
from dpfl.web.auth import AccessKeys
from dpfl.web.control import RunControl
from dpfl.web.event_stream import EventStream
from dpfl.web.run_index import RunIndex
from dpfl.web.run_line import refuse_malformed

STATIC = Path(__file__).parent / "static"
PAGES = ("", "run", "compare", "plan", "systems", "privacy")
MOST_COMPARED = 24

Name = Annotated[str, Query(max_length=255)]
Names = Annotated[list[str], Query(min_length=1, max_length=MOST_COMPARED)]
Plan = Annotated[planner.PlanRequest, Query()]


def make_app(root: Path, keys: AccessKeys) -> FastAPI:
    """Puts the web app together.

    Args:
        root: The folder of runs.
        keys: Who may do what; the pages are told the key that changes need.

    Returns:
        The app. `AuthMiddleware` must stand before it.
    """
    index = RunIndex(root)
    control = RunControl(index)
    app = FastAPI(title="dpfl", docs_url=None, redoc_url=None, openapi_url=None, lifespan=_warm_up)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    _answer_errors(app)

    @app.get("/api/session")
    def session() -> dict[str, Any]:
        return {"write": keys.write, "version": __version__, "root": str(root)}

    app.include_router(RunRoutes(index, control).router())
    app.include_router(_planner_routes(control))
    app.include_router(_system_routes())
    app.include_router(_privacy_routes(index))
    app.include_router(_page_routes())
    return app


@dataclass(frozen=True)
class RunRoutes:
    """The addresses of runs: the list, one run, its events, comparisons and reports."""

    index: RunIndex
    control: RunControl

    def router(self) -> APIRouter:
        """Lists the addresses.

        Returns:
            Routes to include in the app.
        """
        index, control, router = self.index, self.control, APIRouter()
        events, drawing = EventStream(index, control.is_starting), threading.Lock()

        @router.get("/api/runs")
        def runs() -> dict[str, Any]:
            starting, failures = control.starting(), control.failures()
            return {"runs": index.lines(), "starting": starting, "failed": failures}

        @router.get("/api/run")
        def run(name: Name) -> dict[str, Any]:
            folder = index.open(name)
            with refuse_malformed(name):
                return run_views.run_page(folder, name, index.root)

        @router.get("/api/events")
        async def watch(name: Name, after: Annotated[int, Query(ge=0)] = 0) -> StreamingResponse:
            await asyncio.to_thread(index.open, name)
            events.refuse_more()
            return StreamingResponse(events.watch(name, after), media_type="text/event-stream")

        @router.post("/api/run/{what}")
        def act(what: str, name: Name) -> dict[str, str]:
            actions = {"pause": control.pause, "stop": control.stop, "resume": control.resume}
            choose("action", what, actions)(name)
            return {"done": what}

        @router.get("/api/compare")
        def compare(name: Names) -> dict[str, Any]:
            with refuse_malformed(", ".join(name)):
                return run_views.comparison_page(self._read(name))

        @router.get("/report")
        def report(name: Names) -> HTMLResponse:
            from dpfl.views.figures.run_figures import pictures
            from dpfl.views.report.page import page, policy

            with drawing, refuse_malformed(", ".join(name)):
                tables = self._read(name)
                text = page(tables, pictures(tables))
            content_policy = f"{policy()}; frame-ancestors 'none'"
            return HTMLResponse(text, headers={"content-security-policy": content_policy})

        return router

    def _read(self, names: list[str]) -> list[RunTables]:
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise DpflError(f"The run {twice!r} is named twice. Name it once.")
        root = self.index.root
        return [RunTables.read(self.index.open(name).path, name, root) for name in names]


def _planner_routes(control: RunControl) -> APIRouter:
    router = APIRouter()

    @router.get("/api/plan")
    def plan(request: Plan) -> dict[str, Any]:
        return planner.answer(request)

    @router.get("/api/experiment")
    def experiment(request: Plan) -> PlainTextResponse:
        return PlainTextResponse(
            tomli_w.dumps(planner.experiment(request)),
            headers={"content-disposition": 'attachment; filename="experiment.toml"'},
            media_type="application/toml",
        )

    @router.post("/api/start")
    def start(request: planner.StartRequest) -> dict[str, str]:
        control.check_name(request.name)  # planning takes seconds
        plan = planner.PlanRequest(**request.model_dump(exclude={"name"}))
        control.start(request.name, planner.experiment(plan))
        return {"name": request.name}

    @router.get("/api/planner")
    def choices() -> dict[str, Any]:
        return {"data": list(planner.DATA), "models": list(planner.MODELS)}

    return router


def _system_routes() -> APIRouter:
    router = APIRouter()

    @router.get("/api/systems")
    def systems() -> list[dict[str, Any]]:
        return [system | {"protects": protected_unit(system["unit"])} for system in describe_all()]

    @router.get("/api/system")
    def system(name: Annotated[str, Query(max_length=60)]) -> dict[str, Any]:
        if ":" in name:
            raise DpflError("This page shows only systems of the catalogue.")
        return describe_one(name)

    return router


def _privacy_routes(index: RunIndex) -> APIRouter:
    router = APIRouter()

    @router.get("/api/ledgers")
    def ledgers(name: Name) -> dict[str, Any]:
        return ledger_views.ledgers_of(index, index.open(name))

    @router.get("/api/ledger")
    def ledger(name: Name, owner: Annotated[str, Query(max_length=255)]) -> dict[str, Any]:
        return ledger_views.ledger_view(index, index.open(name), owner)

    @router.post("/api/verify")
    def verify(name: Name) -> dict[str, Any]:
        return ledger_views.verdict(index, index.open(name))

    @router.get("/certificate")
    def certificate(name: Name) -> FileResponse:
        path = index.open(name).file("certificate.html")
        if not path.is_file():
            raise DpflError(
                f"The run {name!r} has no certificate to print. Make one with: dpfl certify RUN"
            )
        policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
        headers = {"content-security-policy": policy}
        return FileResponse(path, media_type="text/html", headers=headers)

    return router


def _page_routes() -> APIRouter:
    router = APIRouter()

    @router.get("/favicon.ico")
    def icon() -> FileResponse:
        return FileResponse(STATIC / "icon.svg", media_type="image/svg+xml")

    @router.get("/{page:path}")
    def pages(page: str) -> Response:
        return FileResponse(STATIC / "index.html", status_code=200 if page in PAGES else 404)

    return router


@asynccontextmanager
async def _warm_up(app: FastAPI) -> AsyncIterator[None]:
    """Imports torch and the accountants in the background, so that the first plan is quick.

    The thread is not a daemon, because ending a thread inside torch aborts the whole process.
    """

    def plan() -> None:
        planner.answer(planner.PlanRequest(epsilon=4.0, rounds=80, exact=True))

    threading.Thread(target=plan).start()
    yield


def _answer_errors(app: FastAPI) -> None:
    """Answers every error with one sentence."""

    def sentence(status: int, text: str) -> JSONResponse:
        return JSONResponse({"error": text}, status)

    @app.exception_handler(DpflError)
    async def answer_error(request: Request, error: DpflError) -> JSONResponse:
        return sentence(400, str(error))

    @app.exception_handler(RequestValidationError)
    async def answer_invalid_request(
        request: Request, error: RequestValidationError
    ) -> JSONResponse:
        return sentence(422, str(invalid(error, "the request")))

    @app.exception_handler(OSError)
    async def unreadable(request: Request, error: OSError) -> JSONResponse:
        cause = error.strerror or error
        return sentence(410, f"A file could not be read ({cause}). The run may be gone.")
