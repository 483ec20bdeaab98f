"""The site of `make docs`: Sphinx builds it from README.md and the pages of this folder.

The source folder is the root of the repository, so that a link leads to the same file here and in a
Git viewer. Links to other files of the repository become downloads.
"""

from pathlib import Path

from sphinx.application import Sphinx

project = "transformer"
copyright = "the authors, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]

ABOUT = ["CONTRIBUTING", "CHANGELOG", "data/README", "data/pocket/README", "scripts/pocket/README"]
include_patterns = ["README.md", *(f"{page}.md" for page in ABOUT), "docs/*", "benchmarks/**.md"]
exclude_patterns = [".*", "build", "runs", "multirun"]
root_doc = "README"

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 4
highlight_language = "text"

autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = project

CONTENTS = {
    "Begin": "first_model training configuration commands other_toolkits glossary",
    "Text": "data tokenizers tasks speech pictures scale doctor",
    "Model": "attention training_step attention_views",
    "Training": "recipes processes gpu reliability checkpoint",
    "Translating": "search decoding comparing failures robustness",
    "Using": "serving interchange python api",
    "Measured": "results performance",
    "Code": "architecture",
}
"""The pages in the order of the site, by theme."""

ROOT = Path(__file__).parents[1]
MEASUREMENTS = [
    str(page.relative_to(ROOT).with_suffix("")) for page in sorted(ROOT.glob("benchmarks/**/*.md"))
]


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Append the table of contents to README.md, where a Git viewer would show its markup."""
    if page != root_doc:
        return
    groups = {
        theme: [f"docs/{name}" for name in names.split()] for theme, names in CONTENTS.items()
    }
    for theme, pages in (groups | {"Measurements": MEASUREMENTS, "Project": ABOUT}).items():
        listed = "\n".join(pages)
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {theme}\n{listed}\n```\n"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_contents)
