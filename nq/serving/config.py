"""How ``nq serve`` serves a model."""

import resource
from dataclasses import dataclass

from nq.config import Settings, ensure, option

FILES, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
"""Files that the server may open."""


@dataclass(frozen=True)
class ServeConfig(Settings):
    """How ``nq serve`` serves a model."""

    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0 is every network of the machine")
    port: int = option(8000, "port to listen on; 0 takes a free one", within="[0, 65535]")
    workers: int = option(1, "processes with a model each, pinned to cores of their own", minimum=1)
    batch_size: int = option(8, "windows in a batch, which may be of several clients", minimum=1)
    queue: int = option(64, "requests in work at once; one more gets 503", minimum=1)
    allowed_hosts: str | None = option(None, "further host names, with commas; others get 421")
    timeout: float = option(30.0, "seconds for a request, then it gets 504", within="(0, inf)")
    max_body_mb: int = option(16, "MB (10^6 bytes) of a request; a larger one gets 413", minimum=1)
    max_windows: int = option(512, "windows of a page; one with more gets 422", minimum=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        ensure(bool(self.host), "host is empty: expected an address, such as 127.0.0.1")
