"""The page at ``/``: HTML, styles and scripts, which call the routes of LibreTranslate.

Its addresses are relative, so that it works below any path. Its policy lets only files of its own
origin run.
"""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

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
    """``/`` and ``/page/NAME`` of each of its files."""
    # A map of attention looks as in reports.
    folders = (("transformer.serving.interfaces", "assets/page"), ("transformer.report", "assets"))
    static = StaticFiles(packages=list(folders))

    async def asset(request: Request) -> Response:
        name = request.path_params.get("name", "page.html")
        response = await static.get_response(name, request.scope)
        response.headers.update(_HEADERS)
        return response

    return [Route("/", asset), Route("/page/{name}", asset)]
