"""Which model, search, precision and device a call means."""

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
from transformer.common.files import CONFIG_DIR
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.alignment import Aligner
from transformer.decoding.device import find_device, suited_batch_tokens, suited_precision
from transformer.decoding.fingerprint import compute_fingerprint
from transformer.decoding.search.model_step import Ensemble
from transformer.decoding.translator import Translator
from transformer.interchange.translators import load_checkpoints, load_translator
from transformer.model.head_masks import HeadName, heads_off
from transformer.model.layers.linear import Linear
from transformer.model.layers.quantization import Int8Linear, in_precision
from transformer.model.transformer import Transformer
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
    "label_smoothing": 0.1,
    "chunk": 512,
    "bfloat16": False,
    "alignment_weight": 0.0,
    "alignment_layer": None,
    "alignment_head": 0,
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


@pytest.mark.parametrize(
    ("device", "has_bfloat16", "precision", "tokens"),
    [
        ("cuda", True, "bfloat16", 65_536),
        ("cuda", False, "float32", 65_536),
        ("cpu", True, "float32", 4096),
    ],
)
def test_precision_and_batches_suit_the_device(
    device: str,
    has_bfloat16: bool,
    precision: str,
    tokens: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_bfloat16)
    kind = torch.device(device)
    for verb, systems in (("translate", "checkpoint=x"), ("compare", "runs=[x,y]")):
        default = called(verb, systems)
        assert suited_precision(default.precision, kind) == precision
        assert suited_batch_tokens(default.batch_tokens, kind) == tokens
        named = called(verb, systems, "precision=int8", "batch_tokens=7")
        assert suited_precision(named.precision, kind) == "int8"
        assert suited_batch_tokens(named.batch_tokens, kind) == 7


def test_cuda_is_the_gpu_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert find_device("cuda") == torch.device("cuda:0")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert find_device("cuda") == torch.device("cuda:3")
    assert find_device("cuda:1") == torch.device("cuda:1")


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
    translator, _ = load(checkpoint, *arguments)
    assert vars(translator.search) == composed | limits | search


def test_the_limits_of_an_own_choice_count(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "decoding").mkdir()
    lines = "defaults: [beam, _self_]\nbeam_size: 8\nmax_length_offset: 20\n"
    (tmp_path / "decoding" / "mine.yaml").write_text(lines)
    monkeypatch.setenv(CONFIG_DIR, str(tmp_path))
    search = load(checkpoint, "decoding=mine")[0].search
    limits = (TRAINED["max_length_ratio"], 20)
    assert (search.max_length_ratio, search.max_length_offset) == limits
    assert search.beam_size == 8


def test_a_beam_size_makes_a_beam_of_a_run_that_is_greedy(tmp_path: Path) -> None:
    greedy = TRAINED | {"algorithm": "greedy", "beam_size": 1, "nbest": 1}
    path = written(tmp_path / "greedy.ckpt", RUN | {"decoding": greedy})
    assert load(path)[0].search.algorithm == "greedy"
    wide = load(path, "decoding.beam_size=4")[0].search
    assert (wide.algorithm, wide.beam_size) == ("beam", 4)


def test_alignment_uses_the_average_unless_a_head_was_guided(
    checkpoint: Path, tmp_path: Path
) -> None:
    def aligner(path: Path, *arguments: str) -> Aligner:
        return load(path, *arguments)[0].aligner

    guided = LOSS | {"alignment_weight": 0.05, "alignment_head": 1}
    learned = written(tmp_path / "guided.ckpt", RUN | {"loss": guided})
    assert aligner(checkpoint) == aligner(checkpoint, "alignment_head=null") == Aligner(None, 0.6)
    default = Aligner(HeadName("cross", 0, 1), 0.3)
    assert aligner(learned) == aligner(learned, "alignment_head=0.1") == default
    assert aligner(learned, "alignment_head=1.0") == Aligner(HeadName("cross", 1, 0), 0.6)
    # The library has the same default.
    for path in (checkpoint, learned):
        assert Translator.load(path).aligner == aligner(path)
    assert Translator.load(learned, aligner=Aligner()).aligner == Aligner()
    assert aligner(learned, "alignment_threshold=1") == Aligner(HeadName("cross", 0, 1), 1.0)


