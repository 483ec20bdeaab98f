"""``translate``: a Unix filter, one line in, one line out; or a file to a file, which resumes."""

import hashlib
import json
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from omegaconf import DictConfig, OmegaConf

from transformer.checkpoint.locate import ENGINE_WEIGHTS, is_ctranslate2
from transformer.cli import translator as described
from transformer.cli.config.compose import checkpoint_paths, resolve_path, resolve_value
from transformer.cli.translate.line_io import Form, line_files, open_input, open_output
from transformer.commands.part_files import LineAssignment, PartFiles, open_part
from transformer.common.errors import InputError, Interrupted, errors_name
from transformer.common.escaping import escaped
from transformer.common.files import given_path
from transformer.data.text.lines import file_digest
from transformer.data.tokenization.tags import parse_tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.constraints.request import Constraints, Request
from transformer.decoding.constraints.terms import Glossary
from transformer.decoding.device import suited_precision
from transformer.decoding.long_inputs import warn_about_length_limit
from transformer.decoding.search.shortlist import ENGINE_FILE
from transformer.decoding.translation.document_translator import DocumentTranslator
from transformer.decoding.translation.fingerprint import compute_fingerprint
from transformer.decoding.translation.result import Translation
from transformer.decoding.translation.translator import Translator
from transformer.report.unknown_symbols import checked_symbols
from transformer.settings.decoding import OnFailure

if TYPE_CHECKING:
    from transformer.quality.failures.flagging import Flagging


def run(config: DictConfig, arguments: Sequence[str]) -> None:
    """Translate the lines of the input, one by one."""
    check(config, arguments)
    assignment = LineAssignment.from_environment()
    source, target, regular = line_files(config)
    if not regular and assignment.world > 1:
        raise InputError("several processes need a file to divide: set input= and output= too")
    model = _load(config, arguments, assignment)
    tokenizer = model.translator.tokenizer
    if regular and source is not None and target is not None:
        lines, _ = open_input(source)

        def where(index: int) -> str:
            return f"{source}:{index + 1}"

        # Errors of the input come now: a corrected file is another job, which starts again.
        requests = _requests(config, lines, where, tokenizer)
        deque(checked_symbols(requests, tokenizer, where), maxlen=0)
        try:
            _translate_file(config, model, assignment, source, target)
        except KeyboardInterrupt as stop:
            raise Interrupted("stopped; the same command resumes") from stop
        return
    with ExitStack() as stack:
        lines, ready = open_input(source)
        output = open_output(target, stack)
        _stream(config, model, lines, output, lambda index: index + 1, ready=ready)


def check(config: DictConfig, arguments: Sequence[str]) -> None:
    """Raise InputError for a value of another type, or that does not go with the others."""
    for key in ("attention", "alignment", "flags"):
        resolve_value(config, key, bool)
    for key in ("format", "input_format"):
        resolve_value(config, key, Form)
    nbest = any(one.startswith("decoding.nbest=") for one in arguments)
    typed = [f"decoding.nbest={config.decoding.nbest}"] * nbest
    typed += ["attention=true"] * bool(config.attention)
    if config.format == "text" and typed:
        raise InputError(f"{' '.join(typed)}: plain text has no place for it; add format=json")


class _Model(NamedTuple):
    """A translator, and what flags its output."""

    translator: Translator | DocumentTranslator
    flagging: "Flagging | None" = None


def _load(config: DictConfig, arguments: Sequence[str], assignment: LineAssignment) -> _Model:
    """The translator of documents, if the model was trained on them, unless ``documents=false``."""
    documents = resolve_value(config, "documents", bool | None)
    on_failure = resolve_value(config, "on_failure", OnFailure | None)
    translator, trained = described.load(config, arguments)
    if config.glossary is not None and translator.search.algorithm != "beam":
        raise InputError(
            f"decoding.algorithm={translator.search.algorithm} cannot look for the phrases of "
            "glossary=; set decoding=beam"
        )
    flags, looks = config.flags or on_failure is not None, config.alignment or config.attention
    if looks and on_failure in ("next_best", "resample"):
        raise InputError(
            f"on_failure={on_failure} gives no alignment or attention of what it takes; leave them "
            "out, or set on_failure=mark"
        )
    if documents is False or not translator.tokenizer.tags.sentences:
        if not flags:
            return _Model(translator)
        from transformer.quality.failures.flagging import Flagging
        from transformer.quality.failures.flags import Detector

        detector = Detector.load(checkpoint_paths(config)[0], trained.data)
        return _Model(translator, Flagging(translator, detector, on_failure))
    if looks or flags or assignment.world > 1:
        raise InputError(
            "a document has no alignment, attention or flags, and one process reads all of it; set "
            "documents=false"
        )
    return _Model(DocumentTranslator(translator))


