"""Reports as a user makes them, and their pages in a real browser."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.runs.reports import HOSTILE, report_values
from tests.helpers.runs.runs import verb
from tests.helpers.serving.browser import BINARY, Page, browser
from transformer.reports.page.page import report_page

needs_browser = pytest.mark.skipif(BINARY is None, reason="needs chromium, headless")
ERROR = "document.documentElement.dataset.error"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        for domain in ("Log", "Runtime", "Network"):
            page.call(f"{domain}.enable")
        yield page


def texts(page: Page, selector: str) -> list[str]:
    chosen = f"[...document.querySelectorAll({json.dumps(selector)})]"
    visible = "filter(element => element.checkVisibility())"
    found: list[str] = page.evaluate(f"{chosen}.{visible}.map(element => element.innerText)")
    return found


def column(page: Page, number: int) -> list[float]:
    cells = texts(page, f"#sentences tbody td:nth-child({number})")
    return [float(cell.replace("−", "-")) for cell in cells]


def test_a_run_leaves_its_report(home: Path) -> None:
    html = (home / "run" / "report.html").read_text()
    values = json.loads((home / "run" / "report.json").read_text())
    [run], [test] = values["runs"], values["tests"]
    assert run["state"] == "finished"
    assert len(html.encode()) < 1_000_000
    # The answer is that of the test, and lies in its interval.
    scores = json.loads((home / "run" / "test.json").read_text())
    found = {m["name"]: m["systems"][0] for m in test["comparison"]["metrics"]}
    for score in scores:
        assert round(found[score["name"]]["score"], 2) == score["score"]
    assert found["chrF2"]["interval"] > 0
    assert run["curves"].keys() >= {"train/loss", "lr", "train/grad_norm", "val/loss", "val/chrf"}
    points = run["curves"]["val/chrf"]
    assert run["validation"]["best"] == max(value for _, value in points)
    assert [run["validation"]["best_update"], run["validation"]["best"]] in points
    # The command of the user trains it again.
    assert "hydra.run.dir=run" in run["starts"][0]["command"]
    assert len(test["sentences"]) == 40


@needs_browser
def test_sentences_are_sorted_searched_and_filtered(page: Page, home: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(home / "run", run, ignore=shutil.ignore_patterns("*.ckpt"))
    lines = (home / "test.tgt").read_text().splitlines()
    hypotheses = (f"{line[:9]}{' x' * (n % 3)}\n" for n, line in enumerate(lines))
    (run / "test.hyp").write_text("".join(hypotheses))
    flag = {"hypothesis": 3, "reference": 1, "lines": [4, 7, 9]}
    (run / "failures.json").write_text(json.dumps({"sentences": 40, "flags": {"numbers": flag}}))
    code, _, stderr = verb("report", str(run), home=tmp_path)
    assert code == 0, stderr
    file = run / "report.html"
    for width, dark in ((390, False), (1200, True)):
        page.events.clear()
        page.resize(width, 900, dark=dark)
        page.open(file.as_uri())
        assert page.evaluate(ERROR) is None
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        methods = [event["method"] for event in page.events]
        assert not {"Log.entryAdded", "Runtime.exceptionThrown"} & set(methods)
        requests = [event["params"].get("request", {}).get("url") for event in page.events]
        assert set(requests) <= {None, "about:blank", file.as_uri()}
    scores = column(page, 2)
    assert len(scores) == 25
    assert scores == sorted(scores)
    page.evaluate("document.querySelectorAll('#sentences th button')[1].click()")
    assert column(page, 2)[0] >= scores[-1]
    assert column(page, 2) == sorted(column(page, 2), reverse=True)
    page.evaluate("document.querySelectorAll('#sentences th button')[0].click()")
    page.evaluate("document.getElementById('more').click()")
    assert column(page, 1) == [*range(1, 41)]
    choose = "window.flag.value = VALUE; window.flag.dispatchEvent(new Event('change'));"
    page.evaluate(choose.replace("VALUE", "'numbers'"))
    assert column(page, 1) == [5, 8, 10]
    assert texts(page, "#count") == ["3 of 40"]
    page.evaluate(choose.replace("VALUE", "''"))
    page.evaluate("document.getElementById('search').focus()")
    wanted = page.evaluate("document.querySelector('#sentences tbody p').textContent")
    page.write(wanted.upper())
    assert all(wanted in text for text in texts(page, "#sentences tbody tr"))
    assert texts(page, "#sentences tbody tr") != []


@needs_browser
@pytest.mark.parametrize("count", [1, 2])
def test_a_script_in_data_path_or_config_stays_text(page: Page, count: int, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(report_page(report_values(count, HOSTILE)), encoding="utf-8")
    page.open(file.as_uri())
    assert page.evaluate(ERROR) is None
    assert HOSTILE in texts(page, "h1")[0]
    assert page.evaluate("document.querySelectorAll('img, body script').length") == 1