def test_how_links_are_read_off_changes_no_translation(tmp_path: Path) -> None:
    guided = LOSS | {"alignment_weight": 0.05, "alignment_head": 1}
    path = written(tmp_path / "guided.ckpt", RUN | {"loss": guided})
    texts = [source for source, _ in PAIRS]
    search = search_config(coverage_penalty=5.0)
    guided_head = Translator.load(path, search=search)
    average = Translator.load(path, search=search, aligner=Aligner())
    # The guided head tells what was covered, whichever head the links are read off.
    expected = guided_head.translate(texts)
    assert average.translate(texts) == expected
    mean = Translator(average.model, average.tokenizer, search, average.batch_tokens)
    assert mean.translate(texts) != expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        # As typed: a number of the config would make 0.10 the head 0.1, which is there.
        (["alignment_head=0.10"], r"alignment_head=0\.10 does not exist"),
        (["alignment_head=cross.1.0"], r"alignment_head=cross\.1\.0 is not a head"),
        (["decoding.beam_size=1"], r"decoding\.nbest=2 is more than decoding\.beam_size=1"),
        (["device=gpu"], "device=gpu cannot be used here"),
        (["heads_off=[cross.0.4]"], r"'cross\.0\.4' is no head"),
        (["checkpoint=[]"], r"checkpoint=\[\]: translate takes one checkpoint or more"),
        (["checkpoint=[RUN,nowhere]"], "nowhere does not exist"),
        (["checkpoint=[RUN]", "averaging=probability"], "averaging=probability is of ensembles"),
        (["precision=int8", "device=meta"], "precision=int8 computes on a CPU"),
    ],
)
def test_refusals(checkpoint: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(checkpoint, *(argument.replace("RUN", str(checkpoint)) for argument in arguments))
    assert "\n" not in str(caught.value)


def test_a_list_of_checkpoints_is_an_ensemble(checkpoint: Path) -> None:
    assert isinstance(load(checkpoint, f"checkpoint=[{checkpoint}]")[0].ensemble, Transformer)
    pair = load(checkpoint, f"checkpoint=[{checkpoint},{checkpoint}]")[0].ensemble
    assert isinstance(pair, Ensemble)
    assert pair.averaging == "probability"
    assert len(set(pair.members)) == 2
    keys = ["heads_off=[cross.1.2,encoder.0.3]", "averaging=log_probability"]
    pair = load(checkpoint, f"checkpoint=[{checkpoint},{checkpoint}]", *keys)[0].ensemble
    assert isinstance(pair, Ensemble)
    assert pair.averaging == "log_probability"
    for member in pair.members:
        assert list(map(str, heads_off(member))) == ["encoder.0.3", "cross.1.2"]
    with pytest.raises(InputError, match="average takes one checkpoint, and no list"):
        compose_config("average", ["checkpoint=[a,b]"])


def test_another_vocabulary_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    # As many pieces, but others: the size of the model does not tell.
    tokenizer = Tokenizer.train(tiny_tokenizer().config, lambda: [(b, a) for a, b in PAIRS[:3]])
    other = tiny_transformer(
        source_vocab_size=tokenizer.source_vocab_size, target_vocab_size=tokenizer.target_vocab_size
    )
    payload: dict[str, Any] = {
        "state_dict": {f"model.{name}": weight for name, weight in other.state_dict().items()},
        PORTABLE: portable(other.config, tokenizer.to_state(), RUN),
    }
    write_payload(payload, tmp_path / "other.ckpt")
    with pytest.raises(InputError, match=r"other\.ckpt has another vocabulary than"):
        load_checkpoints([checkpoint, tmp_path / "other.ckpt"])


def test_precisions(checkpoint: Path) -> None:
    def members(precision: str) -> Transformer | Ensemble:
        names = f"checkpoint=[{checkpoint},{checkpoint}]"
        return load(checkpoint, names, f"precision={precision}")[0].ensemble

    assert {weight.dtype for weight in members("bfloat16").parameters()} == {torch.bfloat16}
    exact = members("float32")
    assert {weight.dtype for weight in exact.parameters()} == {torch.float32}
    kinds = [type(module) for module in members("int8").modules()]
    assert Linear not in kinds
    linear = sum(isinstance(module, Linear) for module in exact.modules())
    assert kinds.count(Int8Linear) == linear > 0


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_the_fingerprint_knows_every_weight(precision: Any) -> None:
    def model_and_names(change: str | None = None) -> tuple[Transformer, list[str]]:
        model = tiny_transformer(tie_embeddings="none", encoder_layers=1, decoder_layers=1)
        weights = dict(model.named_parameters())
        with torch.no_grad():
            if change is not None:
                weights[change].view(-1)[-1] += 0.5
        return model, list(weights)

    names = model_and_names()[1]
    prints = {
        compute_fingerprint(in_precision(model_and_names(name)[0], precision), tiny_tokenizer())
        for name in (None, None, *names)
    }
    assert len(prints) == len(names) + 1
