"""A Hub on loopback: it takes what ``huggingface_hub`` sends, commits it and serves it again."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class Hub(ThreadingHTTPServer):
    """Repositories in memory: their files, and the settings that they were created with."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, dict[str, bytes]] = {}
        self.created: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def commit(self, repo: str) -> str:
        names = sorted(self.files[repo].items())
        return hashlib.sha1(repr(names).encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        asked = f"{self.command.replace('HEAD', 'GET')} {path}"
        for pattern, action in _ROUTES.items():
            if match := re.fullmatch(pattern, asked):
                action(self, body, **match.groupdict())
                return
        self._send(404, {"error": f"no such page: {path}"})

    do_HEAD = do_POST = do_GET  # noqa: N815

    def _send(self, code: int, content: Any, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _create(self, body: bytes) -> None:
        values = json.loads(body)
        self.server.created.append(values)
        repo = f"{values.get('organization') or 'user'}/{values['name']}"
        self.server.files.setdefault(repo, {})
        self._send(200, {"url": f"{self.server.url}/{repo}"})

    def _info(self, _: bytes, repo: str, revision: str = "main") -> None:
        if repo in self.server.files and revision != "main":
            self._send(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
            return
        if repo not in self.server.files:
            self._send(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
            return
        names = [{"rfilename": name} for name in self.server.files[repo]]
        self._send(200, {"id": repo, "sha": self.server.commit(repo), "siblings": names})

    def _tree(self, _: bytes, repo: str) -> None:
        files = self.server.files[repo].items()
        self._send(
            200,
            [
                {"type": "file", "path": n, "size": len(c), "oid": hashlib.sha1(c).hexdigest()}
                for n, c in files
            ],
        )

    def _preupload(self, body: bytes, repo: str) -> None:
        how = {"uploadMode": "regular", "shouldIgnore": False}
        self._send(200, {"files": [{"path": f["path"], **how} for f in json.loads(body)["files"]]})

    def _commit(self, body: bytes, repo: str) -> None:
        files = self.server.files[repo]
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        commit = self.server.commit(repo)
        url = f"{self.server.url}/{repo}/commit/{commit}"
        self._send(200, {"success": True, "commitOid": commit, "commitUrl": url})

    def _file(self, _: bytes, repo: str, name: str) -> None:
        content = self.server.files[repo][name]
        etag = f'"{hashlib.sha1(content).hexdigest()}"'
        self._send(200, content, ETag=etag, X_Repo_Commit=self.server.commit(repo))


_REPO = r"(?P<repo>[\w.-]+/[\w.-]+)"
_ROUTES: dict[str, Any] = {
    "POST /api/repos/create": _Handler._create,
    "POST /api/validate-yaml": lambda handler, body: handler._send(200, {}),
    f"GET /api/models/{_REPO}(/revision/(?P<revision>.*))?": _Handler._info,
    f"GET /api/models/{_REPO}/tree/.*": _Handler._tree,
    f"POST /api/models/{_REPO}/preupload/main": _Handler._preupload,
    f"POST /api/models/{_REPO}/commit/main": _Handler._commit,
    rf"GET /{_REPO}/resolve/\w+/(?P<name>.+)": _Handler._file,
}


@contextmanager
def serving_hub() -> Iterator[Hub]:
    """A Hub that answers until the block ends."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
