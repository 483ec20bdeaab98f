"""The tokenizer and the sound of a Whisper folder of transformers as ours, and back.

Its byte-level BPE is a ``tokenizer.json``. There, the ids are subwords, ``<|endoftext|>``,
``<|startoftranscript|>``, languages, other symbols up to ``<|notimestamps|>``, and times. Ours are
those of `FileVocabulary`; languages, symbols and times are tags.

Source: Radford et al. 2022, section 2.3; transformers 5, ``models/whisper``.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError, raise_objections, readable
from transformer.common.schema import typed_value
from transformer.data.features.reference import Reference
from transformer.data.features.windows import sound_windows
from transformer.data.tokenization.file_vocabulary import FileVocabulary
from transformer.data.tokenization.tags import (
    NO_TIMES,
    TIME_STEP,
    TRANSCRIBE,
    TRANSLATE,
    SpeechTags,
    Tags,
    parse_tags,
)
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.data.tokenization.vector_source import model_of_vectors
from transformer.decoding.long_inputs import join_parts
from transformer.decoding.search.speech import FIRST_TIME
from transformer.decoding.translator import Translator
from transformer.interchange.architectures import subwords
from transformer.interchange.architectures.bart import JSON, file_content
from transformer.interchange.files import read_mapping, write_json
from transformer.settings.run import RunConfig
from transformer.settings.sources import STRIDES, SourceConfig, SpeechConfig
from transformer.settings.tokenizer import BOS, EOS, PAD, UNK, TokenizerConfig

_END = "<|endoftext|>"
_START = "<|startoftranscript|>"
_NAME = "<|{}|>"
_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")

_ENGLISH = 51_864
"""Size of the vocabulary of the published models of English alone."""

_PREPROCESSOR = "preprocessor_config.json"


def import_tokenizer(folder: Path, vocab_size: Any) -> subwords.ImportedTokenizer:
    """The tokenizer of a folder, and its ids; raises InputError if it cannot be imported."""
    vocab_size = typed_value(vocab_size, int, "config.json.vocab_size")
    settings = read_mapping(folder / "config.json")
    settings |= read_mapping(folder / "generation_config.json", optional=True)
    content, names = _split_content(folder, vocab_size)
    multilingual = settings.get("is_multilingual")
    if multilingual is None:
        multilingual = vocab_size != _ENGLISH
    codes = _leading_codes(names) if multilingual else ()
    symbols = tuple(name[2:-2] for name in names[len(codes) :])
    needed = {NO_TIMES, TRANSCRIBE, TRANSLATE} if codes else {NO_TIMES}
    if not needed <= {*symbols} or symbols[-1] != NO_TIMES:
        raise InputError(f"{folder}: its tokenizer lacks <|{'|>, <|'.join(sorted(needed))}|>")
    vocabulary = FileVocabulary(content, "huggingface", Tags(), threads=1)
    end = vocabulary.rows[EOS]
    assert end is not None
    rows = [end if row is None else row for row in vocabulary.rows]
    our_ids = {row: our for our, row in enumerate(rows) if our not in (PAD, UNK)}
    never, never_first = (
        tuple(our_ids[row] for row in _numbers(settings.get(key), key) if row in our_ids)
        for key in ("suppress_tokens", "begin_suppress_tokens")
    )
    # Its symbols have rules of their own.
    never = tuple(our for our in never if our > EOS)
    start = rows[BOS]
    times = vocab_size - start - 1 - len(names)
    tags = Tags(
        targets=codes,
        both_sides=bool(codes),
        speech=SpeechTags(symbols, times, never, never_first),
    )
    source = SourceConfig("speech", stride=STRIDES["whisper"], speech=import_sound(folder))
    config = TokenizerConfig(
        algorithm="huggingface", source="speech", vocab_size=None, joint=False, file=JSON
    )
    tokenizer = Tokenizer(config, model_of_vectors(source), content, tags)
    rows += range(start + 1, vocab_size)
    padding = settings.get("pad_token_id")
    imported = subwords.ImportedIds(tuple(rows), (PAD, UNK), codes, padding)
    return subwords.ImportedTokenizer(tokenizer, imported, imported)


def import_sound(folder: Path) -> SpeechConfig:
    """How a folder of Whisper turns sound into frames."""
    mels = read_mapping(folder / "config.json").get("num_mel_bins", 80)
    values = read_mapping(folder / _PREPROCESSOR, optional=True)
    names = {"sampling_rate": 16_000, "n_fft": 400, "hop_length": 160, "chunk_length": 30}
    read = {
        name: typed_value(values.get(name, usual), int, f"{_PREPROCESSOR}.{name}")
        for name, usual in names.items()
    }
    if values.get("feature_size", mels) != mels or values.get("dither"):
        raise InputError(
            f"{folder}: {_PREPROCESSOR} must have feature_size={mels}, as config.json has, and no "
            "dither"
        )
    return SpeechConfig(
        sample_rate=read["sampling_rate"],
        mels=typed_value(mels, int, "config.json.num_mel_bins"),
        window=read["n_fft"],
        hop=read["hop_length"],
        seconds=float(read["chunk_length"]),
    )


def _split_content(folder: Path, vocab_size: int) -> tuple[bytes, list[str]]:
    """Our ``tokenizer.json``, of subwords alone, and the names of the symbols after the start."""
    with readable(folder):
        values = json.loads(file_content(folder, "WhisperTokenizer"))
        vocabulary = values["model"]["vocab"]
        added = {str(token["content"]): int(token["id"]) for token in values["added_tokens"]}
        names = {number: name for name, number in (vocabulary | added).items()}
        ids = sorted(names)
        numbers = {name: number for number, name in names.items()}
        end, start = (numbers.get(name, -1) for name in (_END, _START))
        none = numbers.get(_NAME.format(NO_TIMES), -1)
        if ids[: none + 1] != list(range(none + 1)) or end + 1 != start or start >= none:
            raise ValueError(
                f"its ids must be subwords, {_END}, {_START}, languages and other symbols up to "
                f"{_NAME.format(NO_TIMES)}, then times"
            )
        if vocab_size <= max(ids[-1], none):
            raise ValueError(f"config.json has vocab_size={vocab_size}, and it has more tokens")
        values["model"]["vocab"] = {
            name: number for name, number in vocabulary.items() if number < end
        }
        values["model"]["unk_token"] = None
        special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        values["added_tokens"] = [
            {"id": number, "content": name, **special, "special": True}
            for number, name in ((end, _END), (start, _START))
        ]
        values["post_processor"] = None
        # The first word of a text begins with a blank, as what the model writes.
        values["pre_tokenizer"]["add_prefix_space"] = True
    return json.dumps(values, ensure_ascii=False).encode(), [
        names[number] for number in range(start + 1, none + 1)
    ]


def _leading_codes(names: Iterable[str]) -> tuple[str, ...]:
    codes = []
    for name in names:
        match = _LANGUAGE.fullmatch(name)
        if match is None:
            break
        codes.append(match[1])
    return tuple(codes)


def _numbers(values: Any, key: str) -> Sequence[int]:
    """A list of ids; null, or [-1] in old folders, is none."""
    return [number for number in typed_value(values or [], list, key) if number != -1]


def export_tokenizer(
    translator: Translator, run: RunConfig, folder: Path
) -> tuple[subwords.ExportedIds, subwords.ExportedIds]:
    """Write the files of text and sound and return the ids; InputError without Whisper's tags."""
    tokenizer = translator.tokenizer
    tags = tokenizer.tags
    speech = tags.speech
    only = Tags(targets=tags.targets, both_sides=tags.both_sides, speech=speech)
    raise_objections(
        f"Whisper has {name}; or choose format=safetensors"
        for name, holds in {
            "the symbols of its tokenizer, which only an imported model has": speech is not None,
            "no other tags than languages": tags == only,
            "no words of tokenizer.add": not tokenizer.config.add,
            "data.speech.seconds=30, or another length": run.data.speech.seconds is not None,
        }.items()
        if not holds
    )
    assert speech is not None
    content = bytes(tokenizer.to_state()["target"].numpy())
    vocabulary = FileVocabulary(content, "huggingface", Tags(), threads=1)
    ours = {row: our for our, row in enumerate(vocabulary.rows) if row is not None}
    numbers = [ours[row] for row in sorted(ours)]
    first_tag = len(vocabulary)
    numbers += range(first_tag, tokenizer.target_vocab_size)
    end = len(ours) - 2
    names = [*tags.targets, *speech.symbols]
    names += [f"{TIME_STEP * number:.2f}" for number in range(speech.times)]
    special = [_NAME.format(name) for name in names]
    _write_tokenizer(json.loads(content), special, speech, folder)
    _write_sound(tokenizer.vector_source.config.speech, folder)
    texts = tuple(tokenizer.subwords(numbers))
    ids = subwords.ExportedIds(texts, tuple(numbers), end, end, end, end + 1)
    return ids, ids


