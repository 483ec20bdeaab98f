"""The README.md of an export for CTranslate2, with a program that does not need this framework."""

from importlib.metadata import version

from transformer.data.tokenization.tags import SourceTags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.search.config import SearchConfig

_PROGRAM = """\
# A translation model for CTranslate2

    pip install ctranslate2=={ctranslate2} sentencepiece=={sentencepiece}

installs all it needs. Save this as `translate.py` in this folder, and call
`python FOLDER/translate.py < in > out`: it translates line by line.

```python
import os, sys, unicodedata, ctranslate2, sentencepiece

folder = os.path.dirname(os.path.abspath(__file__))
source = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "source.model"))
target = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "{target}.model"))
engine = ctranslate2.Translator(folder)

def cut(text):
    text = unicodedata.normalize("NFC", text).replace("\\uffff", "\\ufffd")
    pieces = source.encode(text.replace("\\u2581", "\\uffff"), out_type=str)
    bytes_of = {{"\\uffff": "<0xEF>\\n<0xBF>\\n<0xBF>", "\\u2581": "<0xE2>\\n<0x96>\\n<0x81>"}}
    return "\\n".join(pieces).replace(*bytes_of.values()).split("\\n") if pieces else []

def translate(texts):
    rows = [pieces and {before}pieces for pieces in map(cut, texts)]
    for number, row in enumerate(rows, 1):
        if len(row) > {max_subwords}:
            reads = "and the model reads at most {max_subwords}; cut it"
            sys.exit(f"line {{number}} has {{len(row)}} pieces, {{reads}}")
    limits = [int({ratio} * len(row) + {offset}) for row in rows]
    results = engine.translate_batch(
        rows, beam_size={beam}, num_hypotheses={beam}, length_penalty={power}, return_scores=True,
        min_decoding_length=0, max_decoding_length=max(limits, default=0) + 1,
        max_input_length=0, max_batch_size=4096, batch_type="tokens")
    score = lambda found: {score}
    best = [max(zip(one.hypotheses, one.scores), key=score)[0] for one in results]
    best = [pieces[:limit] if row else [] for pieces, limit, row in zip(best, limits, rows)]
    return [target.decode({kept}) for pieces in best]

for text in translate([line.rstrip("\\n") for line in sys.stdin]):
    print(text.replace("\\n", " "))
```

- Pieces go into the engine and come out of it, not SentencePiece's ids. The engine itself adds the
  end of the source and the beginning of the target, as `config.json` says.
- As in training, characters are composed (NFC), and nothing else is normalised. SentencePiece takes
  U+2581 for a space; so it is cut as U+FFFF, and gets its own bytes afterwards.
- `score` is the log-probability, divided by the length penalty that the model was validated with.
"""


def readme(tokenizer: Tokenizer, search: SearchConfig, max_subwords: int) -> str:
    """The text, with a program that searches as ``search`` in its beam, penalty and length limit.

    A source has at most ``max_subwords``.
    """
    tags = tokenizer.tags
    first = SourceTags(
        tags.targets[0] if tags.targets else None,
        tags.corpora[0] if tags.corpora and not tags.optional else None,
    )
    before = [tags.spelt[index] for index in tags.indices(first)]
    # Without a penalty the engine would stop earlier than our search.
    power = search.length_penalty or 1e-6
    score = "found[1]"
    if search.length_penalty_form == "wu":
        score += f" * (6 * (len(found[0]) + 1) / (6 + len(found[0]))) ** {power}"
    text = _PROGRAM.format(
        ctranslate2=version("ctranslate2"),
        sentencepiece=version("sentencepiece"),
        target="source" if tokenizer.joint else "target",
        before=f"{before} + " if before else "",
        ratio=search.max_length_ratio,
        offset=search.max_length_offset,
        beam=search.beam_size,
        power=power,
        score=score,
        kept='[piece for piece in pieces if piece != "< >"]' if tags.sentences else "pieces",
        max_subwords=max_subwords,
    )
    if tags.targets or tags.corpora:
        known = ", ".join(f"`{tag}`" for tag in tags.spelt)
        text += f"- Each source begins with its tags, here {before}. There are {known}.\n"
    if tags.sentences:
        text += (
            "- The model was trained on documents too: between sentences, which are cut alone, "
            "stands `< >`.\n"
        )
    return text
