"""Which tagged text is read and which left out, where a word carries its tag, what is refused."""

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from sentencepiece import SentencePieceTrainer

from tests.helpers.data.conllu import format_conllu
from tests.helpers.data.corpora import data_config, data_run, first_epoch, tokenizer_config
from tests.helpers.decoding.translators import tiny_tokenizer
from transformer.common.errors import InputError
from transformer.data.batching.batch import UNTAGGED, TaggedBatch
from transformer.data.batching.batch_sequence import BatchKey
from transformer.data.datamodules.tagging import TaggedDataset, TaggingData
from transformer.data.text.conllu import UPOS, TaggedSentence
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.tokenizer import EOS, UNK, TokenizerConfig

SENTENCES = [
    TaggedSentence(("a", "xylophone", "."), ("DET", "NOUN", "PUNCT")),
    TaggedSentence(("▁", "runs"), ("SYM", "VERB")),
    TaggedSentence(("a", "dog"), ("DET", "NOUN")),
]


def write(path: Path, sentences: list[TaggedSentence]) -> str:
    path.write_text("".join(format_conllu(*sentence) + "\n" for sentence in sentences))
    return str(path)


def files(
    folder: Path,
    sentences: list[TaggedSentence] = SENTENCES,
    positions: int | None = None,
    **changes: Any,
) -> TaggingData:
    paths = {name: write(folder / name, sentences) for name in ("train", "validation")}
    config = data_config(folder, **(paths | changes))
    run = data_run(config, tokenizer_config(), positions=positions)
    return TaggingData(run, tiny_tokenizer())


def test_a_word_is_classified_at_its_first_subword() -> None:
    tokenizer = tiny_tokenizer()
    batch = TaggedDataset(SENTENCES, tokenizer)[BatchKey(0, torch.tensor([0, 1]).numpy())]
    subwords = [tokenizer.encode_source([word])[0] for word in SENTENCES[0].words]
    assert len(subwords[1]) > 2
    assert batch.source[0].tolist() == [*subwords[0], *subwords[1], *subwords[2], EOS]
    indices = (batch.tags[0] != UNTAGGED).nonzero().flatten().tolist()
    assert indices == [0, len(subwords[0]), len(subwords[0]) + len(subwords[1])]
    assert [UPOS[tag] for tag in batch.tags[0, indices]] == ["DET", "NOUN", "PUNCT"]
    # The tokenizer's own sign for a space is a word too.
    assert tokenizer.source_subwords(batch.source[1, 1:4].tolist()) == [
        "<0xE2>",
        "<0x96>",
        "<0x81>",
    ]
    assert [UPOS[tag] for tag in batch.tags[1] if tag != UNTAGGED] == ["SYM", "VERB"]


def test_a_word_that_the_normalizer_removes_keeps_its_tag(tmp_path: Path) -> None:
    model = BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(["a dog runs"] * 9),
        model_writer=model,
        vocab_size=12,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (tmp_path / "spm.model").write_bytes(model.getvalue())
    config = TokenizerConfig(
        algorithm="sentencepiece", file=str(tmp_path / "spm.model"), vocab_size=None
    )
    tokenizer = Tokenizer.train(config, lambda: [("", "")])
    assert tokenizer.encode_source(["\u200b"]) == [[]]
    sentence = TaggedSentence(("a", "\u200b", "dog"), ("DET", "X", "NOUN"))
    batch = TaggedDataset([sentence], tokenizer)[BatchKey(0, torch.tensor([0]).numpy())]
    a, dog = tokenizer.encode_source(["a", "dog"])
    assert batch.source[0].tolist() == [*a, UNK, *dog, EOS]
    assert [UPOS[tag] for tag in batch.tags[0] if tag != UNTAGGED] == ["DET", "X", "NOUN"]


def words(batches: Iterable[TaggedBatch]) -> int:
    return sum(int((batch.tags != UNTAGGED).sum()) for batch in batches)


def test_training_leaves_out_what_is_repeated_or_too_long(tmp_path: Path) -> None:
    long = TaggedSentence(("dog",) * 30, ("NOUN",) * 30)
    data = files(tmp_path, [*SENTENCES, long, *SENTENCES], max_length=20)
    data.prepare_data()
    data.setup("fit")
    assert words(first_epoch(data)) == 3 + 2 + 2
    assert data.training_sentences() == SENTENCES
    # The validation keeps what is repeated; and the test keeps all.
    assert words(data.val_dataloader()) == 14
    assert len(data.sentences("validation")) == 7
    with pytest.raises(InputError, match=r"train: 3 of 7 sentences .*max_left_out=1"):
        files(
            tmp_path, [*SENTENCES, long, *SENTENCES], max_length=20, max_left_out=0.2
        ).prepare_data()
    with pytest.raises(InputError, match=r"train: all .* than 1 tokens; .*data\.max_length"):
        files(tmp_path, max_length=1).setup("fit")


def test_text_that_cannot_be_read_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a CoNLL-U file a split"):
        files(tmp_path, train=["a", "b"]).prepare_data()
    with pytest.raises(InputError, match="holds no sentences out"):
        files(tmp_path, validation=None).prepare_data()
    (tmp_path / "none").touch()
    with pytest.raises(InputError, match="none holds no tagged sentence"):
        files(tmp_path, validation=str(tmp_path / "none")).prepare_data()


def test_a_sentence_without_positions_is_named_by_its_line(tmp_path: Path) -> None:
    long = TaggedSentence(("dog",) * 30, ("NOUN",) * 30)
    needed = 30 * len(tiny_tokenizer().encode_source(["dog"])[0]) + 1
    (tmp_path / "test").write_text(
        "# first\n1\tis\t_\tAUX" + "\t_" * 6 + "\n\n# second\n" + format_conllu(*long)
    )
    test = str(tmp_path / "test")
    files(tmp_path, positions=needed, test=test).prepare_data()
    says = rf"test:5: .* {needed} tokens .* model\.max_length={needed - 1} with .*={needed}$"
    with pytest.raises(InputError, match=says):
        files(tmp_path, positions=needed - 1, test=test).prepare_data()
    train = write(tmp_path / "long", [*SENTENCES, long])
    files(tmp_path, positions=needed, train=train).prepare_data()
    with pytest.raises(InputError, match=rf"long: dog dog .*: a sentence of {needed} tokens"):
        files(tmp_path, positions=needed - 1, train=train).prepare_data()