def _write_tokenizer(
    values: dict[str, Any], special: Sequence[str], speech: SpeechTags, folder: Path
) -> None:
    """Write ``tokenizer.json``, and what transformers reads beside it."""
    first = len(values["model"]["vocab"])
    template = values["added_tokens"][0]
    for token in values["added_tokens"]:
        values["model"]["vocab"][token["content"]] = token["id"]
    # Times are no special tokens in the published folders: they are part of a text.
    values["added_tokens"] += [
        {**template, "content": name, "id": first + 2 + number}
        | {"special": number < len(special) - speech.times}
        for number, name in enumerate(special)
    ]
    values["pre_tokenizer"]["add_prefix_space"] = False
    (folder / JSON).write_text(json.dumps(values, ensure_ascii=False), encoding="utf-8")
    named = {
        "tokenizer_class": "WhisperTokenizer",
        "processor_class": "WhisperProcessor",
        **dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), _END),
        "additional_special_tokens": [_START, *special[: len(special) - speech.times]],
        "add_prefix_space": False,
    }
    write_json(named, folder / "tokenizer_config.json")


def _write_sound(speech: SpeechConfig, folder: Path) -> None:
    seconds = speech.seconds or 0.0
    values = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": speech.mels,
        "sampling_rate": speech.sample_rate,
        "n_fft": speech.window,
        "hop_length": speech.hop,
        "chunk_length": int(seconds),
        "n_samples": round(seconds * speech.sample_rate),
        "nb_max_frames": round(seconds * speech.sample_rate) // speech.hop,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }
    write_json(values, folder / _PREPROCESSOR)


