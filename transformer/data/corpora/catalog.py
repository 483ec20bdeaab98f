"""Corpora that others publish: where their files lie, and what is in them to the byte.

It fetches and reads nothing. Multi30k: Elliott et al. 2016, https://aclanthology.org/W16-3210;
its raw and its tokenised files are two corpora here. Tanaka: the 50,000 pairs of 4 to 16 words of
https://github.com/odashi/small_parallel_enja, from the Tanaka corpus.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from transformer.common.errors import InputError


@dataclass(frozen=True, kw_only=True)
class PublishedCorpus:
    """One corpus, in a file for each language of each split."""

    name: str
    """As ``data.corpus`` says it."""
    languages: tuple[str, ...]
    """Codes; the files end in them."""
    splits: Mapping[str, str]
    """From this project's names of the splits to what the file names begin with."""
    suffix: str = ""
    """What the file names end in, ``.gz`` where they are packed."""
    url: str
    """Where the files lie, with a slash at the end."""
    sha256: Mapping[str, str]
    """Of each file, and of what it is in parts of."""
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Files that lie there in parts, which follow one another."""

    def file_name(self, language: str, split: str) -> str:
        """Return the name of one side of one split.

        Raises:
            InputError: the corpus has no such language.
        """
        if language not in self.languages:
            raise InputError(
                f"{self.name} has no language {language!r}; set data.source and data.target to "
                "two of " + ", ".join(self.languages)
            )
        return f"{self.splits[split]}.{language}{self.suffix}"

    @property
    def file_names(self) -> list[str]:
        """All of them."""
        return [self.file_name(code, split) for split in self.splits for code in self.languages]


MULTI30K = PublishedCorpus(
    name="multi30k",
    languages=("en", "de", "fr"),
    splits={"train": "train", "validation": "val", "test": "test_2016_flickr"},
    suffix=".gz",
    url="https://github.com/multi30k/dataset/raw/a3d2e0d/data/task1/raw/",
    sha256={
        "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
        "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
        "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
        "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
        "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
        "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
        "test_2016_flickr.en.gz": (
            "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"
        ),
        "test_2016_flickr.de.gz": (
            "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"
        ),
        "test_2016_flickr.fr.gz": (
            "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90"
        ),
    },
)

MULTI30K_TOK = PublishedCorpus(
    name="multi30k_tok",
    languages=("en", "de"),
    splits={
        "train": "train.lc.norm.tok",
        "validation": "val.lc.norm.tok",
        "test": "test_2016_flickr.lc.norm.tok",
    },
    # A later commit has another train.lc.norm.tok.en.
    url="https://github.com/multi30k/dataset/raw/7bee46bc74186b4b6254603143610f730d40bf66/data/"
    "task1/tok/",
    sha256={
        "train.lc.norm.tok.en": "08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119",
        "train.lc.norm.tok.de": "cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505",
        "val.lc.norm.tok.en": "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
        "val.lc.norm.tok.de": "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
        "test_2016_flickr.lc.norm.tok.en": (
            "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2"
        ),
        "test_2016_flickr.lc.norm.tok.de": (
            "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4"
        ),
    },
)

TANAKA_ENJA = PublishedCorpus(
    name="tanaka_enja",
    languages=("en", "ja"),
    splits={"train": "train", "validation": "dev", "test": "test"},
    url="https://github.com/odashi/small_parallel_enja/raw/bc6f160498e5f97a286ff679173e7f6ba9321d9f/",
    parts={
        f"train.{code}": tuple(f"train.{code}.{number:03}" for number in range(5))
        for code in ("en", "ja")
    },
    sha256={
        "train.en": "148b05dcd28638fe20ee84f2b1127001c80982be352007dda241fb759adadc76",
        "train.en.000": "4dd6b09e59cc03bd78d5e541bf306ab6e5139e2ce2e12d02d093e0cc47cfcf8e",
        "train.en.001": "99db039cb12e4758268f48640902d29ee1c58d883cba69939cc3e2c63d633164",
        "train.en.002": "3aee4a770ea651d4cb30df12c85704d7743118d79c40f7cd341a185bb1017d36",
        "train.en.003": "6dd6ff06bde9daf2201de14a9511881be76f4f09278d39fbdd02513dd0f1fa7f",
        "train.en.004": "34b035922267b7e29b6919261c9583dfa24354a4cbae6890c8e3e5026c162488",
        "train.ja": "fc81a1434349ec98a449d7ae9cd2530057f689637684ecfed3501ea6a8a07ecc",
        "train.ja.000": "6090d2bc45563d9d6b2244bf69edeb5cc004dd8aa5ab39469c83574d291ffe15",
        "train.ja.001": "578e6d076882830aae1c09a8134c8126fcc28ec1ab1d078c9e9a609bac9c7870",
        "train.ja.002": "f6cbe72342daf076d218dd1de2804fe4c969e495e0ec6ae9af85b55347e96406",
        "train.ja.003": "d0eba6255389f36864eab89435e6b6d5acb47c05fee92ea64dac28d78689ef7e",
        "train.ja.004": "8e510b88524ed92fa49d8620dbaed5defc1197ff03acb5c724cceadf7a576d61",
        "dev.en": "04a2673449770657fd5e3b963cb856be3130923212b6db8ac7eaeef18f06c041",
        "dev.ja": "cd534f56b8639dc130f86a365e5ec0aa70042000bdd740a622fbbf8b6be4acca",
        "test.en": "45edb380749ec2b49cca7618fc5a7595fc9f791180672ba466b90c873a4aa8bf",
        "test.ja": "d37dc460a81b064e4106c8913eb11fa300da05cf3f58a7a5bbfec7e20947ddef",
    },
)

PUBLISHED = {corpus.name: corpus for corpus in (MULTI30K, MULTI30K_TOK, TANAKA_ENJA)}
"""By the name that ``data.corpus`` says."""
