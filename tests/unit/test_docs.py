"""Docs cannot rot: what they name exists, and their snippets print what they say."""

import ast
import contextlib
import io
import re
from functools import cache
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch

import transformer
from transformer.__main__ import VERBS
from transformer.cli.config import SETTINGS
from transformer.settings.model import ModelConfig

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "benchmarks", ROOT / "data", ROOT / "docs")
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for one in FOLDERS for page in sorted(one.rglob("*.md"))),
]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
PATH = re.compile(
    r"((?:transformer|tests|conf|docs|benchmarks|scripts)/[\w./*-]*)(?:::?([A-Za-z_][\w.]*))?"
)
HEADING = re.compile(r"^#{1,6} +(.+)$", re.M)
MENTION = re.compile(r"^\.\. auto\w+:: (\S+)\.(\w+)$", re.M)
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
MEMBER = re.compile(r"([A-Z]\w*)\.([A-Za-z_]\w*)")
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
            inner = [*node.body, *(n for n in ast.walk(node) if isinstance(n, ast.Assign))]
            names |= {f"{node.name}.{name}" for child in inner for name in _names(child)}
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
    found = (getattr(node, "id", getattr(node, "attr", None)) for node in ast.walk(target))
    return {name for name in found if name not in (None, "self")}


@cache
def members() -> dict[str, set[str]]:
    """Class of the package to its members; classes of one name are taken together."""
    classes: dict[str, set[str]] = {}
    for path in (ROOT / "transformer").rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        for node in (n for n in tree.body if isinstance(n, ast.ClassDef)):
            prefix = f"{node.name}."
            found = {n.removeprefix(prefix) for n in definitions(path) if n.startswith(prefix)}
            classes.setdefault(node.name, set()).update(found)
    return classes


def broken_references(text: str, folder: Path) -> list[str]:
    """Links, code spans and imports of a page in ``folder`` that name what does not exist."""
    prose = FENCE.sub("", text)
    broken = [f"[{t}]({to})" for t, to in LINK.findall(prose) if not _link_holds(t, to, folder)]
    broken += [
        f"[…]({to})" for _, to in LINK.findall(prose) if to[0] == "#" and to[1:] not in slugs(text)
    ]
    broken += [f"`{span}`" for span in CODE.findall(prose) if not _span_holds(span)]
    for language, code in FENCE.findall(text):
        if language == "python":
            broken += _broken_imports(code)
    return broken


def _link_holds(text: str, target: str, folder: Path) -> bool:
    file, _, anchor = target.partition("#")
    path = (folder / file).resolve()
    if re.match(r"\w+:|#", target):
        return True
    if not path.exists() or (anchor and anchor not in slugs(path.read_text("utf-8"))):
        return False
    name = text.strip("`")
    if path.suffix != ".py" or name == text or name.endswith(".py") or not NAME.fullmatch(name):
        return True
    return name in definitions(path)


@cache
def slugs(page: str) -> frozenset[str]:
    """What the headings of a page are called in a link, as GitHub and MyST do."""
    headings = HEADING.findall(FENCE.sub("", page))
    return frozenset(re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings)


def _span_holds(span: str) -> bool:
    if index := PATH.fullmatch(span):
        paths = list(ROOT.glob(index[1].rstrip("/")))
        if index[2] is None or not paths:
            return bool(paths)
        return any(p.suffix == ".py" and index[2] in definitions(p) for p in paths)
    if (member := MEMBER.match(span)) and member[1] in members():
        return member[2] in members()[member[1]]
    return True


