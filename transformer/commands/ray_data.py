"""``translate`` and ``score`` of many files by Ray Data: ``launch=ray``.

Tasks cut the files into blocks of lines; actors, which hold a model each, write a file for each
block. Ray Data moves the blocks, starts again what has died, and scales. A block may be computed
twice, as its file is written whole or not at all, and a call leaves out the blocks that are there.
"""

import io
import json
import logging
import math
import os
import re
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from transformer.commands.score import check_sides, load_scorer
from transformer.commands.translate import (
    LineTranslator,
    fingerprints,
    load_line_translator,
    output_settings,
    write_translations,
)
from transformer.common.errors import InputError
from transformer.common.files import given_path, written_whole
from transformer.common.hub import is_hub_name
from transformer.common.packages import require_package
from transformer.common.urls import url_errors
from transformer.data.text.url_files import (
    UrlFile,
    find_files,
    read_blocks,
    url_format,
)
from transformer.decoding.constraints.request import Request
from transformer.interchange.translators import load_translator, local_run
from transformer.quality.unknown_symbols import checked_symbols
from transformer.settings.data import DataConfig
from transformer.settings.decoding import SearchConfig
from transformer.settings.evaluation import ScoreConfig
from transformer.settings.translator import TranslateConfig

log = logging.getLogger(__name__)

Config = TypeVar("Config", TranslateConfig, ScoreConfig)
Row = dict[str, Any]
"""A row of Ray Data: a file, a block of its lines, or what became of a block."""

BLOCK = 4_096
"""Lines of a block: what is computed again if an actor dies."""

_READERS = 4
"""Files that are read at a time, which is enough for hundreds of actors."""

_RESTARTS = 3
"""How often an actor that dies is started again, and its block repeated: Ray's own is for ever."""

_SETTINGS = "_settings.json"
"""Beside the blocks; readers of a folder leave out names that begin with an underscore."""

_BLOCK_NAME = r"(.+)\.(\d{6,})\.(lines|jsonl|parquet)"


class WrittenBlocks(NamedTuple):
    """Blocks and lines that a call has written, and blocks that were there before."""

    blocks: int
    lines: int
    done: int


def translate_files(config: TranslateConfig) -> WrittenBlocks:
    """Translate the files ``input`` on Ray, and write a file of each block into ``output``.

    The cluster is that of the program, of Ray's RAY_ADDRESS, or a local one for this call; an
    actor takes a GPU (``device=cuda``) or a CPU. Raises InputError if the settings contradict each
    other, the model, a line or the blocks in ``output``.
    """
    require_package("ray", "launch=ray", "ray")
    config = _absolute(config)
    files = find_files(str(config.input))
    joined = str(config.output) if config.join else None
    if joined is not None:
        with url_errors(joined):
            system, path = fsspec.url_to_fs(joined)
            if system.isdir(path):
                raise InputError(f"{joined} is a folder; join=true writes a file: give its name")
    # The model is loaded here for the errors, which then come before a cluster is started.
    model = load_line_translator(replace(config, device="cpu"), processes=2)
    keys = _keys(model.data, config.from_, config.to)
    # A line of JSON, or a row of Parquet, is a request as a whole.
    read = (None if config.input_format == "json" else keys[0],)
    features = model.data.features is not None
    blocks = BlockFolder.of(f"{joined}.blocks" if joined else str(config.output))
    sources = [_Source((file.url,), file.name, _format(config, file.url)) for file in files]
    settings = output_settings(model.config, model.translator)
    settings |= {"device": config.device, "precision": config.precision}
    del model
    with blocks.opened("translate", settings, [(file,) for file in files], joined):
        worker = (_TranslatedBlocks, (config, blocks, keys))
        written = _launch(sources, (read, features), worker, blocks, config.device)
        if joined is not None:
            blocks.join([source.name for source in sources], joined)
    return written


