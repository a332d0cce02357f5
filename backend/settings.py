"""What the server was told on its command line."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit


class Authority(NamedTuple):
    """Host and port, as compared: lower case, IP addresses in their canonical form, without brackets."""

    host: str
    port: int | None

    @classmethod
    def parse(cls, text: str, *, default_port: int | None = None) -> Authority | None:
        """Read `host`, `host:port` or `[v6]:port`. None when it is none of these."""
        try:
            parts = urlsplit(f"//{text}")
            host, port = parts.hostname, parts.port
        except ValueError:
            return None
        if any(char.isspace() or not char.isprintable() for char in text):
            return None
        if not host or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
            return None
        return cls(_canonical(host), default_port if port is None else port)


class Origin(NamedTuple):
    """A web origin."""

    scheme: str
    host: str
    port: int | None

    @classmethod
    def parse(cls, text: str) -> Origin | None:
        """Read `scheme://host[:port]`. None for anything else, "null" included."""
        scheme, separator, rest = text.strip().partition("://")
        default = {"http": 80, "https": 443}.get(scheme.lower())
        authority = Authority.parse(rest, default_port=default) if separator and default else None
        return cls(scheme.lower(), *authority) if authority else None


def _canonical(host: str) -> str:
    try:
        return ipaddress.ip_address(host).compressed
    except ValueError:
        return host.lower().rstrip(".")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the server may be reached, and by whom."""

    host: str = "127.0.0.1"
    port: int = 8642
    allow_hosts: tuple[str, ...] = ()
    """Further Host headers to accept: `name` (any port) or `name:port`."""
    allow_origins: tuple[str, ...] = ()
    """Further web origins whose pages may call this server: `https://example.org`."""
    access_token: str | None = field(default=None, repr=False)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def url(self) -> str:
        """The address to open in a browser on this machine."""
        host = "127.0.0.1" if self.host in ("", "0.0.0.0") else "::1" if self.host == "::" else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
