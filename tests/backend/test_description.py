"""The description of the interface is the interface."""

from typing import Any

import pytest
from starlette.routing import Mount, Route, WebSocketRoute

from backend.app import create_app
from tests.backend.conftest import Running

FILES = {"/static/plotly.min.js", "/static", "/ws"}  # files and the socket are no operations


@pytest.fixture
def description(shared: Running) -> dict[str, Any]:
    return shared.http.get("/openapi.json").json()


def test_every_route_is_described_and_every_description_is_a_route(shared: Running, description: Any) -> None:
    routed: dict[str, set[str]] = {}
    for route in create_app(shared.site).routes:
        assert isinstance(route, (Route, Mount, WebSocketRoute))
        if route.path not in FILES:
            assert isinstance(route, Route)
            routed.setdefault(route.path, set()).update((route.methods or set()) - {"HEAD"})
    described = {path: {method.upper() for method in item} for path, item in description["paths"].items()}
    assert described == routed


def test_all_references_lead_somewhere(description: Any) -> None:
    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            found.extend([value["$ref"]] if "$ref" in value else [])
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    walk(description)
    assert "#/components/schemas/ChatBody" in found
    for reference in found:
        assert reference.removeprefix("#/components/schemas/") in description["components"]["schemas"]


def test_every_parameter_that_is_described_is_taken(description: Any, shared: Running) -> None:
    properties = description["components"]["schemas"]["ChatBody"]["properties"]
    promised = (
        "model messages max_tokens max_completion_tokens temperature top_p top_k min_p seed stop n logprobs "
        "top_logprobs stream stream_options repetition_penalty presence_penalty frequency_penalty logit_bias user "
        "tokenwalk"
    )
    assert set(properties) == set(promised.split())
    assert description["components"]["schemas"]["ChatBody"]["additionalProperties"] is False
    nothing = {name: None for name in properties if name not in ("messages", "max_tokens")}
    assert shared.chat(**nothing).status_code == 200


@pytest.mark.parametrize("status", [401, 403, 404, 413, 415, 429, 503])
def test_the_errors_of_a_completion_are_described(description: Any, status: int) -> None:
    responses = description["paths"]["/v1/chat/completions"]["post"]["responses"]
    assert responses[str(status)]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Error"}


def test_a_good_answer_has_the_media_type_that_is_described(shared: Running, description: Any) -> None:
    request = shared.complete().json()["tokenwalk"]["request"]
    for path, item in description["paths"].items():
        if "get" not in item or path == "/":
            continue
        response = shared.http.get(path.replace("{id}", request).replace("{name}", "run"))
        assert response.status_code == 200, path
        content = item["get"]["responses"]["200"]["content"]
        assert response.headers["content-type"].partition(";")[0] in content, path
