"""``translate``: lines to translations; or a file to a file, by several processes, resumable."""

import hashlib
import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from transformer.checkpoint.checkpoint import Loaded
from transformer.checkpoint.run_directory import ENGINE_WEIGHTS, is_ctranslate2
from transformer.commands.line_files import (
    LineAssignment,
    PartFiles,
    format_line,
    given_lines,
    open_part,
    required_files,
)
from transformer.common.errors import InputError, errors_name
from transformer.common.escaping import escaped
from transformer.common.files import given_path
from transformer.data.features.reference import Reference, check_file
from transformer.data.text.lines import file_digest, read_lines
from transformer.data.text.parallel import source_state
from transformer.data.tokenization.tags import parse_tags
from transformer.decoding.constraints.request import Constraints, Request
from transformer.decoding.constraints.terms import Glossary
from transformer.decoding.device import suited_precision
from transformer.decoding.document_translator import DocumentTranslator
from transformer.decoding.fingerprint import compute_fingerprint
from transformer.decoding.long_inputs import counting_split_lines, warn_about_length_limit
from transformer.decoding.search.shortlist import ENGINE_FILE
from transformer.decoding.subtitles import subtitles
from transformer.decoding.translator import Translation, Translator
from transformer.interchange.translators import load_translator, local_run, needs_run
from transformer.quality.unknown_symbols import checked_symbols
from transformer.settings.data import DataConfig
from transformer.settings.translator import OutputForm, TranslateConfig, is_subtitles

if TYPE_CHECKING:
    from transformer.quality.failures.flagging import Flagging

log = logging.getLogger(__name__)

LineName = Callable[[int], str]
"""The name of a line, from its index, in messages."""


def translate(
    config: TranslateConfig,
    lines: Iterable[str | Request] | None = None,
    *,
    name: str | None = None,
    ready: Callable[[], bool] | None = None,
    loaded: Loaded = lambda checkpoints: None,
) -> Iterator[Translation]:
    """Load the model; the iterator translates lines in their order.

    Args:
        config: The settings; ``output`` and ``format`` are those of `translate_file`,
            ``launch`` and ``join`` those of ``translate_files``.
        lines: Texts, or JSON (``Request.parse``) with ``input_format="json"``; a `Request` has its
            own constraints. None reads the file ``input``.
        name: Of the lines in messages, ``NAME:NUMBER``; None is ``input``, or ``lines``.
        ready: See ``Translator.translate_stream``.
        loaded: Is told the checkpoints before an engine starts.

    Raises:
        InputError: The settings contradict each other, the model or a line; translations of the
            lines before it come first.
    """
    name = name or str(config.input or "lines")
    lines = given_lines(lines, config.input)
    model = load_line_translator(config, loaded=loaded)

    def where(index: int) -> str:
        return f"{name}:{index + 1}"

    requests = checked_symbols(model.requests(lines, where), model.translator.tokenizer, where)
    return model.translate(requests, where, ready=ready)


def translate_file(
    config: TranslateConfig,
    *,
    warn: Callable[[str], None] = log.warning,
    loaded: Loaded = lambda checkpoints: None,
) -> None:
    """Translate the file ``input``, and write ``output``: all of it or nothing.

    The translations so far are in part files beside the output: the same call resumes. Processes
    of ``torchrun`` divide the lines; the first of them joins their parts. ``warn`` is told of
    translations with flags, and with unmet constraints, that plain text does not show.
    """
    source, output = required_files(config.input, config.output)
    assignment = LineAssignment.from_environment()
    model = load_line_translator(config, loaded=loaded, processes=assignment.world)

    def where(index: int) -> str:
        return f"{source}:{index + 1}"

    # Errors of the input come now: a corrected file is another job, which starts again.
    requests = model.requests(read_lines(source), where)
    tokenizer = model.translator.tokenizer
    requests = checked_symbols(requests, tokenizer, where)
    deque(existing_files(requests, where) if tokenizer.reads_files else requests, maxlen=0)
    parts = PartFiles(output, assignment, job(model.config, model.translator, source))
    if not parts.is_done:
        with ExitStack() as stack:
            part, done = open_part(parts.path(assignment.rank), stack)
            if config.has_subtitles:
                # All lines are of one translation: without its end, it begins anew.
                part.truncate(0)
                done = 0
            if done:
                log.warning(f"resuming after {done} lines in {part.name}")

            def line_name(index: int) -> str:
                return f"{source}:{assignment.number(index)}"

            requests = model.requests(assignment.lines(read_lines(source)), line_name)
            with parts.naming_part():
                translations = model.translate(requests, line_name, done=done)
                write_translations(translations, part, config.format, line_name, warn, done=done)
            parts.finish()
    if not assignment.rank:
        parts.join()


