"""The web application around a model: its paths, its schema, and what each path answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BeforeValidator, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from mein import __version__
from mein.errors import MeinError
from mein.model.model import Model
from mein.serve.batching import Batcher, Explainer
from mein.serve.files import CsvLabeler
from mein.serve.guard import Guard, Metrics, Refused, error_body
from mein.serve.schema import (
    Explained,
    Health,
    Predictions,
    ServeSettings,
    Shape,
    explained,
    no_flag,
    refusals,
    sentence_of,
)

JSON = "application/json"


async def json_only(request: Request) -> None:
    """Refuse a body that is not declared as JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise Refused(415, f"The body is not declared as JSON: send it with `Content-Type: {JSON}`.")


def taking_json() -> dict[str, Any]:
    """What the paths that take JSON share."""
    refused = refusals(401, 408, 413, 415, 421, 422, 500, 503)
    return {"responses": refused, "dependencies": [Depends(json_only)]}


T = TypeVar("T")
PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
CSV = {"text/csv": {"schema": {"type": "string", "format": "binary", "minLength": 1}}}


@dataclass(frozen=True)
class Service:
    """What the paths share."""

    model: Model
    settings: ServeSettings
    metrics: Metrics
    batcher: Batcher
    explainer: Explainer

    async def in_time(self, work: Awaitable[T]) -> T:
        """The awaited result, or a refusal when it takes too long."""
        try:
            async with asyncio.timeout(self.settings.answer_seconds):
                return await work
        except TimeoutError as problem:
            raise Refused(
                503,
                f"The answer took over {self.settings.answer_seconds:g} seconds: send less, or try later.",
                retry_after="1",
            ) from problem

    def predictions(self, log_probs: np.ndarray) -> bytes:
        """The JSON of an answer, from log p(y | X) (n, Y)."""
        classes = self.model.labels.classes
        names = [str(label) for label in classes]
        best = log_probs.argmax(axis=1).tolist()
        rows = np.exp(log_probs).tolist()
        found = [
            {"label": classes[i], "probability": row[i], "probabilities": dict(zip(names, row, strict=True))}
            for i, row in zip(best, rows, strict=True)
        ]
        return json.dumps({"predictions": found}, ensure_ascii=False).encode("utf-8")


