"""Who may talk to this server: checked before anything else, on HTTP and WebSocket alike.

A server on the loopback address can still be reached by any web page that the person has open. Two checks keep those
out:

* `Host` must be a name under which this server was meant to be reached. Otherwise a page could point its own domain
  name at 127.0.0.1 (DNS rebinding) and be "same origin" with us.
* `Origin`, which browsers send with cross-origin requests and every WebSocket, must be one of ours. Programs such as
  curl send none and pass.

Names are compared whole, after parsing: a suffix match would let `evil-localhost` in. With an access token, every
request must also carry it: as a bearer token, as `?token=`, or in the cookie that the page gets when it is opened with
`?token=`.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.errors import ApiError
from backend.settings import Authority, Origin, Settings

SECURITY_HEADERS = {
    "content-security-policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self' 'unsafe-inline'",  # Plotly sets styles on the elements it makes
            "img-src 'self' data: blob:",
            "font-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.token = settings.access_token
        self.port = settings.port
        names = {settings.host, "localhost", "127.0.0.1", "::1"}
        self.hosts = {Authority.parse(f"[{name}]" if ":" in name else name, default_port=self.port) for name in names}
        self.hosts |= {Authority.parse(text) for text in settings.allow_hosts}
        self.origins = {Origin.parse(text) for text in settings.allow_origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        foreign = Origin.parse(headers.get("origin", "")) in self.origins and "origin" in headers
        send = self._with_headers(scope, send, headers["origin"] if foreign else None)
        refusal = self._refusal(scope, headers, foreign)
        if refusal is None and foreign and scope["type"] == "http" and scope["method"] == "OPTIONS":
            refusal = Response(status_code=204, headers=_PREFLIGHT)
        if refusal is None:
            refusal = self._sign_in(scope)
        await (refusal or self.app)(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers, foreign: bool) -> Response | None:
        given = headers.getlist("host")
        if len(given) != 1 or not self._host_ok(given[0], scope):
            return ApiError(
                403,
                f"the Host header is {', '.join(given)!r}, a name this server does not answer to; "
                "start it with --allow-host NAME if it should",
                code="wrong_host",
            ).response()
        if "origin" in headers and not foreign and not self._origin_ok(headers.getlist("origin"), scope):
            return ApiError(
                403,
                f"the Origin is {headers['origin']!r}, a page this server does not trust; "
                "start it with --allow-origin URL if it should",
                code="wrong_origin",
            ).response()
        preflight = foreign and scope.get("method") == "OPTIONS"  # browsers send it without credentials
        if self.token is not None and not preflight and not self._token_ok(scope, headers):
            return ApiError(
                401,
                "the access token is missing or wrong; send it as 'Authorization: Bearer TOKEN', "
                "or open the address that `tokenwalk serve` printed",
                code="invalid_token",
                headers={"WWW-Authenticate": "Bearer"},
            ).response()
        return None

    def _host_ok(self, text: str, scope: Scope) -> bool:
        given = Authority.parse(text, default_port=80)
        if given is None:
            return False
        if given in self.hosts or Authority(given.host, None) in self.hosts:
            return True
        # The literal address on which the connection arrived cannot be a name that somebody else controls.
        local = scope.get("server")
        return (
            local is not None
            and given == Authority.parse(f"[{local[0]}]" if ":" in local[0] else local[0], default_port=local[1])
            and _is_ip(given.host)
        )

    def _origin_ok(self, given: list[str], scope: Scope) -> bool:
        origin = Origin.parse(given[0]) if len(given) == 1 else None
        if origin is None or origin.scheme != "http" or origin.port is None:
            return False
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        return self._host_ok(f"{host}:{origin.port}", scope)

    def _token_ok(self, scope: Scope, headers: Headers) -> bool:
        assert self.token is not None
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        offered = [bearer.strip()] if scheme.lower() == "bearer" else []
        offered += _query_tokens(scope)
        if any(hmac.compare_digest(text.encode(), self.token.encode()) for text in offered):
            return True
        cookie = _cookies(headers).get(self._cookie_name, "")
        return hmac.compare_digest(cookie.encode(), self._cookie_value.encode())

    def _sign_in(self, scope: Scope) -> Response | None:
        """Move the token from the page's address, which gets copied and shared, into a cookie."""
        if self.token is None or scope["type"] != "http" or scope["path"] != "/" or not _query_tokens(scope):
            return None
        rest = [(key, value) for key, value in _query(scope) if key != "token"]
        response = RedirectResponse("/" + (f"?{urlencode(rest)}" if rest else ""), status_code=303)
        response.set_cookie(self._cookie_name, self._cookie_value, httponly=True, samesite="strict")
        return response

    @property
    def _cookie_name(self) -> str:
        return f"tokenwalk_{self.port}"  # cookies do not tell ports apart

    @property
    def _cookie_value(self) -> str:
        return hmac.new((self.token or "").encode(), b"tokenwalk page", hashlib.sha256).hexdigest()

    def _with_headers(self, scope: Scope, send: Send, origin: str | None) -> Send:
        async def wrapped(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if origin is not None:
                    headers["access-control-allow-origin"] = origin
                    headers["access-control-expose-headers"] = "x-tokenwalk-request, retry-after"
                    headers["cross-origin-resource-policy"] = "cross-origin"
                    headers.add_vary_header("Origin")
            await send(message)

        return wrapped


_PREFLIGHT = {
    "access-control-allow-methods": "GET, POST, OPTIONS",
    "access-control-allow-headers": "authorization, content-type",
    "access-control-max-age": "600",
}


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _query_tokens(scope: Scope) -> list[str]:
    return [value for key, value in _query(scope) if key == "token"]


def _cookies(headers: Headers) -> dict[str, str]:
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(headers.get("cookie", "")).items()}
    except CookieError:
        return {}


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
