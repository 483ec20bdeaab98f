"""A static folder that translates in a browser: page, model, and onnxruntime-web from npm."""

import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.common.language_names import language_name
from transformer.decoding.translation.translator import Translator
from transformer.interchange.files import read_mapping, write_json
from transformer.interchange.runtimes.graphs import DECODER, ENCODER
from transformer.interchange.runtimes.onnx import TARGET, write_onnx

MODEL, RUNTIME = "model", "runtime"
"""Folders of the export: that of ``format=onnx``, and the files of onnxruntime-web."""

_SCRIPT, _BINARY = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"

_README = """\
# Translation in the browser: {pair}

The page needs no other server than one for files:

    python -m http.server --directory FOLDER

and `http://localhost:8000` in a browser. The text stays in the tab. `{runtime}/` has files of
onnxruntime-web {version} (MIT license, https://github.com/microsoft/onnxruntime); `{model}/` can
also be read by onnxruntime and transformers.js.
"""


def check_runtime(folder: str | None) -> Path:
    """The folder of the package onnxruntime-web; raises InputError if its files are not there."""
    given = Path(folder or "node_modules/onnxruntime-web")
    missing = [name for name in (_SCRIPT, _BINARY) if not (given / "dist" / name).is_file()]
    if missing:
        raise InputError(
            f"{given / 'dist' / missing[0]} does not exist, which format=web copies; npm install "
            "onnxruntime-web, and set onnxruntime_web=FOLDER/node_modules/onnxruntime-web"
        )
    return given


def write_web(
    translator: Translator, data: dict[str, Any], folder: Path, quantization: str, runtime: Path
) -> None:
    """Write page, model and runtime into an existing folder; raises InputError as ``write_onnx``.

    The group ``data`` of the run names the languages.
    """
    with as_file(files("transformer.interchange").joinpath("assets", "web")) as page:
        shutil.copytree(page, folder, dirs_exist_ok=True)
    (folder / RUNTIME).mkdir()
    for name in (_SCRIPT, _BINARY):
        shutil.copyfile(runtime / "dist" / name, folder / RUNTIME / name)
    (folder / MODEL).mkdir()
    write_onnx(translator, folder / MODEL, quantization)
    write_json(_settings(translator, data, folder), folder / "settings.json")
    version = str(read_mapping(runtime / "package.json")["version"])
    pair = f"{language_name(data['source'])} to {language_name(data['target'])}"
    text = _README.format(pair=pair, version=version, model=MODEL, runtime=RUNTIME)
    (folder / "README.md").write_text(text, encoding="utf-8")


def _settings(translator: Translator, data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the page must know before it loads the model; the sizes are in bytes."""
    config = translator.model.config
    encoder, decoder = (next((folder / MODEL).glob(f"onnx/{one}*")) for one in (ENCODER, DECODER))
    own = folder / MODEL / TARGET / "tokenizer.json"
    model = [encoder, decoder, folder / MODEL / "tokenizer.json", *([own] if own.is_file() else [])]
    loaded = [folder / RUNTIME / _BINARY, *model, folder / MODEL / "generation_config.json"]
    sides = {side: data[side] for side in ("source", "target")}
    return {
        **sides,
        **{f"{side}_name": language_name(code) for side, code in sides.items()},
        "heads": config.num_kv_heads or config.num_heads,
        "head_dim": config.d_k,
        "runtime": f"{RUNTIME}/{_BINARY}",
        "encoder": str(encoder.relative_to(folder)),
        "decoder": str(decoder.relative_to(folder)),
        "model_bytes": sum(one.stat().st_size for one in model),
        "files": {str(one.relative_to(folder)): one.stat().st_size for one in loaded},
    }
