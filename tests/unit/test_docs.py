"""The pages stay true: what they name exists, their snippets run, and their tables are complete."""

import ast
import contextlib
import gzip
import io
import json
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch
import yaml

import transformer
from transformer.__main__ import VERBS
from transformer.cli.config import SETTINGS
from transformer.data.corpora.resolve import pocket_text
from transformer.settings.model import ModelConfig

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(
        page
        for folder in ("benchmarks", "data", "docs")
        for page in sorted((ROOT / folder).rglob("*.md"))
    ),
]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
IMAGE = re.compile(r'<img src="([^"]+)"')
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
PATH = re.compile(
    r"((?:transformer|tests|conf|docs|benchmarks|scripts)/[\w./*-]*)(?:::?([A-Za-z_][\w.]*))?"
)
HEADING = re.compile(r"^#{1,6} +(.+)$", re.M)
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
SNIPPET = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n*^```text\n(?P<output>.*?)^```$)?", re.M | re.S
)


@cache
def definitions(path: Path) -> frozenset[str]:
    """What a module defines or re-exports: ``name``, ``Class`` and ``Class.member``."""
    names: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        names |= _names(node)
        if isinstance(node, ast.ClassDef):
            assigned = [child for child in ast.walk(node) if isinstance(child, ast.Assign)]
            members = [name for child in (*node.body, *assigned) for name in _names(child)]
            names |= {f"{node.name}.{name}" for name in members}
    return frozenset(names)


def _names(node: ast.AST) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return {alias.asname or alias.name for alias in aliases}
        case ast.Assign(targets=targets):
            return {name for target in targets for name in _targets(target)}
        case ast.AnnAssign(target=target):
            return _targets(target)
        case ast.If(body=body):
            return {name for child in body for name in _names(child)}
    return set()


def _targets(target: ast.expr) -> set[str]:
    """``x`` and ``self.x``, alone or in a tuple."""
    names = {getattr(node, "id", getattr(node, "attr", "self")) for node in ast.walk(target)}
    return names - {"self"}


def broken_references(text: str, folder: Path) -> list[str]:
    """Links, code spans, imports and data of a page in ``folder`` that do not hold."""
    prose = FENCE.sub("", text)
    broken = [
        f"[{label}]({target})"
        for label, target in LINK.findall(prose)
        if not _link_holds(label, target, folder, text)
    ]
    broken += [image for image in IMAGE.findall(prose) if not (folder / image).is_file()]
    broken += [f"`{span}`" for span in CODE.findall(prose) if not _span_holds(span)]
    for language, code in FENCE.findall(text):
        if language == "python":
            broken += _broken_imports(code)
        elif language == "json":
            json.loads(code)
        elif language == "yaml":
            yaml.safe_load(code)
    return broken


def _link_holds(label: str, target: str, folder: Path, page: str) -> bool:
    if re.match(r"\w+:", target):
        return True
    file, _, anchor = target.partition("#")
    if not file:
        return anchor in slugs(page)
    path = (folder / file).resolve()
    if not path.exists() or (anchor and anchor not in slugs(path.read_text("utf-8"))):
        return False
    name = label.strip("`")
    if path.suffix != ".py" or name == label or name.endswith(".py") or not NAME.fullmatch(name):
        return True
    return name in definitions(path)


@cache
def slugs(page: str) -> frozenset[str]:
    """What the headings of a page are called in a link, as GitHub and MyST do."""
    headings = HEADING.findall(FENCE.sub("", page))
    return frozenset(
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
    )


def _span_holds(span: str) -> bool:
    if match := PATH.fullmatch(span):
        paths = list(ROOT.glob(match[1].rstrip("/")))
        if match[2] is None or not paths:
            return bool(paths)
        return any(path.suffix == ".py" and match[2] in definitions(path) for path in paths)
    return True


def _broken_imports(code: str) -> list[str]:
    broken = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("transformer"):
            module = import_module(str(node.module))
            names = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            broken += [f"from {node.module} import {name}" for name in names]
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    assert broken_references(page.read_text("utf-8"), page.parent) == []


@pytest.mark.parametrize(
    "text",
    [
        "[`attend_all`](../transformer/model/attention/scaled_dot_product.py)",
        "[exports](interchange.md#exports)",
        "`transformer/model/attention/scaled_dot_product.py:attends`",
        "```python\nfrom transformer.model.attention.masks import lower_triangle\n```",
    ],
)
def test_a_broken_reference_is_found(text: str) -> None:
    assert len(broken_references(text, ROOT / "docs")) == 1


def test_the_page_of_classes_lists_every_export() -> None:
    page = (ROOT / "docs" / "api.rst").read_text("utf-8")
    listed = re.findall(r"^\.\. auto\w+:: transformer\.(\w+)$", page, re.M)
    assert sorted(listed) == transformer.__all__


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.stem in ("attention", "training_step", "search")],
    ids=lambda page: page.stem,
)
def test_the_snippets_print_what_the_page_says(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = page.read_text("utf-8")
    namespace: dict[str, object] = {"__name__": page.stem}
    with torch.random.fork_rng(devices=[]):
        for snippet in SNIPPET.finditer(text):
            line = text.count("\n", 0, snippet.start("code"))
            # Blank lines in front let a traceback name the line of the page.
            code = compile("\n" * line + snippet["code"], str(page), "exec")
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(code, namespace)
            assert printed.getvalue() == (snippet["output"] or ""), f"snippet at line {line}"


@pytest.mark.thorough
def test_the_snippet_of_the_readme_trains_and_translates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, split, lines in (("a", "train", 2000), ("b", "validation", 20), ("c", "test", 20)):
        for language in ("en", "de"):
            content = gzip.decompress(pocket_text(language)[split].read_bytes()).decode()
            text = content.splitlines(keepends=True)[:lines]
            (tmp_path / f"{name}.{language}").write_text("".join(text))
    readme = (ROOT / "README.md").read_text("utf-8")
    [snippet] = [found["code"] for found in SNIPPET.finditer(readme)]
    for long, short in (("max_steps=2000", "max_steps=2"), ("interval=200", "interval=2")):
        assert long in snippet
        snippet = snippet.replace(long, short)
    exec(compile(snippet.replace("vocab_size=4000", "vocab_size=400"), "README.md", "exec"), {})
    assert len(capsys.readouterr().out.strip().splitlines()) >= 2
    assert (tmp_path / "runs" / "mine" / "report.html").is_file()


def test_the_page_of_commands_has_every_command_and_its_function() -> None:
    page = (ROOT / "docs" / "commands.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \|.* \| (.*?) \|$", page, re.M))
    assert list(rows) == list(VERBS)
    for command, path in SETTINGS.items():
        assert path.partition(":")[2] in rows[command]
    for command in VERBS.keys() - {"recipe"}:
        names = re.findall(r"(\w+)\(", rows[command]) + re.findall(r"\w+Config", rows[command])
        assert names and all(hasattr(transformer, name) for name in names), command


def test_every_choice_of_the_model_is_explained() -> None:
    pages = [
        (ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("attention", "configuration")
    ]
    named = set(re.findall(r"[`=](\w+)`", " ".join(pages)))
    for key, hint in get_type_hints(ModelConfig).items():
        for part in (hint, *get_args(hint)):
            if get_origin(part) is Literal:
                assert set(get_args(part)) <= named, key
