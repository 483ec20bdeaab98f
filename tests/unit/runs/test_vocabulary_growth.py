"""The vocabulary of a checkpoint grows, and old text is translated as before."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.data.corpora import tokenizer_config
from tests.helpers.decoding.steps import search_config
from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer
from tests.helpers.model.models import portable, tiny_transformer
from transformer.__main__ import main
from transformer.checkpoint.checkpoint import PORTABLE, portable_part, write_payload
from transformer.common.errors import InputError
from transformer.common.own_code import TRUST
from transformer.data.tokenization.tags import SourceTags, TaggedText, Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.translator import Translator
from transformer.model.single_stack import build_single_stack
from transformer.runs.finetuning import (
    finetuned_config,
    grown,
    initial_payload,
    settings_of_initial,
)
from transformer.settings.model import ModelConfig
from transformer.settings.run import RunConfig

TEXTS = [*(source for source, _ in PAIRS), "a long cat sees two books"]


def translator(tokenizer: Tokenizer, weights: Any, **options: Any) -> Translator:
    """Greedy, with random weights or these."""
    model = tiny_transformer(
        source_vocab_size=tokenizer.source_vocab_size,
        target_vocab_size=tokenizer.target_vocab_size,
        **options,
    )
    if weights is None:
        with torch.no_grad():
            model.projection.weight.mul_(2)
            if model.projection.bias is not None:
                model.projection.bias.normal_(generator=torch.Generator().manual_seed(1))
    else:
        model.load_state_dict({k.removeprefix("model."): w for k, w in weights.items()})
    return Translator(model, tokenizer, search_config(algorithm="greedy", beam_size=1), 200)


@pytest.mark.parametrize(
    ("joint", "options"),
    [
        (True, {"tie_embeddings": "all"}),
        (False, {"tie_embeddings": "decoder", "output_bias": True}),
    ],
)
def test_old_text_is_translated_as_before_and_new_vectors_are_means(
    joint: bool, options: dict[str, Any]
) -> None:
    config = replace(tiny_tokenizer().config, joint=joint, vocab_size=290)
    tags = Tags(corpora=("news", "web"))
    tokenizer = Tokenizer.train(config, lambda: PAIRS).with_tags(tags)
    before = translator(tokenizer, None, **options)
    weights = {f"model.{name}": weight for name, weight in before.model.state_dict().items()}
    part = portable(before.model.config, tokenizer.to_state(), {})
    payload = grown(
        {"state_dict": weights, PORTABLE: part}, Tags(corpora=("web", "law")), ["Hundehütte", "dog"]
    )
    larger = Tokenizer.from_state(payload[PORTABLE]["tokenizer"])
    assert larger.tags.corpora == ("news", "web", "law")
    now = translator(larger, payload["state_dict"], **options)
    for tag in (None, "web"):
        texts = [TaggedText(text, SourceTags(tag=tag)) for text in TEXTS]
        translations = [translation.text for translation in before.translate(texts)]
        assert translations != [""] * len(texts)
        assert [translation.text for translation in now.translate(texts)] == translations
    [[law, *_]] = larger.tagged(SourceTags(tag="law")).encode_source(["a dog"])
    [former] = tokenizer.encode_target(["Hundehütte"])
    [[*_, whole]] = larger.encode_target(["Hundehütte"])
    for name, new, old in (
        ("source_embedding.tokens.lookup.weight", law, [-2, -1]),
        ("target_embedding.tokens.lookup.weight", whole, former),
        ("projection.weight", whole, former),
        ("projection.bias", whole, former),
    ):
        if f"model.{name}" in weights:
            mean = weights[f"model.{name}"][old].mean(0)
            assert torch.equal(payload["state_dict"][f"model.{name}"][new], mean), name


@pytest.mark.parametrize(
    ("task", "tied", "labels"), [("language_modeling", "decoder", None), ("tagging", "none", 17)]
)
def test_the_vocabulary_of_a_single_stack_grows(
    task: str, tied: Any, labels: int | None, tmp_path: Path
) -> None:
    tokenizer = tiny_tokenizer()
    size = tokenizer.source_vocab_size
    config = ModelConfig(
        d_model=8, num_heads=2, ffn_dim=8, encoder_layers=1, decoder_layers=0, tie_embeddings=tied
    )
    causal = task == "language_modeling"
    model = build_single_stack(config.sized(size, labels or size), causal=causal)
    weights = {f"model.{name}": weight for name, weight in model.state_dict().items()}
    part = portable(model.config, tokenizer.to_state(), {"task": task})
    file = tmp_path / "best.ckpt"
    write_payload({"state_dict": weights, PORTABLE: part}, file)
    added = replace(tokenizer.config, add=("Hundehütte",))
    payload = initial_payload(RunConfig(task=task, model=config, tokenizer=added), file)
    after = portable_part(payload)
    larger = Tokenizer.from_state(after.tokenizer)
    [[*_, whole]] = larger.encode_source(["Hundehütte"])
    [former] = tokenizer.encode_source(["Hundehütte"])
    stack = build_single_stack(after.config.model, causal=causal)
    stack.load_state_dict({k.removeprefix("model."): w for k, w in payload["state_dict"].items()})
    vectors = stack.embedding.tokens.lookup.weight
    assert len(vectors) == size + 1
    assert torch.equal(vectors[whole], model.embedding.tokens.lookup.weight[former].mean(0))
    assert len(stack.projection.weight) == (labels or size + 1)


def test_an_added_word_is_never_cut() -> None:
    config = replace(tiny_tokenizer().config, sampling=0.5, vocab_size=290)
    tokenizer = Tokenizer.train(config, lambda: PAIRS).with_words(["Zürich", "cats"])
    text = "two cats in (Zürich) sleep ."
    for ids in (tokenizer.encode_source([text]), tokenizer.sample_source([text] * 9, range(9))):
        for row in ids:
            assert {"Zürich", "cats"} <= set(tokenizer.source_subwords([*row]))
            assert tokenizer.decode_source([row]) == [text]
    with pytest.raises(InputError, match=r"tokenizer.add has 'a b'"):
        replace(config, add=("a b",))


def write_checkpoint(file: Path, tokenizer: Tokenizer, **options: Any) -> None:
    sizes = {"target_vocab_size": tokenizer.target_vocab_size}
    model = tiny_transformer(source_vocab_size=tokenizer.source_vocab_size, **sizes)
    weights = {f"model.{name}": weight for name, weight in model.state_dict().items()}
    config = replace(model.config, **options)
    part = portable(config, tokenizer.to_state(), {"task": "translation"})
    write_payload({"state_dict": weights, PORTABLE: part}, file)


def test_a_run_takes_the_features_of_a_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    features = "${oc.env:HOME}"
    tokens = tokenizer_config(algorithm="char", vocab_size=None, features=features)
    file = tmp_path / "run.ckpt"
    write_checkpoint(file, Tokenizer.train(tokens, lambda: [("a\tV;PST", "b")]))
    settings = settings_of_initial(file, "translation", {"data"}, trusted=False)
    assert settings["tokenizer.features"] == settings["data.features"] == features
    # The config of the command would read it from the environment.
    assert main(["train", "data=files", f"finetune_from={file}"]) == 2
    assert "tokenizer.features holds ${…}" in capsys.readouterr().err


def test_a_run_attends_as_the_checkpoint_does(tmp_path: Path) -> None:
    file = tmp_path / "run.ckpt"
    write_checkpoint(file, tiny_tokenizer(), pattern="sliding", window=1)
    model = finetuned_config(RunConfig(), file).model
    assert (model.pattern, model.window) == ("sliding", 1)
    own = replace(RunConfig(), model=replace(RunConfig().model, pattern="longformer", window=8))
    model = finetuned_config(own, file).model
    assert (model.pattern, model.window) == ("longformer", 8)


def test_features_of_the_new_text_are_not_replaced(tmp_path: Path) -> None:
    tokens = tokenizer_config(algorithm="char", vocab_size=None, features="\t")
    file = tmp_path / "run.ckpt"
    write_checkpoint(file, Tokenizer.train(tokens, lambda: [("a\tV;PST", "b")]))
    assert finetuned_config(RunConfig(), file).data.features == "\t"
    config = replace(RunConfig(), data=replace(RunConfig().data, features=";"))
    assert finetuned_config(config, file).data.features == ";"


def test_a_checkpoint_that_is_missing_or_names_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"finetune_from: .*missing"):
        finetuned_config(RunConfig(), tmp_path / "missing")
    monkeypatch.delenv(TRUST)
    file = tmp_path / "run.ckpt"
    write_checkpoint(file, tiny_tokenizer(), feed_forward="mine:Wide")
    with pytest.raises(InputError, match=r"names model\.feed_forward=mine:Wide.* add trust=true"):
        settings_of_initial(file, "translation", {"data"}, trusted=False)
    settings = settings_of_initial(file, "translation", {"data"}, trusted=True)
    assert settings["model.feed_forward"] == "mine:Wide"
