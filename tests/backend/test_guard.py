"""Who may talk to the server."""

from collections.abc import Iterator

import pytest
from websockets.exceptions import InvalidStatus

from backend.guard import SECURITY_HEADERS
from backend.settings import Authority, Origin
from tests.backend.conftest import Running, Serve


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("LOCALHOST:{port}", 200),
        ("localhost.:{port}", 200),
        ("[::1]:{port}", 200),
        ("[0:0:0:0:0:0:0:1]:{port}", 200),
        ("127.0.0.1", 403),
        ("127.0.0.1:1", 403),
        ("evil.example:{port}", 403),
        ("localhost.evil.example:{port}", 403),
        ("evillocalhost:{port}", 403),
        ("evil.example@localhost:{port}", 403),
        ("localhost:{port}:{port}", 403),
        ("127.0.0.2:{port}", 403),
        ("", 403),
    ],
)
def test_the_host_must_be_ours_whole(shared: Running, host: str, status: int) -> None:
    given = host.format(port=shared.site.settings.port)
    assert shared.http.get("/health", headers={"host": given}).status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:{port}", 200),
        ("http://localhost:{port}", 200),
        ("http://127.0.0.1", 403),
        ("https://127.0.0.1:{port}", 403),
        ("http://evil.example:{port}", 403),
        ("http://localhost:{port}.evil.example", 403),
        ("null", 403),
        ("", 403),
        ("file://", 403),
    ],
)
def test_the_origin_must_be_ours_whole(shared: Running, origin: str, status: int) -> None:
    given = origin.format(port=shared.site.settings.port)
    response = shared.http.get("/health", headers={"origin": given})
    assert response.status_code == status
    if status == 403:
        assert response.json()["error"]["code"] == "wrong_origin"
        assert "access-control-allow-origin" not in response.headers


def test_a_program_without_origin_is_let_in(shared: Running) -> None:
    assert shared.complete().status_code == 200


def test_security_headers_are_on_every_answer(shared: Running) -> None:
    for response in (
        shared.http.get("/health"),
        shared.http.get("/nothing"),
        shared.http.get("/", headers={"host": "x"}),
    ):
        for name, value in SECURITY_HEADERS.items():
            assert response.headers[name] == value
    policy = SECURITY_HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "http" not in policy.replace("https", "http")


def test_further_hosts_and_origins_can_be_allowed(serve: Serve) -> None:
    with serve(allow_hosts=["lab.example", "box.example:5"], allow_origins=["https://pages.example"]) as server:
        get = server.http.get
        assert get("/health", headers={"host": "lab.example:1234"}).status_code == 200
        assert get("/health", headers={"host": "box.example:5"}).status_code == 200
        assert get("/health", headers={"host": "box.example:6"}).status_code == 403
        assert get("/health", headers={"host": "x.lab.example:1234"}).status_code == 403
        response = get("/health", headers={"origin": "https://pages.example"})
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == "https://pages.example"
        assert get("/health", headers={"origin": "https://pages.example:444"}).status_code == 403
        preflight = server.http.options(
            "/v1/chat/completions",
            headers={"origin": "https://pages.example", "access-control-request-method": "POST"},
        )
        assert preflight.status_code == 204
        assert "POST" in preflight.headers["access-control-allow-methods"]
        with server.socket(origin="https://pages.example"):
            pass


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    from tests.backend.conftest import serving

    with serving(tmp_path_factory.mktemp("locked"), token="s3cret/+&") as server:
        yield server


def test_with_a_token_everything_asks_for_it(locked: Running) -> None:
    for path in ("/", "/health", "/v1/models", "/static/plotly.min.js", "/openapi.json", "/metrics", "/nothing"):
        response = locked.http.get(path)
        assert response.status_code == 401, path
        assert response.headers["www-authenticate"] == "Bearer"
        assert locked.http.get(path, headers={"authorization": "Bearer s3cret/+"}).status_code == 401
        assert locked.http.get(path, headers={"authorization": "Bearer s3cret/+&"}).status_code != 401
    with pytest.raises(InvalidStatus) as caught:
        locked.socket()
    assert caught.value.response.status_code == 401


def test_the_token_in_the_address_is_exchanged_for_a_cookie(locked: Running) -> None:
    response = locked.http.get("/", params={"token": "s3cret/+&"})
    assert response.status_code == 303
    assert response.headers["location"] == "/"
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert "s3cret" not in cookie
    pair = cookie.partition(";")[0]
    locked.http.cookies.clear()
    assert locked.http.get("/health", headers={"cookie": pair}).status_code == 200
    assert locked.http.get("/health", headers={"cookie": pair + "x"}).status_code == 401
    with locked.socket(additional_headers={"Cookie": pair}):
        pass


def test_the_token_in_a_query_lets_a_websocket_in(locked: Running) -> None:
    from websockets.sync.client import connect

    with connect(f"ws://127.0.0.1:{locked.site.settings.port}/ws?token=s3cret%2F%2B%26"):
        pass


def test_the_token_is_not_printed_by_accident(locked: Running) -> None:
    assert "s3cret" not in repr(locked.site)


def test_names_are_read_whole_or_not_at_all() -> None:
    assert Authority.parse("Example.ORG:80") == Authority("example.org", 80)
    assert Authority.parse("[::1]:5") == Authority("::1", 5)
    for text in ("a/b", "a:b", "a?b", "x@a", "a#b", ":5", "[::1", "a:99999", "a b", "a\tb", "a\0"):
        assert Authority.parse(text) is None, text
    assert Origin.parse("https://example.org") == Origin("https", "example.org", 443)
    for text in ("example.org", "null", "ftp://a", "http://", "http://a/b"):
        assert Origin.parse(text) is None, text