def generation_values(tokenizer: Tokenizer, target: subwords.ExportedIds) -> dict[str, Any]:
    """What ``generation_config.json`` has of languages, tasks, times and symbols never written."""
    tags = tokenizer.tags
    speech = tags.speech
    assert speech is not None
    exported = {row: number for number, row in enumerate(target.rows)}
    first = target.start + 1
    symbols = {name: first + len(tags.targets) + i for i, name in enumerate(speech.symbols)}
    values: dict[str, Any] = {
        "is_multilingual": tags.both_sides,
        "no_timestamps_token_id": symbols[NO_TIMES],
        "max_initial_timestamp_index": FIRST_TIME,
        # Symbols cannot follow the beginning, which is given.
        "suppress_tokens": sorted(
            [exported[our] for our in speech.never]
            + [target.start, *(number for name, number in symbols.items() if name != NO_TIMES)]
        ),
        "begin_suppress_tokens": [exported[our] for our in speech.never_first],
        "return_timestamps": False,
    }
    if tags.both_sides:
        values["lang_to_id"] = {
            _NAME.format(code): first + number for number, code in enumerate(tags.targets)
        }
        values["task_to_id"] = {task: symbols[task] for task in (TRANSCRIBE, TRANSLATE)}
    return values


def generate_greedily(folder: Path, files: Sequence[str]) -> list[str]:
    """Write sounds down with transformers; tags of the files choose language and task.

    A long sound is cut into windows as ours.
    """
    import torch
    import transformers

    library: Any = transformers
    model = library.WhisperForConditionalGeneration.from_pretrained(folder).eval()
    extractor = library.WhisperFeatureExtractor.from_pretrained(folder)
    tokenizer = library.WhisperTokenizer.from_pretrained(folder)
    speech = import_sound(folder)
    generation = model.generation_config
    names = [*getattr(generation, "lang_to_id", {}).values(), generation.no_timestamps_token_id]
    times = range(generation.no_timestamps_token_id + 1, model.config.vocab_size)
    generation.suppress_tokens = sorted({*(generation.suppress_tokens or ()), *names, *times})
    plain = {"num_beams": 1, "no_repeat_ngram_size": 0, "min_length": 0}
    texts = []
    for file in files:
        tags = parse_tags(file)
        asked = {}
        if generation.is_multilingual:
            task = TRANSCRIBE if tags.source == tags.target else TRANSLATE
            asked = {"language": tags.source, "task": task}
        parts = []
        for _, _, window in sound_windows(Reference.parse(file), speech):
            heard = extractor(window, sampling_rate=speech.sample_rate, return_tensors="pt")
            with torch.no_grad():
                ids = model.generate(heard.input_features, **asked, **plain)
            parts += tokenizer.batch_decode(ids, skip_special_tokens=True)
        texts.append(join_parts(part.removeprefix(" ") for part in parts))
    return texts