def existing_files(requests: Iterable[str | Request], where: LineName) -> Iterator[str | Request]:
    """Yield requests; InputError, with the line, if the file of one is not there, or a folder.

    Their content is not read: that takes as long as to translate them.
    """
    for index, request in enumerate(requests):
        with errors_name(where(index)):
            check_file(Reference.parse(Request.from_line(request).text).path)
        yield request


def write_translations(
    translations: Iterable[Translation],
    output: BinaryIO,
    form: OutputForm,
    where: LineName,
    warn: Callable[[str], None],
    *,
    done: int = 0,
) -> None:
    """Write a line for each translation as soon as it is there; ``done`` lines are before them.

    Subtitles, which are of one translation, are several lines.
    """
    reached = searched = 0
    for index, translation in enumerate(translations, start=done):
        if form != "json" and translation.unmet:
            warn(f"{where(index)}: unmet: {escaped('; '.join(translation.unmet))}")
        if form == "text" and translation.flags:
            warn(f"{where(index)}: {', '.join(translation.flags)}")
        if is_subtitles(form):
            written = subtitles(translation.segments or (), form)
        else:
            written = format_line(translation, form) + "\n"
        output.write(written.encode())
        output.flush()
        reached += translation.is_unfinished
        searched += bool(translation.source_tokens)
    warn_about_length_limit([(reached, searched)])


@dataclass(frozen=True)
class LineTranslator:
    """A translator of lines, the data of its training, and what flags its translations."""

    config: TranslateConfig
    translator: Translator | DocumentTranslator
    data: DataConfig
    flagging: "Flagging | None" = None

    def requests(self, lines: Iterable[str | Request], where: LineName) -> Iterator[str | Request]:
        """The lines as requests with the terms of the glossary; a plain text stays one.

        Of a second line, subtitles have an InputError before the first is translated.
        """
        if self.config.has_subtitles:
            lines = list(islice(lines, 2))
            if len(lines) > 1:
                raise InputError(
                    f"{where(1)}: format={self.config.format} is of one sound; give one line a call"
                )
        glossary = Glossary({})
        if self.config.glossary is not None:
            glossary = Glossary.read(self.config.glossary)
        elif self.config.input_format == "text":
            yield from lines
            return
        tokenizer = self.translator.tokenizer
        for index, line in enumerate(lines):
            if isinstance(line, Request) or self.config.input_format == "text":
                request = Request.from_line(line)
            else:
                request = Request.parse(line, where(index))
                with errors_name(where(index)):
                    tokenizer.tags.indices(parse_tags(request.text).over(tokenizer.source_tags))
            glossary_terms = glossary.constraints(request.text)
            if glossary_terms:
                constraints = request.constraints or Constraints()
                # The terms of the request replace those of the glossary.
                terms = tuple(dict([*glossary_terms.terms, *constraints.terms]).items())
                with errors_name(where(index)):
                    request = Request(request.text, replace(constraints, terms=terms))
            yield request

    def translate(
        self,
        requests: Iterable[str | Request],
        where: LineName,
        *,
        ready: Callable[[], bool] | None = None,
        done: int = 0,
    ) -> Iterator[Translation]:
        """Translate the requests after the first ``done``."""
        if isinstance(self.translator, DocumentTranslator):
            return self.translator.translate_stream(requests, ready=ready, done=done)
        windows = self.translator.stream_windows(
            islice(requests, done, None),
            ready=ready,
            attention=self.config.attention,
            alignment=self.config.alignment,
            name=lambda index: where(done + index),
        )
        return chain.from_iterable(self._flagged(*window) for window in windows)

    def translate_block(
        self, requests: Iterable[str | Request], where: LineName
    ) -> list[Translation]:
        """Translate all requests together: full batches of similar length, but no early answer."""
        assert isinstance(self.translator, Translator)  # a document is not cut into blocks
        block = list(map(Request.from_line, requests))
        with counting_split_lines(self.translator.limits, name=where) as split_lines:
            translations = self.translator.translate(
                [request.text for request in block],
                [request.constraints for request in block],
                attention=self.config.attention,
                alignment=self.config.alignment,
                split_lines=split_lines,
            )
        return self._flagged(block, translations)

    def _flagged(
        self, requests: Sequence[Request], translations: list[Translation]
    ) -> list[Translation]:
        if self.flagging is None:
            return translations
        texts = [request.text for request in requests]
        constraints = [request.constraints for request in requests]
        return self.flagging(texts, translations, constraints)


