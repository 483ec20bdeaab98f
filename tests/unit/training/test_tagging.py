"""Where a word is classified, which text is read, and what is refused."""

from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from tests.helpers.runs import composed
from tests.unit.decoding.translators import tiny_tokenizer
from transformer.data.batch import UNTAGGED, collate_tagged
from transformer.data.conllu import UPOS, TaggedSentence, format_conllu
from transformer.data.sampler import BatchKey
from transformer.data.splits import POCKET_SPLITS
from transformer.data.tokenizer import EOS, PAD, UNK
from transformer.errors import InputError
from transformer.training import tagging as tagging_module
from transformer.training.tagging import TaggedDataset, Tagging, TaggingData, tag

SENTENCES = [
    TaggedSentence(("a", "xylophone", "."), ("DET", "NOUN", "PUNCT")),
    TaggedSentence(("▁", "runs"), ("SYM", "VERB")),
    TaggedSentence(("a", "dog"), ("DET", "NOUN")),
]
ALONE = ["task=tagging", "model.decoder_layers=0", "model.tie_embeddings=none"]


def write(path: Path, sentences: list[TaggedSentence]) -> str:
    path.write_text("".join(format_conllu(*sentence) + "\n" for sentence in sentences))
    return str(path)


def files(folder: Path, *overrides: str, sentences: list[TaggedSentence] = SENTENCES) -> Tagging:
    given = [f"data.{name}={write(folder / name, sentences)}" for name in ("train", "validation")]
    config = composed(["data=files", *given, *ALONE, *overrides], folder / "cache")
    return Tagging(config, tiny_tokenizer())


def test_a_word_is_classified_at_its_first_subword() -> None:
    tokenizer = tiny_tokenizer()
    batch = TaggedDataset(SENTENCES, tokenizer)[BatchKey(0, torch.tensor([0, 1]).numpy())]
    pieces = [tokenizer.encode_source([word])[0] for word in SENTENCES[0].words]
    assert len(pieces[1]) > 2
    assert batch.source[0].tolist() == [*pieces[0], *pieces[1], *pieces[2], EOS]
    places = (batch.tags[0] != UNTAGGED).nonzero().flatten().tolist()
    assert places == [0, len(pieces[0]), len(pieces[0]) + len(pieces[1])]
    assert [UPOS[tag] for tag in batch.tags[0, places]] == ["DET", "NOUN", "PUNCT"]
    # A word of nothing but the tokenizer's own sign for a space has no subword, but a place.
    assert batch.source[1, 0] == UNK
    assert [UPOS[tag] for tag in batch.tags[1] if tag != UNTAGGED] == ["SYM", "VERB"]


def test_a_batch_counts_words_and_positions() -> None:
    batch = collate_tagged([[5, 6, 7], [8]], [[2, UNTAGGED, 3], [4]])
    assert batch.source.tolist() == [[5, 6, 7, EOS], [8, EOS, PAD, PAD]]
    assert batch.tags.tolist() == [[2, -1, 3, -1], [4, -1, -1, -1]]
    assert (batch.target_tokens, batch.tokens, batch.positions) == (3, 6, 8)
    assert batch.to("meta").source.is_meta
    assert batch.to("meta").tags.is_meta


def test_the_order_of_the_sentences_is_kept(tmp_path: Path) -> None:
    task = files(tmp_path)
    dataset = TaggedDataset(SENTENCES, task.data.tokenizer)
    model = task.module.model.eval()
    alone = [
        tag(model, TaggedDataset([sentence], task.data.tokenizer), 50)[0] for sentence in SENTENCES
    ]
    assert [len(tags) for tags in alone] == [3, 2, 2]
    assert tag(model, dataset, 50) == alone
    assert tag(model, dataset, 1) == alone  # each alone, longer than the budget


def test_training_leaves_out_what_is_repeated_or_too_long(tmp_path: Path) -> None:
    long = TaggedSentence(("dog",) * 30, ("NOUN",) * 30)
    task = files(tmp_path, "data.max_length=20", sentences=[*SENTENCES, long, *SENTENCES])
    task.data.setup("fit")
    words = sum(batch.target_tokens for batch in task.data.train_dataloader())
    assert words == 3 + 2 + 2
    # The validation keeps what is repeated; and the test keeps all.
    assert sum(batch.target_tokens for batch in task.data.val_dataloader()) == 14
    assert len(task.data.sentences("validation")) == 7


def test_workers_make_the_same_batches(tmp_path: Path) -> None:
    dataset = TaggedDataset(SENTENCES, tiny_tokenizer())
    keys = [BatchKey(0, torch.tensor([row]).numpy()) for row in range(3)]
    loader = DataLoader(dataset, sampler=keys, batch_size=None, num_workers=1)  # type: ignore[arg-type]
    for key, batch in zip(keys, loader, strict=True):
        assert torch.equal(batch.tags, dataset[key].tags)


def test_pocket_is_a_treebank_in_two_languages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for split in POCKET_SPLITS:
        write(tmp_path / f"{split}.de.conllu", SENTENCES)
    monkeypatch.setattr(tagging_module, "pocket_folder", lambda cache: tmp_path)
    config = composed([*ALONE, "data.source=de", "data.target=en"], tmp_path)
    data = TaggingData(config, None)
    assert data.splits == ("validation", "test", "test_novel")
    assert data.sentences("test_novel") == SENTENCES


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data=multi30k"], "task=tagging reads pocket, or CoNLL-U: set data=files"),
        (["data=files", "data.train=a.conllu"], "set data=files .* data.validation=B"),
        (["data=files", "data.train=[a,b]", "data.validation=c"], "reads pocket, or CoNLL-U"),
        (["tokenizer.sampling=0.1"], "does not go with task=tagging"),
        (["data=files", "data.train=gone", "data.validation=gone"], "gone: no such file"),
        (["data=files", "data.train=a", "data.validation=b", "data.test=gone"], "gone: no such"),
        (["data.source=fr"], r"data\.source=fr has no tags"),
    ],
)
def test_what_cannot_be_is_an_input_error(
    tmp_path: Path, overrides: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tagging_module, "pocket_folder", lambda cache: tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        write(tmp_path / name, SENTENCES)
    with pytest.raises(InputError, match=message):
        Tagging(composed([*ALONE, *overrides], tmp_path)).data.prepare_data()


def test_a_file_without_a_sentence_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="train holds no tagged sentence"):
        files(tmp_path, sentences=[]).data.setup("fit")
