"""The files of the page: their headers, and no others."""

from starlette.applications import Starlette
from starlette.testclient import TestClient

from transformer.serving.http_server import page_routes


def test_each_file_has_the_policy_and_is_compared_by_its_tag() -> None:
    client = TestClient(Starlette(routes=page_routes()))
    for path in ("/", "/page/page.js", "/page/page.css", "/page/attention_map.js"):
        first = client.get(path)
        assert first.status_code == 200 and first.content, path
        again = client.get(path, headers={"If-None-Match": first.headers["ETag"]})
        assert again.status_code == 304 and not again.content
        for answer in (first, again):
            assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
    for other in ("attention_page.html", "..%2fpage.py", "nothing.js"):
        assert client.get(f"/page/{other}").status_code == 404, other
