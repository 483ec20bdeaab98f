"""M2M-100 and NLLB folders of Hugging Face with random weights, and vocabularies of pocket text."""

import json
from pathlib import Path
from typing import Any

import sentencepiece
import torch

from tests.helpers.interchange.marian_folders import SIZES, pieces, randomize
from tests.helpers.lazy import hf

LANGUAGES = {
    "m2m": ("en", "ha", "is", "ja", "cs", "ru", "zh", "de"),
    "nllb": ("deu_Latn", "eng_Latn", "fra_Latn"),
}
"""Codes by kind; those of M2M-100 are its set ``wmt21``."""


def m2m_folder(
    folder: Path,
    *,
    kind: str = "m2m",
    algorithm: str = "bpe",
    missing: int = 0,
    seed: int = 1,
    ends: float = 10.0,
    **changes: Any,
) -> Path:
    """Write a folder; ``missing`` pieces are not in the vocabulary, and 8 ids have no name."""
    folder.mkdir(parents=True)
    subwords = pieces("en de", algorithm)
    processor = sentencepiece.SentencePieceProcessor(model_proto=subwords)
    names = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size() - missing)]
    (folder / "sentencepiece.bpe.model").write_bytes(subwords)
    count = len(names) + 4
    if kind == "m2m":
        ids = {name: i for i, name in enumerate(["<s>", "<pad>", "</s>", "<unk>", *names])}
        (folder / "vocab.json").write_text(json.dumps(ids))
        hf.M2M100Tokenizer(
            *(str(folder / name) for name in ("vocab.json", "sentencepiece.bpe.model")),
            language_codes="wmt21",
            additional_special_tokens=[f"__{code}__" for code in LANGUAGES["m2m"]],
            src_lang="en",
            tgt_lang="de",
        ).save_pretrained(folder)
    else:
        published(folder, LANGUAGES["nllb"])
    values: dict[str, Any] = {**SIZES, "vocab_size": count + len(LANGUAGES[kind]) + 8}
    torch.manual_seed(seed)
    model = hf.M2M100ForConditionalGeneration(hf.M2M100Config(**values | changes)).eval()
    with torch.no_grad():
        randomize(model)
        table = model.model.shared.weight
        table[1] = 0
        end_in_time(model.model.decoder, ends)
    model.save_pretrained(folder)
    return folder


def end_in_time(decoder: Any, ends: float) -> None:
    """Let translations end at several lengths, which those of a random model hardly ever do.

    Some axes show little but the position, and the symbol of the end leans on them.
    """
    table = decoder.embed_tokens.weight
    clock = [table.size(1) // 2 + axis for axis in (3, 4, 5)]
    table[:, clock] = 0
    table[2, clock] = -ends
    for layer in decoder.layers:
        for module in (layer.self_attn.out_proj, layer.encoder_attn.out_proj, layer.fc2):
            module.weight[clock] *= 0.2
            module.bias[clock] *= 0.2


def published(folder: Path, codes: tuple[str, ...]) -> None:
    """A ``tokenizer.json`` like the published ones: the vocabulary has codes and the mask, too."""
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "NllbTokenizer"}')
    hf.NllbTokenizer.from_pretrained(folder).save_pretrained(folder)
    (folder / "sentencepiece.bpe.model").unlink()
    file = folder / "tokenizer.json"
    values = json.loads(file.read_text())
    vocabulary, first = values["model"]["vocab"], len(values["model"]["vocab"])
    mask = values["added_tokens"].pop()
    for index, code in enumerate((*codes, "<mask>")):
        vocabulary[code] = first + index
        values["added_tokens"].append({**mask, "content": code, "id": first + index})
    file.write_text(json.dumps(values))
    own = {"tokenizer_class": "NllbTokenizer", "extra_special_tokens": list(codes)}
    own |= {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn"}
    (folder / "tokenizer_config.json").write_text(json.dumps(own))
