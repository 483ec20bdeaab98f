"""The sentences of the pocket corpus as sound: spoken English and written German and English.

    python -m scripts.pocket_speech FOLDER [--sentences 20000] [--held-out N] [--jobs 2]

espeak-ng speaks each sentence in one of the voices, at one of the speeds, that a hash of the
sentence chooses, so that the same call makes the same sounds. Sounds that are there are kept: a
call that was stopped goes on where it stopped. FOLDER gets

- ``sounds/``: FLAC of 16 kHz, one channel, named by sentence, voice and speed;
- ``SPLIT.de.tsv`` and ``SPLIT.en.tsv``: lines of a path, relative to FOLDER, and the German or
  English text. The splits are train, validation, test and test_voice: the sentences of test in a
  voice that no other split has.

It knows nothing of models: ``experiment=pocket_speech`` trains on FOLDER.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from transformer.common.errors import InputError
from transformer.common.files import write_text_whole, written_whole
from transformer.common.packages import require_package
from transformer.data.corpora.resolve import pocket_text

SAMPLE_RATE = 16_000
VOICES = tuple(
    accent + variant
    for accent, variant in product(("en-us", "en-gb"), ("", "+m2", "+m3", "+m7", "+f2", "+f3"))
)
"""Accents of espeak-ng, each in its own voice and with five variants of it."""
UNHEARD_VOICE = "en-us+f4"
"""The voice of test_voice."""
SPEEDS = (160, 180, 200, 220)
"""Words a minute."""
SENTENCES = 20_000
"""Half of the 40,000 of train."""

Pair = tuple[str, str]
"""English and German."""


@dataclass(frozen=True)
class Utterance:
    """A sentence, and how it is spoken."""

    text: str
    voice: str
    speed: int

    @property
    def path(self) -> Path:
        """Where its sound is, relative to the folder: in one of 256 folders."""
        name = _digest(f"{self.voice} {self.speed} {self.text}").hex()[:16]
        return Path("sounds", name[:2], f"{name[2:]}.flac")


def utterance(text: str, voices: Sequence[str] = VOICES) -> Utterance:
    """Choose a voice and a speed by a hash of the sentence."""
    digest = _digest(text)
    voice = voices[int.from_bytes(digest[:4], "big") % len(voices)]
    return Utterance(text, voice, SPEEDS[int.from_bytes(digest[4:8], "big") % len(SPEEDS)])


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def speak(spoken: Utterance, file: Path) -> None:
    """Write the sound of a sentence.

    Raises:
        InputError: espeak-ng is missing, has no such voice or fails.
    """
    import soundfile
    import soxr

    # Without -z, half a second of silence would follow each sentence.
    call = ["espeak-ng", "-z", "-b", "1", "-v", spoken.voice, "-s", str(spoken.speed)]
    done = subprocess.run(
        [*call, "--stdin", "--stdout"], input=spoken.text.encode(), capture_output=True
    )
    if done.returncode or not done.stdout:
        reason = " ".join(done.stderr.decode(errors="replace").split())
        raise InputError(f"espeak-ng cannot speak {spoken.text!r} as {spoken.voice}: {reason}")
    samples, rate = soundfile.read(io.BytesIO(done.stdout), dtype="float32")
    file.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(file) as part:
        soundfile.write(part, soxr.resample(samples, rate, SAMPLE_RATE), SAMPLE_RATE, format="FLAC")


def write(folder: Path, splits: Mapping[str, Sequence[Pair]], jobs: int) -> int:
    """Write the sounds that are not there, then the lists of all; the number of new sounds."""
    spoken = {
        split: [utterance(english) for english, _ in pairs] for split, pairs in splits.items()
    }
    spoken["test_voice"] = [utterance(item.text, [UNHEARD_VOICE]) for item in spoken["test"]]
    missing = {
        item.path: item
        for items in spoken.values()
        for item in items
        if not (folder / item.path).is_file()
    }
    with ThreadPoolExecutor(jobs) as pool:
        work = [pool.submit(speak, item, folder / path) for path, item in missing.items()]
        try:
            for future in work:
                future.result()
        finally:
            pool.shutdown(cancel_futures=True)
    for split, items in spoken.items():
        pairs = splits[split.removesuffix("_voice")]
        for side, language in enumerate(("en", "de")):
            rows = zip(items, (pair[side] for pair in pairs), strict=True)
            lines = [f"{item.path}\t{text}\n" for item, text in rows]
            write_text_whole(folder / f"{split}.{language}.tsv", "".join(lines))
    return len(missing)


def pocket_pairs(sentences: int, held_out: int | None) -> Iterator[tuple[str, list[Pair]]]:
    """The first pairs of train, and of validation and test."""
    for split, size in (("train", sentences), ("validation", held_out), ("test", held_out)):
        texts = [
            gzip.decompress(pocket_text(language)[split].read_bytes()).decode().splitlines()
            for language in ("en", "de")
        ]
        yield split, list(zip(*texts, strict=True))[:size]


def main() -> None:
    """Speak to the folder that is given."""
    parser = argparse.ArgumentParser(description="Speak the sentences of the pocket corpus.")
    parser.add_argument("folder", type=Path, help="folder to write to")
    parser.add_argument("--sentences", type=int, default=SENTENCES, help="of train")
    parser.add_argument("--held-out", type=int, help="of validation, and of test; all by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="sentences at a time")
    arguments = parser.parse_args()
    try:
        if min(arguments.sentences, arguments.jobs, arguments.held_out or 1) < 1:
            raise InputError("--sentences, --held-out and --jobs are 1 or more")
        if not shutil.which("espeak-ng"):
            raise InputError("espeak-ng is not installed: apt-get install espeak-ng")
        for package in ("soundfile", "soxr"):
            require_package(package, "scripts.pocket_speech", "speech")
        splits = dict(pocket_pairs(arguments.sentences, arguments.held_out))
        arguments.folder.mkdir(parents=True, exist_ok=True)
        new = write(arguments.folder, splits, arguments.jobs)
    except (InputError, OSError) as error:
        parser.exit(2, f"{error}\n")
    print(f"{new} new sounds in {arguments.folder}")


if __name__ == "__main__":
    main()