def score_files(config: ScoreConfig) -> WrittenBlocks:
    """Score the pairs of files on Ray, and write a file of each block into ``output``.

    ``source`` and ``target`` are as many plain files; without a ``target`` the files ``source``
    have both sides. The score of a pair that is longer than the model knows is null. The rest is
    as in `translate_files`.
    """
    require_package("ray", "launch=ray", "ray")
    config = _absolute(config)
    files = find_files(str(config.source))
    targets = [] if config.target is None else find_files(str(config.target))
    if targets and len(targets) != len(files):
        raise InputError(
            f"{config.source} are {len(files):,} files and {config.target} {len(targets):,}; give "
            "as many, which match line by line"
        )
    texts = list(zip(files, targets, strict=True)) if targets else [(file,) for file in files]
    urls = [tuple(file.url for file in text) for text in texts]
    for pair in urls:
        check_sides(pair, [*map(url_format, pair)])
    first = local_run(config.translator.checkpoints[0])
    translator, run = load_translator(replace(config.translator, device="cpu"))
    settings = {**asdict(config), "checkpoint": fingerprints(first, translator)}
    for key in ("batch_tokens", "source", "target", "output", "launch"):
        del settings[key]
    keys = _keys(run.data, config.from_, config.to)
    features = run.data.features is not None
    blocks = BlockFolder.of(str(config.output))
    sources = [
        _Source(pair, file.name, _format(config, file.url))
        for pair, file in zip(urls, files, strict=True)
    ]
    del translator
    with blocks.opened("score", settings, texts):
        worker = (_ScoredBlocks, (config, blocks, keys))
        return _launch(sources, (keys, features), worker, blocks, config.device)


@dataclass(frozen=True)
class BlockFolder:
    """A folder with a file for each block, wherever fsspec writes."""

    url: str

    @classmethod
    def of(cls, name: str) -> "BlockFolder":
        """The folder of a path or a URL."""
        system, path = fsspec.url_to_fs(name)
        return cls(system.unstrip_protocol(path).rstrip("/"))

    @contextmanager
    def opened(
        self,
        command: str,
        settings: Mapping[str, Any],
        texts: Sequence[Sequence[UrlFile]],
        output: str | None = None,
    ) -> Iterator[None]:
        """Keep the settings beside the blocks, and remove at the end what killed actors left.

        A text is a file or two, and has the name of the first; ``output`` is the file that all
        lines are joined into. Raises InputError if the blocks that are there have other settings,
        if those of a name are of other files, or of files that have changed since, and if an input
        would be overwritten. Texts of new names may come, and those before may be left out.
        """
        joined = output and fsspec.url_to_fs(output)[1]
        system, folder = fsspec.url_to_fs(self.url)
        for file in chain.from_iterable(texts):
            path = fsspec.url_to_fs(file.url)[1]
            if path == joined or path.startswith(f"{folder}/"):
                raise InputError(f"{file.url} is output=, or inside of it; give another output=")
        settings = {"command": command, "block": BLOCK, **settings}
        values = json.loads(json.dumps(settings, default=str))
        states: dict[str, list[list[str]]] = {}
        with url_errors(self.url):
            done = self.done()
            if done and system.exists(f"{folder}/{_SETTINGS}"):
                before = json.loads(system.cat_file(f"{folder}/{_SETTINGS}"))
                states = {name: files for name, files in before["texts"].items() if name in done}
                changed = [key for key in values if before.get(key) != values[key]]
                if changed:
                    raise InputError(
                        f"{folder} has blocks that were made with another {', '.join(changed)} "
                        f"({_SETTINGS}); give the same settings, or another output="
                    )
        _add_texts(states, texts, folder)
        content = json.dumps({**values, "texts": states}, indent=1, ensure_ascii=False)
        self.write(_SETTINGS, content.encode())
        try:
            yield
        finally:
            # What cannot be removed does no harm, and must not hide an error of the work.
            with suppress(InputError), url_errors(self.url):
                system.invalidate_cache()
                for name in system.find(folder):
                    if re.fullmatch(rf".*/{_BLOCK_NAME}\.[0-9a-f]{{32}}\.part", name):
                        system.rm_file(name)

    def write(self, name: str, content: bytes) -> None:
        """Write a file, which is whole or not there; InputError if that fails."""
        with _written(f"{self.url}/{name}") as file:
            file.write(content)

    def done(self) -> dict[str, dict[int, str]]:
        """The files of blocks that are there, by the name of their text and by their number."""
        system, folder = fsspec.url_to_fs(self.url)
        blocks: dict[str, dict[int, str]] = {}
        with url_errors(self.url):
            system.invalidate_cache()
            for path in system.find(folder):
                name = path.removeprefix(f"{folder}/")
                match = re.fullmatch(_BLOCK_NAME, name)
                if match:
                    blocks.setdefault(match[1], {})[int(match[2])] = path
        return blocks

    def join(self, names: Sequence[str], output: str) -> None:
        """Write all lines into one file, and remove the folder; InputError if that fails."""
        system, folder = fsspec.url_to_fs(self.url)
        blocks = self.done()
        with _written(output) as joined:
            for name in names:
                for _, block in sorted(blocks.get(name, {}).items()):
                    with system.open(block, "rb") as file:
                        shutil.copyfileobj(file, joined)
        with url_errors(self.url, done="removed"):
            system.rm(folder, recursive=True)


