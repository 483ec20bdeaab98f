"""``translate``: a Unix filter, one line in, one line out, flushed as it goes; or a file to a file.

A file may be shared out among processes (``torchrun``), and a call that was killed goes on where it
was.
"""

import hashlib
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from omegaconf import DictConfig, OmegaConf

from transformer.cli.config.compose import compose_config, resolve_path
from transformer.cli.exit import run_to_exit_code
from transformer.cli.translate.line_io import input_files, open_input, open_output
from transformer.cli.translate.part_files import Parts, Share
from transformer.common.errors import InputError
from transformer.common.escaping import escaped
from transformer.common.files import given_path

if TYPE_CHECKING:
    from transformer.data.tokenization.tokenizer import Tokenizer
    from transformer.decoding.constraints.request import Request
    from transformer.decoding.translation.document_translator import DocumentTranslator
    from transformer.decoding.translation.translator import Translator


def main(arguments: Sequence[str]) -> int:
    """Translate; returns the exit code."""
    return run_to_exit_code(lambda: _translate(compose_config("translate", arguments), arguments))


def _translate(config: DictConfig, arguments: Sequence[str]) -> None:
    from transformer.cli.load import check_nbest
    from transformer.cli.translate.engine import translator_by_engine

    _check(config)
    share = Share.of_process()
    # A name such as 2014 is a number to the config.
    source, target = (
        None if one is None else str(given_path(str(one))) for one in (config.input, config.output)
    )
    files = input_files(source, target)
    if files is None and share.world > 1:
        raise InputError("several processes need a file to share out: set input= and output= too")
    found = translator_by_engine(config, arguments)
    if config.format == "text":
        check_nbest(arguments, found.search, "set format=json too")
    translator = _translator(config, found, share)
    if files is not None:
        _check_lines(files[0], config.input_format, translator.tokenizer)
        _translate_file(config, translator, share, *files)
    else:
        with ExitStack() as stack:
            lines, ready = open_input(source)
            output = open_output(target, stack)
            _stream(config, translator, lines, output, lambda index: index + 1, ready=ready)


def _translator(
    config: DictConfig, translator: "Translator", share: Share
) -> "Translator | DocumentTranslator":
    """What translates documents as such, if it is asked to."""
    from transformer.common.schema import typed_value
    from transformer.decoding.translation.document_translator import in_documents

    asked = typed_value(config.documents, bool | None, "documents")
    if asked and not translator.tokenizer.tags.sentences:
        raise InputError("documents=true: the model was trained on sentences; leave it out")
    found = translator if asked is False else in_documents(translator)
    if found is not translator:
        for key in ("alignment", "attention"):
            if config[key]:
                raise InputError(f"{key}=true is of sentences; set documents=false too")
        if share.world > 1:
            raise InputError("several processes would tear documents apart; set documents=false")
    return found


def _translate_file(
    config: DictConfig,
    translator: "Translator | DocumentTranslator",
    share: Share,
    source: Path,
    output: Path,
) -> None:
    """The share of this process."""
    parts = Parts(output, share, _job(config, translator, source))
    if not parts.is_done:
        with ExitStack() as stack:
            part, done = parts.open(stack)
            if done:
                print(f"going on after {done} lines in {part.name}", file=sys.stderr)
            lines, _ = open_input(str(source))
            own = share.lines(lines, 0)
            with parts.told():
                _stream(config, translator, own, part, share.number, done=done)
            parts.finish()
    if not share.rank:
        parts.join()


def _check_lines(source: Path, input_format: str, tokenizer: "Tokenizer") -> None:
    """Say now what would else end it half-way; what is mended is another text, to be begun anew."""
    lines, _ = open_input(str(source))
    read: Iterator[Any] = lines
    if input_format == "json":
        read = _requests(lines, lambda index: f"{source}:{index + 1}", tokenizer)
    deque(read, maxlen=0)


def _stream(
    config: DictConfig,
    translator: "Translator | DocumentTranslator",
    lines: Iterator[str],
    output: BinaryIO,
    number: Callable[[int], int],
    *,
    ready: Callable[[], bool] | None = None,
    done: int = 0,
) -> None:
    """Translate lines but the first ``done``; ``number`` tells where each stands in its file."""
    from transformer.decoding.translation.document_translator import DocumentTranslator
    from transformer.decoding.translation.length_limit import warn_about_length_limit

    name = config.input or "stdin"

    def where(index: int) -> str:
        return f"{name}:{number(index)}"

    requests: Any = lines
    if config.input_format == "json":
        requests = _requests(lines, where, translator.tokenizer)
    if isinstance(translator, DocumentTranslator):
        found = translator.translate_stream(requests, ready=ready, done=done)
    else:
        found = translator.translate_stream(
            islice(requests, done, None),
            ready=ready,
            attention=config.attention,
            alignment=config.alignment,
            name=lambda index: where(done + index),
        )
    for index, translation in enumerate(found, start=done):
        if config.format == "json":
            line = json.dumps(translation.to_json(), ensure_ascii=False)
        else:
            line = translation.to_line()
            if translation.unmet:
                unmet = "; ".join(translation.unmet)
                print(f"warning: {where(index)}: unmet: {escaped(unmet)}", file=sys.stderr)
        output.write(line.encode() + b"\n")
        output.flush()
    warn_about_length_limit([translator.length_limit.pop_counts()])


def _requests(
    lines: Iterator[str], where: Callable[[int], str], tokenizer: "Tokenizer"
) -> "Iterator[Request]":
    from transformer.data.tokenization.tags import parse_tags
    from transformer.decoding.constraints.request import Request

    for index, line in enumerate(lines):
        request = Request.parse(line, where(index))
        try:
            tokenizer.tags.indices(parse_tags(request.text).over(tokenizer.source_tags))
        except InputError as error:
            raise InputError(f"{where(index)}: {error}") from error
        yield request


def _check(config: DictConfig) -> None:
    from transformer.cli.load import check_unused_settings
    from transformer.common.schema import typed_value

    wanted = [typed_value(config[key], bool, key) for key in ("attention", "alignment")]
    for key in ("format", "input_format"):
        if config[key] not in ("text", "json"):
            raise InputError(f"{key}={config[key]} is unknown; choose text or json")
    if config.attention and config.format == "text":
        raise InputError("attention=true needs format=json")
    if not any(wanted):
        check_unused_settings(config, ("alignment_head",), "alignment=true or attention=true")
    if not config.alignment:
        check_unused_settings(config, ("alignment_threshold",), "alignment=true")


def _job(config: DictConfig, translator: "Translator | DocumentTranslator", source: Path) -> str:
    """A hash of the model, the search, the text and all settings: what the output depends on.

    Where it is computed, and in what batches, moves probabilities by rounding alone: a call that
    found too little memory goes on with another device, or smaller batches. Nor does it matter
    where the files lie, or by which of their names they are called.
    """
    from transformer.data.text.lines import file_digest
    from transformer.decoding.translation.fingerprint import compute_fingerprint
    from transformer.interchange.ctranslate2 import WEIGHTS, is_ctranslate2

    if is_ctranslate2(export := resolve_path(config, "checkpoint")):
        models = [file_digest(export / WEIGHTS).hex(), translator.tokenizer.fingerprint]
    else:
        models = [compute_fingerprint(model, translator.tokenizer) for model in translator.members]
    settings: Any = OmegaConf.to_container(config)
    for key in ("device", "batch_tokens", "checkpoint", "input", "output"):
        del settings[key]
    text = file_digest(source).hex()
    whole = [settings, models, str(translator.search), text]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:12]
