"""A static folder that translates in a browser: page, model, and onnxruntime-web from npm."""

import logging
import shutil
import tarfile
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from transformer.common.errors import InputError
from transformer.common.files import written_whole
from transformer.common.language_names import language_name
from transformer.decoding.translator import Translator
from transformer.interchange.files import write_json
from transformer.interchange.onnx import DECODER, ENCODER, write_onnx
from transformer.settings.data import DataConfig

logger = logging.getLogger(__name__)

MODEL = "model"
"""Folder of the export of ``format=onnx``."""

RUNTIME = "runtime"
"""Folder of the files of onnxruntime-web."""

_SCRIPT = "ort.wasm.bundle.min.mjs"
_BINARY = "ort-wasm-simd-threaded.wasm"

_VERSION = "1.30.0"


class Archive(NamedTuple):
    """A package of npm; its digest is SHA-512 in hexadecimal digits."""

    url: str
    digest: str


ONNXRUNTIME_WEB = Archive(
    f"https://registry.npmjs.org/onnxruntime-web/-/onnxruntime-web-{_VERSION}.tgz",
    "ab4cbe26baedba45d2cec05610c71c55fa97db92d19a8b171c5f8269126683ca"
    "590a5cdc57bb2f35ce2b298de32f4d956fb42644c0ecd528a0a91e025c07ca61",
)


def find_runtime(folder: Path | None, cache: Path, archive: Archive = ONNXRUNTIME_WEB) -> Path:
    """The folder of the files of onnxruntime-web; InputError if the package lacks one.

    Without a folder of the package it is ``node_modules/onnxruntime-web`` or, where that is not
    there, a fixed version in the cache, downloaded from npm once.
    """
    runtime = (folder or Path("node_modules/onnxruntime-web")) / "dist"
    missing = [name for name in (_SCRIPT, _BINARY) if not (runtime / name).is_file()]
    if not missing:
        return runtime
    if folder is None:
        return _fetch_runtime(cache / f"onnxruntime-web-{_VERSION}", archive)
    raise InputError(
        f"{runtime / missing[0]} does not exist, which format=web copies; npm install "
        "onnxruntime-web, and set onnxruntime_web=FOLDER/node_modules/onnxruntime-web"
    )


def _fetch_runtime(folder: Path, archive: Archive) -> Path:
    """Download the archive, check its digest, and take the two files out of it."""
    if all((folder / name).is_file() for name in (_SCRIPT, _BINARY)):
        return folder
    import pooch

    level = pooch.get_logger().level
    pooch.get_logger().setLevel(logging.WARNING)
    logger.info("fetching %s", archive.url)
    try:
        with TemporaryDirectory() as part:
            file = pooch.retrieve(archive.url, f"sha512:{archive.digest}", "archive.tgz", part)
            folder.mkdir(parents=True, exist_ok=True)
            with tarfile.open(file) as packed:
                for name in (_SCRIPT, _BINARY):
                    content = packed.extractfile(f"package/dist/{name}")
                    with written_whole(folder / name) as target:
                        target.write_bytes(content.read() if content else b"")
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"cannot fetch {archive.url} ({reason}); npm install onnxruntime-web elsewhere, and "
            "set onnxruntime_web=FOLDER/node_modules/onnxruntime-web"
        ) from error
    finally:
        pooch.get_logger().setLevel(level)
    return folder


def write_web(
    translator: Translator, data: DataConfig, folder: Path, quantization: str, runtime: Path
) -> None:
    """Write page, model and runtime into a folder; raises InputError as ``write_onnx``."""
    with as_file(files("transformer.interchange").joinpath("assets", "web")) as page:
        shutil.copytree(page, folder, dirs_exist_ok=True)
    (folder / RUNTIME).mkdir()
    for name in (_SCRIPT, _BINARY):
        shutil.copyfile(runtime / name, folder / RUNTIME / name)
    (folder / MODEL).mkdir()
    write_onnx(translator, folder / MODEL, quantization)
    encoder = next((folder / MODEL).glob(f"onnx/{ENCODER}*"))
    decoder = next((folder / MODEL).glob(f"onnx/{DECODER}*"))
    texts = [*(folder / MODEL).rglob("tokenizer.json"), folder / MODEL / "config.json"]
    settings = {
        "source": data.source,
        "target": data.target,
        "source_name": language_name(data.source),
        "target_name": language_name(data.target),
        "runtime": f"{RUNTIME}/{_BINARY}",
        "encoder": str(encoder.relative_to(folder)),
        "decoder": str(decoder.relative_to(folder)),
        # What the page loads, in bytes.
        "files": {
            str(file.relative_to(folder)): file.stat().st_size
            for file in (folder / RUNTIME / _BINARY, encoder, decoder, *texts)
        },
    }
    write_json(settings, folder / "settings.json")