def _translate_file(
    config: DictConfig,
    model: _Model,
    assignment: LineAssignment,
    source: Path,
    output: Path,
) -> None:
    parts = PartFiles(output, assignment, _job(config, model.translator, source))
    if not parts.is_done:
        with ExitStack() as stack:
            part, done = open_part(parts.path(assignment.rank), stack)
            if done:
                print(f"resuming after {done} lines in {part.name}", file=sys.stderr)
            lines, _ = open_input(source)
            own = assignment.lines(lines)
            with parts.naming_part():
                _stream(config, model, own, part, assignment.number, done=done, checked=True)
            parts.finish()
    if not assignment.rank:
        parts.join()


def _stream(
    config: DictConfig,
    model: _Model,
    lines: Iterator[str],
    output: BinaryIO,
    number: Callable[[int], int],
    *,
    ready: Callable[[], bool] | None = None,
    done: int = 0,
    checked: bool = False,
) -> None:
    """Translate lines after the first ``done``; ``number`` is the number of each in its file."""
    name, translator = config.input or "stdin", model.translator

    def where(index: int) -> str:
        return f"{name}:{number(index)}"

    requests = _requests(config, lines, where, translator.tokenizer)
    if not checked:
        requests = checked_symbols(requests, translator.tokenizer, where)
    found: Iterator[Translation]
    if isinstance(translator, Translator):
        windows = translator.stream_windows(
            islice(requests, done, None),
            ready=ready,
            attention=config.attention,
            alignment=config.alignment,
            name=lambda index: where(done + index),
        )
        found = chain.from_iterable(_flagged(*window, model.flagging) for window in windows)
    else:
        found = translator.translate_stream(requests, ready=ready, done=done)
    reached = searched = 0
    for index, translation in enumerate(found, start=done):
        output.write(_line(translation, where(index), config.format).encode() + b"\n")
        output.flush()
        reached += translation.is_unfinished
        searched += bool(translation.source_tokens)
    warn_about_length_limit([(reached, searched)])


def _flagged(
    requests: Sequence[Request], found: list[Translation], flagging: "Flagging | None"
) -> list[Translation]:
    if flagging is None:
        return found
    texts, constraints = zip(*((one.text, one.constraints) for one in requests), strict=True)
    return flagging(texts, found, constraints)


def _line(translation: Translation, where: str, form: str) -> str:
    if form == "json":
        return json.dumps(translation.to_json(), ensure_ascii=False)
    if translation.unmet:
        unmet = "; ".join(translation.unmet)
        print(f"warning: {where}: unmet: {escaped(unmet)}", file=sys.stderr)
    if translation.flags:
        print(f"warning: {where}: {', '.join(translation.flags)}", file=sys.stderr)
    return translation.to_line()


def _requests(
    config: DictConfig, lines: Iterator[str], where: Callable[[int], str], tokenizer: Tokenizer
) -> Iterator[Any]:
    glossary = Glossary({})
    if config.glossary is not None:
        glossary = Glossary.read(resolve_path(config, "glossary"))
    elif config.input_format == "text":
        yield from lines
        return
    for index, line in enumerate(lines):
        if config.input_format == "text":
            request = Request.from_line(line)
        else:
            request = Request.parse(line, where(index))
            with errors_name(where(index)):
                tokenizer.tags.indices(parse_tags(request.text).over(tokenizer.source_tags))
        if found := glossary.constraints(request.text):
            own = request.constraints or Constraints()
            terms = tuple(dict([*found.terms, *own.terms]).items())
            with errors_name(where(index)):
                request = Request(request.text, replace(own, terms=terms))
        yield request


def _job(config: DictConfig, translator: Translator | DocumentTranslator, source: Path) -> str:
    """A hash of the model, the search, the text and all settings that change the output.

    Without a shortlist, device and batch size matter by rounding alone: a call with too little
    memory resumes on another device or with smaller batches. Names of files do not matter.
    """
    if is_ctranslate2(export := resolve_path(config, "checkpoint")):
        models = [file_digest(export / ENGINE_WEIGHTS).hex(), translator.tokenizer.fingerprint]
    else:
        models = [compute_fingerprint(model, translator.tokenizer) for model in translator.members]
    settings: Any = OmegaConf.to_container(config)
    for key in ("device", "batch_tokens", "checkpoint", "input", "output"):
        del settings[key]
    if config.glossary is not None:
        settings["glossary"] = file_digest(resolve_path(config, "glossary")).hex()
    device = next(translator.members[0].parameters()).device
    settings["precision"] = suited_precision(config.precision, device)
    text = file_digest(source).hex()
    whole = [settings, models, str(translator.search), text]
    if shortlist := translator.search.shortlist:
        file = export / ENGINE_FILE if shortlist == "auto" else given_path(shortlist)
        whole += [config.batch_tokens, file_digest(file).hex()]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:12]