def make_app(
    model: Model,
    settings: ServeSettings | None = None,
    token: str | None = None,
    hosts: Collection[str] | None = None,
) -> FastAPI:
    """The application; with a token, only those who send it are answered; with hosts, only these names.

    >>> from starlette.testclient import TestClient  # doctest: +SKIP
    >>> with TestClient(make_app(load_model(Path("runs/reviews")))) as client:  # doctest: +SKIP
    ...     client.post("/predict", json={"text": "the battery died"}).json()
    """
    settings = ServeSettings() if settings is None else settings
    metrics = Metrics()
    batcher = Batcher(model.log_probs, settings, metrics)
    labeler = CsvLabeler(model, batcher, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        yield
        await labeler.stop()
        await service.explainer.stop()
        await batcher.stop()

    app = FastAPI(
        title="mein",
        version=__version__,
        description="Labels for texts, and the fragments behind them.",
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    service = Service(model, settings, metrics, batcher, Explainer(settings.explanations))
    _add_predict(app, service)
    _add_explain(app, service)
    _add_label(app, labeler)
    _add_watching(app, service)
    _add_page(app)
    _add_refusals(app)
    if token is not None:
        _document_token(app)
    app.add_middleware(Guard, settings=settings, metrics=metrics, token=token, hosts=hosts)
    return app


def _add_predict(app: FastAPI, service: Service) -> None:
    settings = service.settings

    class Texts(Shape):
        text: (
            Annotated[str, Field(max_length=settings.text_characters)]
            | Annotated[
                list[Annotated[str, Field(max_length=settings.text_characters)]],
                Field(min_length=1, max_length=settings.texts),
            ]
        )
        """One text, or a list of texts."""

    @app.post("/predict", response_model=Predictions, **taking_json())
    async def predict(body: Texts, request: Request) -> Response:
        """The label and the probabilities of one text or of many."""
        texts = [body.text] if isinstance(body.text, str) else body.text
        log_probs = await service.in_time(service.batcher.log_probs(texts))
        request.scope["mein.texts"] = len(texts)
        return Response(service.predictions(log_probs), media_type=JSON)


def _add_explain(app: FastAPI, service: Service) -> None:
    names = [str(label) for label in service.model.labels.classes]

    class Text(Shape):
        text: Annotated[str, Field(max_length=service.settings.text_characters)]
        top: Annotated[int, BeforeValidator(no_flag), Field(ge=0, le=10_000)] = 100
        """Number of fragments, the most influential first."""
        label: Annotated[str, Field(json_schema_extra={"enum": names})] | None = None
        """The label to explain. Default: the most probable."""

    @app.post("/explain", response_model=Explained, **taking_json())
    async def explain(body: Text, request: Request) -> Response:
        """The label of a text, and the fragments behind it."""
        work = partial(_explained_json, service.model, body.text, body.top, body.label)
        found = await service.in_time(service.explainer.call(work))
        request.scope["mein.texts"] = 1
        return Response(found, media_type=JSON)


def _explained_json(model: Model, text: str, top: int, label: str | None) -> bytes:
    return json.dumps(explained(model, text, top, label), ensure_ascii=False).encode("utf-8")


def _add_label(app: FastAPI, labeler: CsvLabeler) -> None:
    @app.post(
        "/label",
        response_class=Response,
        responses={
            200: {"content": CSV, "description": "The same file with the columns label and probability"},
            **refusals(401, 408, 413, 415, 421, 422, 500, 503),
        },
        openapi_extra={"requestBody": {"required": True, "content": CSV}},
    )
    async def label(
        request: Request, text_column: Annotated[str | None, Query(max_length=1_000)] = None
    ) -> Response:
        """Label every row of a CSV. Default of `text_column`: guessed."""
        return await labeler.answer(request, text_column)


def _add_watching(app: FastAPI, service: Service) -> None:
    @app.get("/health", response_model=Health, responses=refusals(421, 500))
    async def health() -> dict[str, str]:
        """Whether the server answers."""
        return {"status": "ok", "version": __version__}

    text = {"text/plain": {"schema": {"type": "string"}}}

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": text, "description": "For Prometheus"}, **refusals(401, 421, 500, 503)},
    )
    async def metrics() -> Response:
        """Requests, texts, latencies and batch sizes since the start."""
        return Response(service.metrics.render(), media_type=CONTENT_TYPE_LATEST)


def _add_page(app: FastAPI) -> None:
    for path, (name, media_type) in PAGE.items():
        content = resources.files("mein").joinpath("serve", "page", name).read_bytes()
        answer = partial(_static, content, media_type)
        app.add_api_route(path, answer, methods=["GET"], include_in_schema=False)


async def _static(content: bytes, media_type: str) -> Response:
    return Response(content, media_type=media_type)


def _add_refusals(app: FastAPI) -> None:
    """Every refusal is a status and one sentence."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, problem: Any) -> Response:
        return Response(error_body(sentence_of(problem.errors())), 422, media_type=JSON)

    @app.exception_handler(HTTPException)
    async def refused(_: Request, problem: Any) -> Response:
        sentences = {404: "Unknown path: see /openapi.json.", 405: "This path does not allow the method."}
        sentence = sentences.get(problem.status_code, str(problem.detail))
        if problem.status_code == 400:  # what FastAPI raises for bytes that json.loads cannot read
            return Response(error_body("The body: Invalid JSON."), 422, media_type=JSON)
        return Response(error_body(sentence), problem.status_code, problem.headers, JSON)

    @app.exception_handler(MeinError)
    async def mistaken(_: Request, problem: Any) -> Response:
        return Response(error_body(str(problem)), 422, media_type=JSON)


def _document_token(app: FastAPI) -> None:
    """Declare in the schema that a token is required."""
    schema = app.openapi()
    schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            operation["security"] = [] if path == "/health" else [{"token": []}]
