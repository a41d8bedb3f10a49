"""dynalite: DynamoDB's API on Node.js, in memory. It is installed beside this file when it is missing.

`ROTA_TEST_DYNAMODB` names another endpoint to use in its place, such as Amazon's own DynamoDB Local.
"""

from __future__ import annotations

import http.client
import http.server
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import botocore.session
from botocore.config import Config

from tests.servers import Process, free_port, missing_service, need, new_folder, shared

REGION = "eu-central-1"
TABLE = "rota"
VERSION = "4"

_INSTALLED = Path(__file__).parent.parent / ".dynalite"


class Dynalite(Process):
    """A server without tables. `ms` is how long a table is in the making. With `keeps` it writes to its
    folder, so what it holds outlives a restart; else to memory."""

    def __init__(self, *, ms: int = 20, keeps: bool = False) -> None:
        port = free_port()
        command = [need("node", "nodejs"), str(_program()), "--host", "127.0.0.1", "--port", f"{port}"]
        folder = new_folder("dynalite")
        command += ["--createTableMs", f"{ms}", *(["--path", str(folder / "data")] if keeps else [])]
        _credentials()
        super().__init__(command, port=port, folder=folder)

    @property
    def endpoint(self) -> str:
        return endpoint_of(self.port)

    @property
    def url(self) -> str:
        return url_of(self.port)


class Elsewhere:
    """The server that `ROTA_TEST_DYNAMODB` names; the tests neither start nor stop it."""

    def __init__(self, endpoint: str) -> None:
        _credentials()
        self.endpoint = endpoint
        self.port = urlsplit(endpoint).port or 80

    @property
    def url(self) -> str:
        return f"dynamodb://{REGION}/{TABLE}?endpoint_url={self.endpoint}"


class Meddler:
    """Stands before the server on `target` and reads along: each request is in `seen`, with its arguments.

    `before` and `after` may answer in the server's place, with an error code: before the server has been
    asked, or after it has done what was asked. `shift` is added to the Date of each answer.
    """

    def __init__(self, target: int) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.shift = timedelta(0)
        self.before: Callable[[str, Any], str | None] = lambda operation, arguments: None
        self.after: Callable[[str, Any], str | None] = lambda operation, arguments: None
        meddler = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                operation = self.headers["X-Amz-Target"].partition(".")[2]
                arguments = json.loads(body)
                meddler.seen.append((operation, arguments))
                code, answer = meddler.before(operation, arguments), b""
                status, date = 400, datetime.now(UTC)
                if code is None:
                    connection = http.client.HTTPConnection("127.0.0.1", target, timeout=10)
                    connection.request("POST", "/", body, dict(self.headers))
                    response = connection.getresponse()
                    answer, status = response.read(), response.status
                    date = parsedate_to_datetime(response.headers["Date"])
                    connection.close()
                    code = meddler.after(operation, arguments)
                if code is not None:
                    status = 400
                    answer = json.dumps({"__type": f"com.amazon#{code}", "message": "as told"}).encode()
                self.send_response_only(status)
                self.send_header("Content-Type", "application/x-amz-json-1.0")
                self.send_header("Content-Length", str(len(answer)))
                self.send_header("Date", format_datetime(date + meddler.shift, usegmt=True))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *arguments: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return url_of(self.port)

    def __enter__(self) -> Meddler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def endpoint_of(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def url_of(port: int, table: str = TABLE) -> str:
    return f"dynamodb://{REGION}/{table}?endpoint_url={endpoint_of(port)}"


def client_of(port: int) -> Any:
    """An application's own client."""
    session = botocore.session.get_session()
    config = Config(retries={"total_max_attempts": 1})
    return session.create_client(
        "dynamodb", region_name=REGION, endpoint_url=endpoint_of(port), config=config
    )


def start() -> Dynalite | Elsewhere:
    endpoint = os.environ.get("ROTA_TEST_DYNAMODB")
    return Elsewhere(endpoint) if endpoint else Dynalite()


def _credentials() -> None:
    """The driver takes none from its URL, so they stand in the environment; dynalite takes any."""
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "rota-tests")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "rota-tests-secret")


_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_failed: list[str] = []


def _program() -> Path:
    program = _INSTALLED / "node_modules" / "dynalite" / "cli.js"
    if not program.exists():
        _install()
    return program


def _install() -> None:
    """Into a folder of its own first, as several test runs may do it at the same time."""
    npm = need("npm", "npm")
    folder = Path(tempfile.mkdtemp(prefix=".dynalite-", dir=_INSTALLED.parent))
    options = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    command = [npm, "install", "--prefix", str(folder), f"dynalite@{VERSION}", *options]
    env = dict(os.environ)
    if _AUTHORITIES.exists():  # Node knows a list of its own, and not what this machine trusts besides
        env.setdefault("NODE_EXTRA_CA_CERTS", str(_AUTHORITIES))
    if not _failed:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, check=False)
            if done.returncode:
                _failed.append(done.stderr[-500:])
        except subprocess.TimeoutExpired:
            _failed.append("no answer for two minutes")
    if _failed:  # and is not tried again for each test
        shutil.rmtree(folder)
        missing_service(f"dynalite, which npm could not install: {_failed[0]}")
    try:
        folder.rename(_INSTALLED)
    except OSError:  # somebody else was faster
        shutil.rmtree(folder)


dynalite_server = shared(start)  # type: ignore[type-var]  # Elsewhere is no process of ours
