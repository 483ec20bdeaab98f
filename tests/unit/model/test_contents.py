"""The table of contents of the model names files and code that exist."""

import re
from pathlib import Path

import transformer.model

ROW = re.compile(r"^\d\S* .{20,}?  (\S+)  +(\S.*)$", re.M)


def test_every_row_of_the_table_leads_to_its_names() -> None:
    folder = Path(str(transformer.model.__file__)).parent
    rows = ROW.findall(transformer.model.__doc__ or "")
    assert len(rows) >= 15
    for file, names in rows:
        text = (folder / file).read_text("utf-8")
        for name in names.split(", "):
            assert re.search(rf"^(class|def) {name}\b", text, re.M), (file, name)
