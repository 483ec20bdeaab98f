"""A static folder that translates in a browser: page, model, and onnxruntime-web from npm."""

import shutil
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.common.language_names import language_name
from transformer.decoding.translation.translator import Translator
from transformer.interchange.files import write_json
from transformer.interchange.runtimes.graphs import DECODER, ENCODER
from transformer.interchange.runtimes.onnx import write_onnx

MODEL, RUNTIME = "model", "runtime"
"""Folders of the export: that of ``format=onnx``, and the files of onnxruntime-web."""

_SCRIPT, _BINARY = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"


def check_runtime(folder: str | None) -> Path:
    """The files of the package onnxruntime-web; raises InputError if they are not there."""
    given = Path(folder or "node_modules/onnxruntime-web") / "dist"
    if missing := [name for name in (_SCRIPT, _BINARY) if not (given / name).is_file()]:
        raise InputError(
            f"{given / missing[0]} does not exist, which format=web copies; npm install "
            "onnxruntime-web, and set onnxruntime_web=FOLDER/node_modules/onnxruntime-web"
        )
    return given


def write_web(
    translator: Translator, data: Mapping[str, Any], folder: Path, quantization: str, runtime: Path
) -> None:
    """Write page, model and runtime into a folder; raises InputError as ``write_onnx``."""
    with as_file(files("transformer.interchange").joinpath("assets", "web")) as page:
        shutil.copytree(page, folder, dirs_exist_ok=True)
    (folder / RUNTIME).mkdir()
    for name in (_SCRIPT, _BINARY):
        shutil.copyfile(runtime / name, folder / RUNTIME / name)
    (folder / MODEL).mkdir()
    write_onnx(translator, folder / MODEL, quantization)
    encoder, decoder = (next((folder / MODEL).glob(f"onnx/{one}*")) for one in (ENCODER, DECODER))
    texts = [*(folder / MODEL).rglob("tokenizer.json"), folder / MODEL / "config.json"]
    sides = {side: data[side] for side in ("source", "target")}
    settings = {
        **sides,
        **{f"{side}_name": language_name(code) for side, code in sides.items()},
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
