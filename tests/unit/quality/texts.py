"""Clean text, and the same with faults of every kind at known lines."""

from functools import cache
from itertools import chain, islice
from pathlib import Path

from transformer.data.corpora.resolve import pocket_splits
from transformer.data.corpora.split import Split
from transformer.data.text.parallel import Corpus
from transformer.quality.check import ExaminationConfig
from transformer.settings.corpora import CHECKS

Pairs = list[tuple[str, str]]
Texts = dict[str, Pairs]


@cache
def _pairs() -> Pairs:
    splits = pocket_splits("en", "de")
    names = ("validation", "test", "train")
    return list(islice(chain.from_iterable(splits[name] for name in names), 1160))


def clean_texts() -> Texts:
    """The first sentences of the pocket corpus, cut into smaller splits."""
    pairs = _pairs()
    return {"train": pairs[160:1160], "validation": pairs[:80], "test": pairs[80:160]}


def planted_texts() -> tuple[Texts, dict[str, tuple[str, int]]]:
    """The same with faults, and where each is: split, and line from 1."""
    texts = clean_texts()
    train, test = texts["train"], texts["test"]
    english, german = train[100]

    def plant(line: int, source: str | None = None, target: str | None = None) -> tuple[str, int]:
        old = train[line - 1]
        train[line - 1] = (
            old[0] if source is None else source,
            old[1] if target is None else target,
        )
        return "train", line

    where = {
        "empty": plant(3, target="  "),
        "noise": plant(5, target=f"Haha{'ha' * 16} lala{'la' * 8}."),
        "ratio": plant(7, source=" ".join([english] * 6)),
        "duplicate": plant(201, english, german),
        "copy": plant(12, target=train[11][0].lower()),
        "numbers": plant(13, train[12][0] + " 1998", train[12][1] + " 1989"),
        "urls": plant(14, train[13][0] + " www.a.org/b", train[13][1] + " www.a.org/c"),
        "script": plant(15, source="Собака спит в саду под деревом."),
        "language": plant(
            19, target="Quelques personnes attendent devant une vieille gare pendant la nuit."
        ),
        "control": plant(23, source=train[22][0].replace(" ", "\u200b ", 1)),
        "markup": plant(27, target=f"<b>{train[26][1]}</b> &nbsp;"),
        "markup_both": plant(29, f"<b>{train[28][0]}</b>", f"<b>{train[28][1]}</b>"),
        "replacement": plant(31, target=train[30][1][:5] + "\ufffd" + train[30][1][6:]),
        "mojibake": plant(35, target="Der schÃ¶ne KÃ¤fer fliegt Ã¼ber die StraÃŸe."),
        "too_long": plant(40, *(" ".join([text] * 12) for text in train[39])),
        "not_nfc": plant(44, target="Der scho\u0308ne Ka\u0308fer fliegt u\u0308ber die Wiese."),
        "several_targets": plant(302, english, "Ein anderer Satz mit anderem Sinn steht hier."),
        "several_sources": plant(303, "Another sentence of another meaning is here.", german),
        "misaligned": ("train", 701),
    }
    # The target of each is that of the line before.
    stretch = [target for _, target in train[700:850]]
    for index, target in enumerate([stretch[-1], *stretch[:-1]], start=700):
        train[index] = (train[index][0], target)
    test[4] = (train[59][0].upper() + " ", train[59][1].replace(".", " !"))
    test[9] = (train[60][0], test[9][1])
    test[14] = (test[14][0], train[61][1])
    test[19] = (test[19][0], "Der Käfer heißt Ångström.")
    where |= {
        "leak": ("test", 5),
        "leak_source": ("test", 5),
        "leak_target": ("test", 5),
        "unknown_characters": ("test", 20),
    }
    return texts, where


def written(texts: Texts, folder: Path) -> dict[str, Split]:
    """Write texts as plain files ``SPLIT.en`` and ``SPLIT.de``."""
    folder.mkdir(parents=True, exist_ok=True)
    splits = {}
    for name, pairs in texts.items():
        paths = folder / f"{name}.en", folder / f"{name}.de"
        for side, path in enumerate(paths):
            path.write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8", newline="\n")
        splits[name] = Split(Corpus(paths, "en", "de"))
    return splits


def examination_config(
    checks: tuple[str, ...] = CHECKS, languages: tuple[str, str] = ("en", "de"), examples: int = 3
) -> ExaminationConfig:
    """Look for everything, or for some."""
    return ExaminationConfig(
        checks=frozenset(checks), examples=examples, ratio=4.0, max_length=120, languages=languages
    )


def call_of(folder: str) -> list[str]:
    """How a user names what `written` wrote."""
    names = ("train", "validation", "test")
    files = [f"data.{name}=[{folder}/{name}.en,{folder}/{name}.de]" for name in names]
    return ["data=files", "data.source=en", "data.target=de", "data.max_length=120", *files]
