"""Which model a call means: one or an ensemble, its precision and its device."""

from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer
from tests.helpers.model.models import portable, tiny_transformer
from tests.unit.cli.test_load import RUN, called, written
from transformer.checkpoint.checkpoint import PORTABLE, write_payload
from transformer.cli.config import compose_config
from transformer.common.errors import InputError
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.device import find_device
from transformer.decoding.fingerprint import compute_fingerprint
from transformer.decoding.search.model_step import Ensemble
from transformer.interchange.translators import load_checkpoints, load_translator
from transformer.model.head_masks import heads_off
from transformer.model.layers.linear import Linear
from transformer.model.layers.quantization import Int8Linear, in_precision
from transformer.model.transformer import Transformer


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("run") / "x.ckpt", RUN)


def model(*arguments: str) -> Transformer | Ensemble:
    return load_translator(called("translate", *arguments))[0].ensemble


def test_a_list_of_checkpoints_is_an_ensemble(run: Path) -> None:
    assert isinstance(model(f"checkpoint={run}"), Transformer)
    assert isinstance(model(f"checkpoint=[{run}]"), Transformer)
    pair = model(f"checkpoint=[{run},{run}]")
    assert isinstance(pair, Ensemble)
    assert pair.averaging == "probability"
    assert len(set(pair.members)) == 2
    without = model(f"checkpoint=[{run},{run}]", "heads_off=[cross.1.2]")
    assert isinstance(without, Ensemble)
    for member in without.members:
        assert list(map(str, heads_off(member))) == ["cross.1.2"]
    veto = model(f"checkpoint=[{run},{run}]", "averaging=log_probability")
    assert isinstance(veto, Ensemble)
    assert veto.averaging == "log_probability"


def test_another_vocabulary_is_refused(run: Path, tmp_path: Path) -> None:
    config = tiny_tokenizer().config
    # As many pieces, but others: the size of the model does not tell.
    tokenizer = Tokenizer.train(config, lambda: [(b, a) for a, b in PAIRS[:3]])
    sizes = {
        "source_vocab_size": tokenizer.source_vocab_size,
        "target_vocab_size": tokenizer.target_vocab_size,
    }
    other = tiny_transformer(**sizes)
    payload: dict[str, Any] = {
        "state_dict": {f"model.{name}": weight for name, weight in other.state_dict().items()},
        PORTABLE: portable(other.config, tokenizer.to_state(), RUN),
    }
    write_payload(payload, tmp_path / "other.ckpt")
    with pytest.raises(InputError, match="has another vocabulary than") as caught:
        load_checkpoints([run, tmp_path / "other.ckpt"])
    assert str(tmp_path / "other.ckpt") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["checkpoint=[]"], r"checkpoint=\[\]: translate takes one checkpoint or more"),
        (["checkpoint=[RUN,nowhere]"], "nowhere does not exist"),
        (["checkpoint=[RUN]", "averaging=probability"], "averaging=probability is of ensembles"),
        (["checkpoint=RUN", "precision=int4"], "precision='int4' must be float32 or bfloat16 or"),
        (["checkpoint=RUN", "precision=int8", "device=meta"], "precision=int8 computes on a CPU"),
    ],
)
def test_refusals(run: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        model(*(argument.replace("RUN", str(run)) for argument in arguments))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("names", ["RUN", "[RUN,RUN]"])
def test_precisions(run: Path, names: str) -> None:
    checkpoint = "checkpoint=" + names.replace("RUN", str(run))
    low = model(checkpoint, "precision=bfloat16")
    assert {weight.dtype for weight in low.parameters()} == {torch.bfloat16}
    exact = model(checkpoint)
    assert {weight.dtype for weight in exact.parameters()} == {torch.float32}
    packed = model(checkpoint, "precision=int8")
    kinds = [type(module) for module in packed.modules()]
    assert Linear not in kinds
    linear = sum(isinstance(module, Linear) for module in exact.modules())
    assert kinds.count(Int8Linear) == linear > 0


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_the_fingerprint_knows_every_weight(precision: Any) -> None:
    def twin_model() -> Transformer:
        return tiny_transformer(tie_embeddings="none", encoder_layers=1, decoder_layers=1)

    def fingerprint(change: str | None) -> str:
        twin = twin_model()
        with torch.no_grad():
            for name, weight in twin.named_parameters():
                if name == change:
                    weight.view(-1)[-1] += 0.5
        return compute_fingerprint(in_precision(twin, precision), tiny_tokenizer())

    names = [name for name, _ in twin_model().named_parameters()]
    prints = {fingerprint(name) for name in [None, *names]}
    assert fingerprint(None) in prints
    assert len(prints) == len(names) + 1


def test_cuda_is_the_gpu_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert find_device("cuda") == torch.device("cuda:0")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert find_device("cuda") == torch.device("cuda:3")
    assert find_device("cuda:1") == torch.device("cuda:1")
    assert find_device("cpu") == torch.device("cpu")


def test_only_verbs_of_translators_take_several_checkpoints() -> None:
    for verb, more in {"translate": [], "evaluate": [], "score": ["source=s", "target=t"]}.items():
        config = compose_config(verb, ["checkpoint=[a,b]", "averaging=log_probability", *more])
        assert OmegaConf.to_container(config.checkpoint) == ["a", "b"]
    for verb in ("average", "export", "attention", "heads"):
        with pytest.raises(InputError, match=f"{verb} takes one checkpoint, and no list"):
            compose_config(verb, ["checkpoint=[a,b]"])