def _broken_imports(code: str) -> list[str]:
    broken = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "transformer":
            stem = ROOT.joinpath(*str(node.module).split("."))
            path = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
            known = definitions(path) if path.exists() else frozenset()
            for alias in node.names:
                if alias.name not in known and not list(stem.glob(f"{alias.name}*")):
                    broken.append(f"from {node.module} import {alias.name}")
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    assert broken_references(page.read_text("utf-8"), page.parent) == []


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("[`attend`](../transformer/model/attention/scaled_dot_product.py)", True),
        ("[`attend_all`](../transformer/model/attention/multi_head.py)", False),
        ("[`MultiHeadAttention.project`](../transformer/model/attention/multi_head.py)", True),
        ("[`MultiHeadAttention.merge`](../transformer/model/attention/multi_head.py)", False),
        ("[the paper](https://arxiv.org/abs/1706.03762)", True),
        ("[below](no_such_page.md)", False),
        ("# What it is\n\n[above](#what-it-is)", True),
        ("# What it is\n\n[above](#what-it-was)", False),
        ("[losses](performance.md#what-makes-it-so)", True),
        ("[losses](performance.md#what-made-it-so)", False),
        ("`transformer/model/attention/scaled_dot_product.py:attend`", True),
        ("`transformer/model/attention/multi_head.py:attends`", False),
        ("`tests/unit/test_docs.py::test_what_a_page_names_exists`", True),
        ("`transformer/model/*.py`", True),
        ("`transformer/models/*.py`", False),
        ("`MultiHeadAttention.head_mask`", True),
        ("`ModelConfig.d_k`", True),
        ("`ModelConfig.heads`", False),
        ("`nn.Linear`", True),
        ("```python\nfrom transformer.model.attention.masks import causal_mask\n```", True),
        ("```python\nfrom transformer.model.attention.masks import lower_triangle\n```", False),
        ("```python\nfrom transformer.model.attention import masks\n```", True),
    ],
)
def test_a_broken_reference_is_found(text: str, holds: bool) -> None:
    assert (broken_references(text, ROOT / "docs") == []) is holds


def test_what_the_page_of_classes_names_exists() -> None:
    named = MENTION.findall((ROOT / "docs" / "api.rst").read_text("utf-8"))
    assert len(named) > 10
    for module, name in named:
        assert name in definitions(ROOT.joinpath(*module.split(".")).with_suffix(".py"))


@pytest.mark.parametrize("page", ["attention.md", "search.md"])
def test_snippets_print_what_the_page_says(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / page).read_text("utf-8")
    snippets = list(SNIPPET.finditer(text))
    assert snippets
    namespace: dict[str, object] = {"__name__": page}
    with torch.random.fork_rng(devices=[]):
        for snippet in snippets:
            line = text.count("\n", 0, snippet.start("code"))
            # Blank lines in front let a traceback name the line of the page.
            code = compile("\n" * line + snippet["code"], f"docs/{page}", "exec")
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(code, namespace)
            assert printed.getvalue() == (snippet["output"] or ""), f"snippet at line {line}"


def test_the_page_of_python_has_every_command() -> None:
    text = (ROOT / "docs" / "python.md").read_text("utf-8")
    [table] = re.findall(r"^\| command \| function.*\n.*\n((?:\|.*\n)+)", text, re.M)
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.M))
    assert list(rows) == list(VERBS)
    for command, path in SETTINGS.items():
        assert path.partition(":")[2] in rows[command]
    for command in VERBS.keys() - {"recipe"}:
        names = re.findall(r"(\w+)\(", rows[command]) + re.findall(r"\w+Config", rows[command])
        assert names and all(hasattr(transformer, name) for name in names), command


def test_the_site_lists_every_page() -> None:
    # Sphinx, which the file imports, need not be there.
    nodes = ast.parse((ROOT / "docs" / "conf.py").read_text("utf-8")).body
    contents = next(
        ast.literal_eval(node.value)
        for node in nodes
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CONTENTS"
    )
    listed = {name for names in contents.values() for name in names.split()}
    pages = {page.stem for kind in ("*.md", "*.rst") for page in (ROOT / "docs").glob(kind)}
    assert listed == pages


def test_every_choice_of_the_model_is_explained() -> None:
    pages = [
        (ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("attention", "configuration")
    ]
    named = set(re.findall(r"[`=](\w+)`", " ".join(pages)))
    for key, hint in get_type_hints(ModelConfig).items():
        choices = [
            one
            for part in (hint, *get_args(hint))
            if get_origin(part) is Literal
            for one in get_args(part)
        ]
        assert set(choices) <= named, key
