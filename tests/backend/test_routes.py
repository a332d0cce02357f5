"""The smaller routes."""

from pathlib import Path

import pytest

from backend.paths import default_traces_dir, plotly_js
from tests.backend.conftest import Running
from tests.backend.fake_engine import ANSWER


def test_a_text_is_taken_apart_and_put_together_again(shared: Running) -> None:
    body = shared.http.post("/v1/tokenize", json={"text": "Grüß\n🙂"}).json()
    assert body["text"] == "Grüß\n🙂"
    assert bytes.fromhex("".join(token["bytes_hex"] for token in body["tokens"])).decode() == "Grüß\n🙂"
    assert body["count"] == len(body["tokens"])
    assert body["tokens"][0] == {
        "id": 71, "label": "G", "bytes_hex": "47", "start": 0, "end": 1, "role": "user", "special": False
    }  # fmt: skip
    ids = [token["id"] for token in body["tokens"]]
    assert shared.http.post("/v1/detokenize", json={"tokens": ids}).json() == {"text": "Grüß\n🙂"}


def test_a_chat_is_rendered_with_the_template_and_shows_who_says_what(shared: Running) -> None:
    body = shared.http.post("/v1/tokenize", json={"messages": [{"role": "user", "content": "Hi"}]}).json()
    assert "<|im_start|>user\nHi<|im_end|>" in body["text"]
    said = [token for token in body["tokens"] if token["role"] == "user"]
    assert "".join(token["label"] for token in said) == "Hi"
    assert any(token["special"] for token in body["tokens"])
    usage = shared.chat(messages=[{"role": "user", "content": "Hi"}]).json()["usage"]
    assert usage["prompt_tokens"] == body["count"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/tokenize", {}, "text"),
        ("/v1/tokenize", {"text": "a", "messages": []}, "text"),
        ("/v1/tokenize", {"text": 5}, "text"),
        ("/v1/tokenize", {"text": "a", "colour": 1}, "colour"),
        ("/v1/detokenize", {"tokens": [1, 999]}, "tokens[1]"),
        ("/v1/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/v1/detokenize", {"tokens": "abc"}, "tokens"),
    ],
)
def test_what_cannot_be_taken_apart_is_a_400(shared: Running, path: str, body: object, param: str) -> None:
    response = shared.http.post(path, json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_models_lists_the_one_that_is_loaded(shared: Running) -> None:
    (model,) = shared.http.get("/v1/models").json()["data"]
    assert model["id"] == "fake"
    assert model["tokenwalk"]["layers"] == 2


def test_requests_are_listed_newest_first_and_found_by_id(shared: Running) -> None:
    ids = [shared.complete(max_tokens=1).headers["x-tokenwalk-request"] for _ in range(2)]
    listed = shared.http.get("/v1/requests").json()["data"]
    assert [entry["id"] for entry in listed[:2]] == ids[::-1]
    entry = shared.http.get(f"/v1/requests/{ids[0]}").json()
    assert entry["state"] == "finished"
    assert entry["finish_reason"] == "length"
    assert entry["url"].endswith(f"#run=run&request={ids[0]}")
    assert shared.http.get("/v1/requests/nobody").status_code == 404
    assert shared.http.get("/v1/slots").json()["data"] == [{"slot": 0, "request": None, "state": "free"}]


def test_plotly_comes_from_the_installed_package_and_may_be_kept(shared: Running) -> None:
    response = shared.http.get("/static/plotly.min.js")
    assert response.content == plotly_js().read_bytes()
    assert response.headers["content-type"].startswith("text/javascript")
    assert "max-age" in response.headers["cache-control"]
    again = shared.http.get("/static/plotly.min.js", headers={"if-none-match": response.headers["etag"]})
    assert again.status_code == 304


def test_the_page_and_its_files_are_served(shared: Running) -> None:
    page = shared.http.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    script = shared.http.get("/static/js/codec.js")
    assert script.status_code == 200
    assert "javascript" in script.headers["content-type"]
    assert script.headers["cache-control"] == "no-cache"
    assert shared.http.get("/static/js/codec.js", headers={"if-none-match": script.headers["etag"]}).status_code == 304


def test_the_page_asks_nobody_else_for_anything(shared: Running) -> None:
    text = shared.http.get("/").text
    assert "https://" not in text.replace("https://www.w3.org", "")
    assert "<script>" not in text  # the policy would forbid it


def test_the_data_folder_is_the_platform_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_traces_dir() == Path("/data/tokenwalk/traces")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_traces_dir() == Path("/home/somebody/.local/share/tokenwalk/traces")
    monkeypatch.setattr("sys.platform", "darwin")
    assert default_traces_dir() == Path("/home/somebody/Library/Application Support/tokenwalk/traces")


def test_head_is_answered_without_a_body(shared: Running) -> None:
    response = shared.http.head("/health")
    assert response.status_code == 200
    assert response.content == b""
    assert shared.complete().json()["choices"][0]["text"] == ANSWER


def test_the_next_steps_are_timed_on_request(shared: Running) -> None:
    assert shared.http.post("/v1/kernels", json={"steps": 7}).json() == {"steps": 7}
    assert shared.engine.timed_steps == 7
    assert shared.http.post("/v1/kernels", json={}).json() == {"steps": 1}
    assert shared.engine.timed_steps == 1


@pytest.mark.parametrize("steps", [0, -1, 1001, "5", 1.5, True, None])
def test_a_wrong_number_of_steps_to_time_is_named(shared: Running, steps: object) -> None:
    response = shared.http.post("/v1/kernels", json={"steps": steps})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "steps"