def _add_texts(
    states: dict[str, list[list[str]]], texts: Sequence[Sequence[UrlFile]], folder: str
) -> None:
    """Add to the files whose blocks are in a folder, by name, or raise InputError for others."""
    for text in texts:
        now = [[file.url, file.state] for file in text]
        known = states.setdefault(text[0].name, now)
        urls = [url for url, _ in now]
        earlier = [url for url, _ in known]
        if urls != earlier:
            raise InputError(
                f"{folder} has the blocks of {' and '.join(earlier)} under the name "
                f"{text[0].name}; give another output= for {' and '.join(urls)}"
            )
        for file, (_, state) in zip(text, known, strict=True):
            if file.state != state:
                raise InputError(
                    f"{file.url} has changed since its blocks in {folder} were made; give "
                    "another output="
                )


@contextmanager
def _written(url: str) -> Iterator[BinaryIO]:
    """A file to write, which is whole or not there; InputError if that fails."""
    with url_errors(url, done="written"):
        system, path = fsspec.url_to_fs(url)
        system.makedirs(path.rpartition("/")[0], exist_ok=True)
        if isinstance(system, LocalFileSystem):
            with written_whole(Path(path)) as whole, open(whole, "wb") as file:
                yield file
            return
        part = f"{path}.{uuid.uuid4().hex}.part"
        try:
            with system.open(part, "wb") as file:
                yield file
            system.mv(part, path)
        except BaseException:
            with suppress(Exception):  # it may never have been made
                system.rm_file(part)
            raise


class _Source(NamedTuple):
    """A text, of one file or two, and the format of its blocks: lines, jsonl or parquet."""

    urls: tuple[str, ...]
    name: str
    form: str


class _Blocks(ABC):
    """An actor of Ray: computes a block of lines, and writes its file."""

    def __init__(
        self, config: TranslateConfig | ScoreConfig, folder: BlockFolder, keys: tuple[str, str]
    ) -> None:
        self.folder = folder
        self.keys = keys

    def __call__(self, block: Row) -> Row:
        """Write a block. An InputError comes to the driver as a text: Ray loses its type."""
        error = block["error"]
        if error is None:
            try:
                name = f"{block['name']}.{block['number']:06}.{block['form']}"
                self.folder.write(name, self.content(block))
            except InputError as wrong:
                error = str(wrong)
        return {"lines": len(block["source"]), "error": error}

    @abstractmethod
    def content(self, block: Row) -> bytes:
        """The file of a block."""


class _TranslatedBlocks(_Blocks):
    def __init__(self, config: TranslateConfig, folder: BlockFolder, keys: tuple[str, str]) -> None:
        super().__init__(config, folder, keys)
        self.config = config

    @cached_property
    def model(self) -> LineTranslator:
        return load_line_translator(self.config, processes=2)

    def content(self, block: Row) -> bytes:
        where = partial(_line_name, block)
        model = self.model
        form = self.config.format
        requests = model.requests(block["source"], where)
        sources = list(checked_symbols(requests, model.translator.tokenizer, where))
        lines = io.BytesIO()
        translations = model.translate_block(sources, where)
        write_translations(translations, lines, form, where, log.warning)
        if block["form"] == "lines":
            return lines.getvalue()
        source, target = self.keys
        texts = (str(Request.from_line(line).text) for line in sources)
        results = lines.getvalue().decode().removesuffix("\n").split("\n")
        rows = []
        for text, line in zip(texts, results, strict=True):
            values = json.loads(line) if form == "json" else {"text": line}
            rows.append({source: text, target: values.pop("text"), **values})
        return _encoded(rows, block["form"])


class _ScoredBlocks(_Blocks):
    def __init__(self, config: ScoreConfig, folder: BlockFolder, keys: tuple[str, str]) -> None:
        super().__init__(config, folder, keys)
        self.config = config

    @cached_property
    def score(self) -> Callable[..., Any]:
        return load_scorer(self.config.translator)[0]

    def content(self, block: Row) -> bytes:
        pairs = list(zip(block["source"], block["target"], strict=True))
        rows = []
        for pair, score in zip(pairs, self.score(pairs, first=None), strict=True):
            values = asdict(score)
            if math.isinf(score.log_probability):
                values = {"log_probability": None, "tokens": None, "token_log_probabilities": None}
            if self.config.format == "text":
                values = {"log_probability": values["log_probability"]}
            rows.append({**dict(zip(self.keys, pair, strict=True)), **values})
        return _encoded(rows, block["form"])


