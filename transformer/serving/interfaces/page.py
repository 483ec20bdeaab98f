"""The page at ``/``, which calls the routes of LibreTranslate by relative addresses."""

import hashlib
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Browsers keep a file, and compare its ETag each time.
    "Cache-Control": "no-cache",
}


def page_routes() -> list[Route]:
    """``/`` and ``/page/NAME`` of each of its files, which are read now."""
    own = files("transformer.serving.interfaces") / "assets" / "page"
    # A map of attention looks as in reports.
    shared = files("transformer.reports") / "assets" / "attention_map.js"
    assets = {file.name: file.read_bytes() for file in (*own.iterdir(), shared)}
    tags = {name: f'"{hashlib.sha256(data).hexdigest()[:16]}"' for name, data in assets.items()}

    async def asset(request: Request) -> Response:
        name = request.path_params.get("name", "page.html")
        if name not in assets:
            return Response("There is no such file.", 404)
        headers = _HEADERS | {"ETag": tags[name]}
        if tags[name] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        media_type = _TYPES[name.rpartition(".")[2]]
        return Response(assets[name], headers=headers, media_type=media_type)

    return [Route("/", asset), Route("/page/{name}", asset)]
