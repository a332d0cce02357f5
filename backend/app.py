"""The web application: routes, guard and error handlers around one site."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route, WebSocketRoute

from backend import openapi
from backend.errors import ApiError, on_api_error, on_engine_error, on_fault, on_http_error
from backend.guard import Guard
from backend.operation import Operation
from backend.routes import cache, capture, completions, fork, health, kernels, models, page, requests, traces, ws
from backend.site import Site
from engine.errors import TokenwalkError


def operations() -> list[Operation]:
    """Every HTTP operation, the description of them all included."""
    modules = (page, completions, capture, models, requests, fork, cache, kernels, traces, health)
    listed = [operation for module in modules for operation in module.OPERATIONS]
    return [*listed, openapi.operation_of(listed)]


def create_app(site: Site) -> Starlette:
    """Assemble the application. Starting and stopping the run is the caller's business."""
    routes = [
        Route(operation.path, operation.handler, methods=[operation.method], name=operation.handler.__name__)
        for operation in operations()
    ]
    app = Starlette(
        routes=[*routes, *page.static_routes(), WebSocketRoute("/ws", ws.stream)],
        middleware=[Middleware(Guard, settings=site.settings)],
        exception_handlers={
            ApiError: on_api_error,
            TokenwalkError: on_engine_error,
            HTTPException: on_http_error,
            Exception: on_fault,
        },
    )
    app.state.site = site
    return app
