"""Imported Marian models compute and translate what transformers does, and go back bit for bit."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.marian_folders import marian_folder, sentences, theirs
from transformer.__main__ import main
from transformer.data.tokenization.tags import SourceTags, TaggedText
from transformer.decoding.translation.translator import Translator
from transformer.interchange.imported import read_weights
from transformer.interchange.marian_vocabulary import import_tokenizer

LIMIT = 60
CASES: dict[str, dict[str, Any]] = {
    "joint": {},
    "separate": {"separate": True},
    "codes": {"codes": ("deu", "nld")},
    "half": {"half": True},
    "gelu": {"activation_function": "gelu", "d_model": 48, "ends": 9.0},
}


@pytest.mark.parametrize("name", CASES)
def test_an_imported_model_is_that_of_transformers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = marian_folder(tmp_path / "marian", **CASES[name])
    for language in ("en", "de"):
        lines = sentences(language, "validation", 12)
        Path(f"v.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert main(["import", "checkpoint=marian", "output=run", "validation=[v.en,v.de]"]) == 0
    model, tokenizer = theirs(folder)
    translator = Translator.load("run")
    texts = sentences("en", "test", 200 if name == "joint" else 40)
    given, asked = texts, texts
    if name == "codes":
        given = [TaggedText(text, SourceTags("nld")) for text in texts]
        asked = [f">>nld<< {text}" for text in texts]
    encoded = tokenizer(asked, return_tensors="pt", padding=True)

    _, source, target = import_tokenizer(folder)
    rows = [[*row, 3] for row in translator.tokenizer.encode_source(given)]
    lengths = encoded.attention_mask.sum(1).tolist()
    assert [[source.rows[i] for i in row] for row in rows] == [
        ids[:length] for ids, length in zip(encoded.input_ids.tolist(), lengths, strict=True)
    ]

    padded = torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, rows)), batch_first=True)
    prefix = torch.randint(4, 300, (len(texts), 7), generator=torch.Generator().manual_seed(0))
    prefix[:, 0] = 2
    with torch.no_grad():
        ours = translator.model.logits(translator.model(padded, prefix))
        right = model(
            input_ids=encoded.input_ids,
            attention_mask=encoded.attention_mask,
            decoder_input_ids=torch.tensor(target.rows)[prefix],
        ).logits
    kept = [i for i in range(len(target.rows)) if i not in target.never]
    torch.testing.assert_close(
        ours[..., kept], right[..., torch.tensor(target.rows)[kept]], rtol=1e-5, atol=1e-4
    )

    for beam in (1, 4):
        search = replace(
            translator.search,
            algorithm="beam" if beam > 1 else "greedy",
            beam_size=beam,
            max_length_ratio=0.0,
            max_length_offset=LIMIT,
        )
        with torch.no_grad():
            found = model.generate(
                **encoded,
                num_beams=beam,
                max_length=LIMIT + 2,
                early_stopping="never" if beam > 1 else False,
                renormalize_logits=True,
            )
        expected = tokenizer.batch_decode(found, skip_special_tokens=True)
        # At the limit of the length, transformers takes the end for certain.
        whole = [
            index for index, ids in enumerate(found.tolist()) if ids.index(0, 1) + 1 < LIMIT + 2
        ]
        assert len(whole) > len(texts) / 2
        translated = [one.text for one in translator.with_search(search).translate(given)]
        assert [translated[i] for i in whole] == [expected[i] for i in whole]

    if name != "codes":
        call = ["export", "checkpoint=run", "format=huggingface", "output=back"]
        assert main(call) == 0
        before, after = read_weights(folder), read_weights(Path("back"))
        assert set(after) <= set(before)
        assert all(torch.equal(before[key].float(), after[key]) for key in after)
        for file in folder.glob("*vocab.json"):
            assert json.loads(file.read_text()) == json.loads(
                (Path("back") / file.name).read_text()
            )
