"""Which pairs are held out, and that what is held out is never trained on."""

from pathlib import Path

import pytest

from tests.helpers.data.corpora import data_config, pairs_of, write_corpus
from transformer.common.errors import InputError
from transformer.data.corpora.resolve import find_splits
from transformer.data.text.parallel import Corpus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_corpus(tmp_path).parent


def test_held_out_pairs_depend_on_no_seed_direction_or_order(folder: Path) -> None:
    names = ("validation", "test")
    held = pairs_of(folder, test_size=5)
    assert pairs_of(folder, test_size=5, seed=99) == held
    lines = (folder / "text.tsv").read_text().splitlines()
    pairs = [line.split("\t") for line in reversed(lines)]
    for side, language in enumerate("yx"):
        text = "".join(f"{pair[1 - side]}\n" for pair in pairs)
        (folder / f"text.{language}").write_text(text)
    train = [str(folder / "text.y"), str(folder / "text.x")]
    swapped = pairs_of(folder, test_size=5, train=train, source="y", target="x")
    for name in names:
        assert [(y, x) for x, y in reversed(held[name])] == swapped[name]


def test_a_trained_pair_of_a_growing_text_is_never_held_out(folder: Path) -> None:
    before = pairs_of(folder, validation_size=9, test_size=5)
    new_lines = "".join(f"x{number}\ty{number}\n" for number in range(200))
    with (folder / "text.tsv").open("a") as file:
        file.write(new_lines)
    now = pairs_of(folder, validation_size=9, test_size=5)
    moved = [pair for pair in (*before["validation"], *before["test"]) if pair in now["train"]]
    assert moved
    assert set(before["train"]) <= set(now["train"])
    # What no longer validates may test, but not the other way either.
    assert not set(before["test"]) & set(now["validation"])


def test_pairs_that_equal_a_held_out_one_are_not_trained_on(folder: Path) -> None:
    before = pairs_of(folder, validation_size=9, test_size=5)
    held = [*before["validation"], *before["test"]]
    trained = before["train"][0]
    again = [*held, *((target, source) for source, target in held), trained]
    with (folder / "text.tsv").open("a") as file:
        file.write("".join(f"{source}\t{target}\n" for source, target in again))
    after = pairs_of(folder, validation_size=9, test_size=5)
    assert after == before | {"train": [*before["train"], trained]}


def test_a_held_out_source_keeps_all_its_targets(tmp_path: Path) -> None:
    pairs = [(f"{line}\tV", f"{line}{end}") for end in "xy" for line in range(20)]
    (tmp_path / "text.tsv").write_text("".join("\t".join(pair) + "\n" for pair in pairs))
    rows = [f'{{"x": "{line}", "y": ["{line}x", "{line}y"]}}\n' for line in range(20)]
    (tmp_path / "text.jsonl").write_text("".join([*rows, rows[0], rows[1]]))
    train = str(tmp_path / "text.jsonl")
    for changes in ({"features": ";", "repeated_sources": True}, {"train": train}):
        held = pairs_of(tmp_path, validation_size=9, test_size=5, **changes)
        sources = {name: {source for source, _ in pairs} for name, pairs in held.items()}
        assert [len(sources[name]) for name in ("train", "validation", "test")] == [6, 9, 5]
        assert len(sources["train"] | sources["validation"] | sources["test"]) == 20
        assert [len(held[name]) for name in ("validation", "test")] == [18, 10]


def test_a_blank_pair_gives_its_other_targets_to_no_held_out_pair(tmp_path: Path) -> None:
    for name, blank in (("x", ""), ("y", ""), ("z", "another")):
        lines = "".join(f"{name}{line}\n{blank}\n" for line in range(20))
        (tmp_path / f"text.{name}").write_text(lines)
    train = [str(tmp_path / f"text.{name}") for name in "xyz"]
    held = pairs_of(tmp_path, train=train)["validation"]
    assert len(held) == 18 and "another" not in {target for _, target in held}


def test_held_out_pairs_take_their_links_along(folder: Path) -> None:
    pairs = list(Corpus.of(folder / "text.tsv", "x", "y"))
    # A link that tells the line: the last word of either side.
    lines = [f"{source.count(' ')}-{target.count(' ')}\n" for source, target in pairs]
    (folder / "links").write_text("".join(lines))
    splits = find_splits(data_config(folder, alignment=str(folder / "links"), test_size=7))
    assert set(splits) == {"train", "validation", "test"}
    for split in splits.values():
        for (source, target), links in zip(split, split.word_links(), strict=True):
            assert links.sure == {(source.count(" "), target.count(" "))}
    fields = {"alignment": str(folder / "links"), "validation": str(folder / "text.tsv")}
    whole = find_splits(data_config(folder, **fields))
    assert len(list(whole["train"].word_links())) == 81
    with pytest.raises(InputError, match=r"alignment of .*text\.tsv is not known; set data\.al"):
        whole["validation"].word_links()