def _launch(
    sources: Sequence[_Source],
    read: tuple[tuple[str | None, ...], bool],
    worker: tuple[type[_Blocks], tuple[Any, ...]],
    folder: BlockFolder,
    device: str,
) -> WrittenBlocks:
    """Compute the blocks that are not in the folder.

    Raises InputError for the first error in a block, and for a block that always kills its actor.
    """
    import ray

    done = folder.done()
    rows = [{**source._asdict(), "done": list(done.get(source.name, ()))} for source in sources]
    actor, arguments = worker
    needs: dict[str, Any] = {"num_gpus" if device.startswith("cuda") else "num_cpus": 1}
    needs |= {"max_restarts": _RESTARTS, "max_task_retries": _RESTARTS}
    with _cluster(device):
        files: Any = ray.data.from_items(rows)
        # A block of lines is a block of Ray by itself, so that the next free actor takes it.
        files.context.target_max_block_size = 1
        # Reading is nothing beside translating, and would take a core from it.
        blocks = files.flat_map(
            read_blocks,
            fn_args=(*read, BLOCK),
            num_cpus=0,
            concurrency=min(_READERS, len(rows)),
        )
        pool = ray.data.ActorPoolStrategy(min_size=1)
        written = blocks.map(actor, fn_constructor_args=arguments, compute=pool, **needs)
        number = 0
        lines = 0
        try:
            for row in written.iter_rows():
                if row["error"] is not None:
                    raise InputError(row["error"])
                number += 1
                lines += row["lines"]
        except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"launch=ray: an actor died {_RESTARTS + 1} times, maybe of its block of {BLOCK:,} "
                f"lines ({reason}); a smaller batch_tokens= takes less memory, and the same "
                "command resumes"
            ) from error
    return WrittenBlocks(number, lines, sum(len(row["done"]) for row in rows))


@contextmanager
def _cluster(device: str) -> Iterator[None]:
    """The cluster of the program, or the one that Ray finds or starts, for this call alone."""
    import ray

    is_own = not ray.is_initialized()
    if is_own:
        address = os.environ.get("RAY_ADDRESS")
        try:
            ray.init(include_dashboard=False)
        except (ConnectionError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"launch=ray: no cluster (RAY_ADDRESS={address}): {reason}") from error
    try:
        # Ray would wait for a GPU for ever.
        if device.startswith("cuda") and not ray.cluster_resources().get("GPU"):
            raise InputError(
                f"launch=ray: the cluster has no GPU for device={device}; set device=cpu"
            )
        yield
    finally:
        if is_own:
            ray.shutdown()


def _keys(data: DataConfig, source: str | None, target: str | None) -> tuple[str, str]:
    """The names of both sides: the languages of the call, else of the run."""
    names = source or data.source, target or data.target
    # A model that corrects a language writes it, too.
    return names if names[0] != names[1] else (names[0], "translation")


def _format(config: TranslateConfig | ScoreConfig, url: str) -> str:
    """The format of the blocks of a file: that of the input if it is Parquet, else JSONL."""
    if isinstance(config, TranslateConfig) and config.join:
        return "lines"
    return "parquet" if config.format == "text" and url_format(url) == "parquet" else "jsonl"


def _encoded(rows: Sequence[Row], form: str) -> bytes:
    if form == "jsonl":
        return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
    types = {"log_probability": pa.float64()}
    schema = pa.schema([(key, types.get(key, pa.string())) for key in rows[0]])
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), file)
    return file.getvalue()


def _line_name(block: Row, index: int) -> str:
    return f"{block['urls'][0]}:{block['first'] + index}"


def _absolute(config: Config) -> Config:
    """The config with paths that actors find, whose working directory may be another."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    paths: dict[str, Any] = {
        key: value.absolute() for key, value in values.items() if isinstance(value, Path)
    }
    names = [config.checkpoint] if isinstance(config.checkpoint, str) else config.checkpoint
    checkpoints = [
        name if is_hub_name(name) else str(given_path(name).absolute()) for name in names
    ]
    if isinstance(config, TranslateConfig):
        search = config.decoding
        keys = asdict(search) if isinstance(search, SearchConfig) else search
        shortlist = keys.get("shortlist")
        if isinstance(shortlist, str) and shortlist != "auto":
            changed = {**keys, "shortlist": str(given_path(shortlist).absolute())}
            is_whole = isinstance(search, SearchConfig)
            paths["decoding"] = SearchConfig(**changed) if is_whole else changed
    return replace(config, checkpoint=checkpoints, **paths)
