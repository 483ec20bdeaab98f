"""The README.md of an export for CTranslate2, with a program that needs no other code of ours."""

from importlib.metadata import version
from importlib.resources import files
from string import Template

from transformer.data.tokenization.tags import SourceTags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.search.config import SearchConfig


def readme(tokenizer: Tokenizer, search: SearchConfig, max_subwords: int) -> str:
    """The text, with a program that has the beam, penalty and length limit of ``search``."""
    tags = tokenizer.tags
    first = SourceTags(
        tags.targets[0] if tags.targets else None,
        tags.corpora[0] if tags.corpora and not tags.optional else None,
    )
    before = [tags.spelt[index] for index in tags.indices(first)]
    rows = "[cut(text) for text in texts]"
    if before:
        rows = f"[{before} + pieces if pieces else [] for pieces in map(cut, texts)]"
    # Without a penalty the engine would stop earlier than our search.
    power = search.length_penalty or 1e-6
    score = "value"
    if search.length_penalty_form == "wu":
        score += f" * (6 * (len(pieces) + 1) / (6 + len(pieces))) ** {power}"
    asset = files("transformer.interchange.readme") / "ctranslate2.md"
    text = Template(asset.read_text(encoding="utf-8")).substitute(
        ctranslate2=version("ctranslate2"),
        sentencepiece=version("sentencepiece"),
        target="source" if tokenizer.joint else "target",
        rows=rows,
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
        text += "- Trained on documents: between sentences, which are cut alone, stands `< >`.\n"
    return text