def load_line_translator(
    config: TranslateConfig, *, loaded: Loaded = lambda checkpoints: None, processes: int = 1
) -> LineTranslator:
    """Load the translator; of documents if the model was trained on them, unless
    ``documents=false``. Its config has the runs of models of the Hub."""
    config = replace(config, checkpoint=[str(local_run(name)) for name in config.checkpoints])
    flags = config.flags or config.on_failure is not None
    looks = config.alignment or config.attention
    path = Path(config.checkpoints[0])
    if config.engine == "ctranslate2" and is_ctranslate2(path) and looks:
        raise InputError(f"{'alignment' if config.alignment else 'attention'}= {needs_run(path)}")
    translator, trained = load_translator(config, loaded=loaded)
    translator = _with_times(config, translator, processes)
    for key in ("alignment", "glossary", "flags", "on_failure"):
        if getattr(config, key):
            translator.tokenizer.require_text(f"{key}=")
    if config.glossary is not None and translator.search.algorithm != "beam":
        raise InputError(
            f"decoding.algorithm={translator.search.algorithm} cannot look for the phrases of "
            "glossary=; set decoding=beam"
        )
    if looks and config.on_failure in ("next_best", "resample"):
        raise InputError(
            f"on_failure={config.on_failure} gives no alignment or attention of what it takes; "
            "leave them out, or set on_failure=mark"
        )
    if config.documents is False or not translator.tokenizer.tags.sentences:
        if not flags:
            return LineTranslator(config, translator, trained.data)
        from transformer.quality.failures.flagging import Flagging
        from transformer.quality.failures.flags import Detector

        detector = Detector.load(path, trained.data, translator.tokenizer.source_tags)
        flagging = Flagging(translator, detector, config.on_failure)
        return LineTranslator(config, translator, trained.data, flagging)
    if looks or flags or processes > 1:
        raise InputError(
            "a document has no alignment, attention or flags, and one process reads all of it; set "
            "documents=false"
        )
    return LineTranslator(config, DocumentTranslator(translator), trained.data)


def _with_times(config: TranslateConfig, translator: Translator, processes: int) -> Translator:
    """The translator, with times if asked for; InputError if it cannot write the subtitles."""
    if config.has_subtitles:
        translator.tokenizer.require_sound(f"format={config.format}")
        if processes > 1:
            raise InputError(f"format={config.format} is of one sound, which one process reads")
    # A copy would make the engine again.
    return replace(translator, timestamps=True) if config.timestamps else translator


def job(config: TranslateConfig, translator: Translator | DocumentTranslator, source: Path) -> str:
    """A hash of the text, of the files that it names, and of the `output_settings`."""
    whole: list[Any] = [output_settings(config, translator), file_digest(source).hex()]
    if isinstance(translator, Translator) and translator.tokenizer.reads_files:
        whole += [source_state(line) for line in read_lines(source)]
    return hashlib.sha256(json.dumps(whole, default=str).encode()).hexdigest()[:12]


def output_settings(
    config: TranslateConfig, translator: Translator | DocumentTranslator
) -> dict[str, Any]:
    """The model, the search and all settings that change the output, by key.

    Without a shortlist, device and batch size matter by rounding alone: a call with too little
    memory resumes on another device or with smaller batches. Names of files do not matter.
    """
    export = Path(config.checkpoints[0])
    settings = asdict(config)
    for key in ("device", "batch_tokens", "input", "output", "launch", "join"):
        del settings[key]
    settings["checkpoint"] = fingerprints(export, translator)
    settings["decoding"] = str(translator.search)
    if config.glossary is not None:
        settings["glossary"] = file_digest(config.glossary).hex()
    device = next(translator.members[0].parameters()).device
    settings["precision"] = suited_precision(config.precision, device)
    shortlist = translator.search.shortlist
    if shortlist:
        file = export / ENGINE_FILE if shortlist == "auto" else given_path(shortlist)
        settings |= {"batch_tokens": config.batch_tokens, "shortlist": file_digest(file).hex()}
    return settings


def fingerprints(checkpoint: Path, translator: Translator | DocumentTranslator) -> list[str]:
    """Hashes of the models of a translator; ``checkpoint`` is the first of its files."""
    if is_ctranslate2(checkpoint):
        return [file_digest(checkpoint / ENGINE_WEIGHTS).hex(), translator.tokenizer.fingerprint]
    return [compute_fingerprint(model, translator.tokenizer) for model in translator.members]
