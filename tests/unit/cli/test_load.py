"""Which search and which device a call means."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from tests.helpers.decoding.steps import search_config
from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer
from tests.helpers.model.models import portable, run_of, tiny_transformer
from transformer.checkpoint.checkpoint import PORTABLE, write_payload
from transformer.cli.config import command_settings, compose_config
from transformer.common.errors import InputError
from transformer.decoding.alignment import Aligner
from transformer.decoding.device import suited_batch_tokens, suited_precision
from transformer.decoding.translator import Translation, Translator
from transformer.interchange.translators import load_translator
from transformer.model.head_masks import HeadName, heads_off
from transformer.settings.run import RunConfig

# The run was validated with other values than conf/decoding/beam.yaml has.
TRAINED = asdict(
    search_config(
        beam_size=7,
        length_penalty=0.25,
        max_length_ratio=1.5,
        max_length_offset=3,
        nbest=2,
        no_repeat_ngram=4,
    )
)
LOSS = {
    **{"label_smoothing": 0.1, "chunk": 512, "bfloat16": False},
    **{"alignment_weight": 0.0, "alignment_layer": None, "alignment_head": 0},
}
RUN = {"task": "translation", "decoding": TRAINED, "loss": LOSS, "seed": 4}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("run") / "x.ckpt", RUN)


def written(path: Path, run: dict[str, Any]) -> Path:
    tokenizer = tiny_tokenizer()
    model = tiny_transformer(
        source_vocab_size=tokenizer.source_vocab_size, target_vocab_size=tokenizer.target_vocab_size
    )
    payload = {
        "state_dict": {f"model.{k}": v for k, v in model.state_dict().items()},
        PORTABLE: portable(model.config, tokenizer.to_state(), run),
    }
    write_payload(payload, path)
    return path


def called(verb: str, *arguments: str) -> Any:
    return command_settings(verb, compose_config(verb, arguments), arguments)


def load(checkpoint: Path, *arguments: str) -> tuple[Translator, RunConfig]:
    return load_translator(called("translate", f"checkpoint={checkpoint}", *arguments))


def resolve_search(checkpoint: Path, *arguments: str) -> dict[str, Any]:
    translator, _ = load(checkpoint, *arguments)
    return vars(translator.search)


@pytest.mark.parametrize("verb", ["translate", "evaluate", "compare"])
@pytest.mark.parametrize(
    ("device", "has_bfloat16", "precision", "tokens"),
    [
        ("cuda", True, "bfloat16", 65_536),
        ("cuda", False, "float32", 65_536),
        ("cpu", True, "float32", 4096),
    ],
)
def test_precision_and_batches_suit_the_device(
    *,
    verb: str,
    device: str,
    has_bfloat16: bool,
    precision: str,
    tokens: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_bfloat16)
    model = "runs=[x,y]" if verb == "compare" else "checkpoint=x"

    def chosen(*arguments: str) -> tuple[str, int]:
        config, there = called(verb, model, *arguments), torch.device(device)
        return (
            suited_precision(config.precision, there),
            suited_batch_tokens(config.batch_tokens, there),
        )

    assert chosen() == (precision, tokens)
    assert chosen("precision=int8", "batch_tokens=7") == ("int8", 7)


def test_the_config_and_the_search_are_those_of_the_run(checkpoint: Path) -> None:
    translator, run = load(checkpoint, "batch_tokens=123")
    assert run == run_of(translator.model.config, **RUN)
    assert translator.batch_tokens == 123
    assert vars(translator.search) == TRAINED


@pytest.mark.parametrize(
    ("arguments", "search"),
    [
        # 5 and 1.0 are what conf/ has: they count, since the user gave them.
        (
            ["decoding.beam_size=5", "decoding.length_penalty=1.0"],
            TRAINED | {"beam_size": 5, "length_penalty": 1.0},
        ),
        (["decoding=greedy"], {"algorithm": "greedy", "beam_size": 1}),
        (
            ["decoding=beam", "decoding.min_length=2"],
            {"algorithm": "beam", "beam_size": 5, "min_length": 2},
        ),
    ],
)
def test_keys_change_the_search_and_a_name_replaces_it(
    checkpoint: Path, arguments: list[str], search: dict[str, Any]
) -> None:
    composed: Any = OmegaConf.to_container(compose_config("translate", ["checkpoint=x"]).decoding)
    # The limits depend on the text: they stay those of the run.
    limits = {key: TRAINED[key] for key in ("max_length_ratio", "max_length_offset")}
    assert resolve_search(checkpoint, *arguments) == composed | limits | search


def test_a_beam_size_makes_a_beam_of_a_run_that_is_greedy(tmp_path: Path) -> None:
    greedy = TRAINED | {"algorithm": "greedy", "beam_size": 1, "nbest": 1}
    path = written(tmp_path / "greedy.ckpt", RUN | {"decoding": greedy})
    assert resolve_search(path)["algorithm"] == "greedy"
    wide = resolve_search(path, "decoding.beam_size=4")
    assert (wide["algorithm"], wide["beam_size"]) == ("beam", 4)
    with pytest.raises(InputError, match=r"beam_size=4 has no effect"):
        resolve_search(path, "decoding.beam_size=4", "decoding.algorithm=greedy")


def test_alignment_uses_the_average_unless_a_head_was_guided(
    checkpoint: Path, tmp_path: Path
) -> None:
    def aligner(path: Path, *arguments: str) -> Aligner:
        return load(path, *arguments)[0].aligner

    guided = LOSS | {"alignment_weight": 0.05, "alignment_head": 1}
    learned = written(tmp_path / "guided.ckpt", RUN | {"loss": guided})
    assert aligner(checkpoint) == aligner(checkpoint, "alignment_head=null") == Aligner(None, 0.6)
    assert (
        aligner(learned)
        == aligner(learned, "alignment_head=0.1")
        == Aligner(HeadName("cross", 0, 1), 0.3)
    )
    assert aligner(learned, "alignment_head=1.0") == Aligner(HeadName("cross", 1, 0), 0.6)
    # Without a wish of the user's, the library reads it off as the verbs do.
    for path in (checkpoint, learned):
        assert Translator.load(path).aligner == aligner(path)
    assert Translator.load(learned, aligner=Aligner()).aligner == Aligner()
    assert aligner(learned, "alignment_threshold=1") == Aligner(HeadName("cross", 0, 1), 1.0)


def test_how_links_are_read_off_changes_no_translation(tmp_path: Path) -> None:
    guided = LOSS | {"alignment_weight": 0.05, "alignment_head": 1}
    path = written(tmp_path / "guided.ckpt", RUN | {"loss": guided})
    texts = [source for source, _ in PAIRS]

    def translations(*arguments: str) -> list[Translation]:
        return load(path, "decoding.coverage_penalty=5", *arguments)[0].translate(texts)

    expected = translations()
    assert translations("alignment_head=1.0") == translations("alignment_head=1.3") == expected
    # It is the guided head that says what was covered.
    aligned, plain = (
        Translator.load(path, search=search_config(coverage_penalty=5.0), aligner=aligner)
        for aligner in (None, Aligner())
    )
    assert aligned.translate(texts) == plain.translate(texts)
    mean = Translator(plain.model, plain.tokenizer, plain.search, plain.batch_tokens)
    assert mean.translate(texts) != plain.translate(texts)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        # As typed: a number of the config would make 0.10 the head 0.1, which is there.
        ("alignment_head=0.10", r"alignment_head=0\.10 does not exist"),
        ("alignment_head=cross.1.0", r"alignment_head=cross\.1\.0 is not a head; write LAYER"),
        ("alignment_threshold=0", r"alignment_threshold=0\.0 must be in \(0, 1\]"),
        ("decoding.beam_size=2.5", r"decoding\.beam_size=2\.5 must be a whole number"),
        ("decoding.beam_size=1", r"decoding\.nbest=2 is more than decoding\.beam_size=1"),
        ("device=gpu", "device=gpu cannot be used here"),
        ("heads_off=[cross.0.4]", r"'cross\.0\.4' is no head"),
        ("heads_off=[1.2]", "'1.2' is no head"),
        ("batch_tokens=0", "batch_tokens=0 must be at least 1"),
    ],
)
def test_refusals(checkpoint: Path, argument: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(checkpoint, argument)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("argument", "off"),
    [
        ("heads_off=null", []),
        ("heads_off=cross.1.2", ["cross.1.2"]),
        ("heads_off=[cross.1.2,encoder.0.3]", ["encoder.0.3", "cross.1.2"]),
    ],
)
def test_heads_are_off_that_the_user_names(checkpoint: Path, argument: str, off: list[str]) -> None:
    translator, _ = load(checkpoint, argument)
    assert list(map(str, heads_off(translator.model))) == off
