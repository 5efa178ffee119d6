"""Paths that take JSON: parsed and checked in one step, at a third of what FastAPI's own way costs."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from mein.serve.guard import Refused

JSON = "application/json"


class JsonRoute(APIRoute):
    """A route whose endpoint takes a checked body and the request, and returns a response."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What answers a request; FastAPI asks for it once."""
        assert self.body_field is not None, "an endpoint of JSON takes a body"
        shape: Any = self.body_field.field_info.annotation
        check = TypeAdapter(shape).validate_json
        endpoint = self.endpoint

        async def handle(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != JSON:
                raise Refused(415, f"The body is not said to be JSON: send it with `Content-Type: {JSON}`.")
            content = await request.body()
            try:
                body = check(content)
            except ValidationError as problem:
                raise RequestValidationError(problem.errors(include_input=False)) from problem
            response: Response = await endpoint(body, request)
            return response

        return handle
