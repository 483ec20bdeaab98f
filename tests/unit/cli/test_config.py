"""A call becomes a config, or one line that helps."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from transformer.cli.arguments import (
    ELSEWHERE,
    choices,
    config_folder,
    flags_and_overrides,
    known_keys,
    nearest_key,
    without_plus,
)
from transformer.cli.config import compose_config, with_experiment
from transformer.common.errors import InputError
from transformer.common.files import CONFIG_DIR
from transformer.common.schema import typed
from transformer.settings.metrics import MetricsConfig


@pytest.mark.parametrize(
    ("verb", "override", "message"),
    [
        ("train", "model.d_modle=64", "unknown key model.d_modle (did you mean model.d_model?)"),
        ("train", "data.train=[a", "data.train=[a is not KEY=VALUE as Hydra reads it (no viable"),
        ("train", "~decoding", "'~decoding' is not of the form KEY=VALUE; no key can be removed; "),
        # Groups that the verb does not have.
        ("translate", "model=RUN", "unknown key model (did you mean checkpoint?)"),
        ("text", "README.md", "'README.md' is not of the form KEY=VALUE"),
        ("evaluate", "/", "'/' is not of the form KEY=VALUE; a run is given as checkpoint=/"),
        ("train", "loss=[r_drop,x]", "loss=[r_drop,x] is a list; choose one, loss=NAME"),
        ("train", "experiment=[pocket,x]", "experiment=x is unknown; choose denoising or"),
        ("train", "metrics=tokenised", "metrics=tokenised is unknown (did you mean tokenized?);"),
        ("train", "model=tiny,base", "model=tiny,base: add --multirun to sweep over them, choose"),
        ("evaluate", "decoding=beam,greedy", "decoding=beam,greedy: choose one"),
        ("translate", "input=a,b", "input=a,b: write 'input=[a,b]' for a list, \"input='a,b'\""),
        ("translate", "format=text", "translate needs a value for checkpoint="),
        ("score", [], "score needs a value for checkpoint= and source="),
        # All that is wrong is said at once.
        (
            "train",
            ["model=tinny", "trainer=x"],
            "model=tinny is unknown (did you mean tiny?); choose base or big or small or "
            "student_small or student_tiny or tiny; "
            "also trainer=x is unknown; choose ",
        ),
        (
            "translate",
            ["checkpoint=RUN", "nbest=9", "format=json", "beam=9"],
            "unknown key nbest (did you mean decoding.nbest?); also "
            "unknown key beam (did you mean decoding.beam_size?)",
        ),
    ],
)
def test_a_wrong_argument_says_what_was_meant(
    verb: str, override: str | list[str], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        compose_config(verb, override if isinstance(override, list) else [override])
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert verb != "text" or "checkpoint=" not in str(caught.value)


def test_an_unknown_choice_names_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"^data=nothing is unknown; choose ") as caught:
        compose_config("train", ["data=nothing"])
    for file in (config_folder() / "data").glob("*.yaml"):
        assert (file.stem in str(caught.value)) != (file.stem == "base")


@pytest.mark.parametrize(
    ("call", "flags", "overrides"),
    [
        ("a=1,2 --multirun c=d", ["--multirun"], ["a=1,2", "c=d"]),
        ("a=b -c job --resolve ~c", ["-c", "job", "--resolve"], ["a=b", "~c"]),
        # Hydra would take the KEY=VALUE for what to show.
        ("--info a=b", ["--info=all"], ["a=b"]),
        ("a=b -i", ["--info=all"], ["a=b"]),
        ("--info config a=b", ["--info", "config"], ["a=b"]),
        ("", [], []),
    ],
)
def test_flags_may_stand_anywhere(call: str, flags: list[str], overrides: list[str]) -> None:
    assert flags_and_overrides(call.split()) == (flags, overrides)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("seed=1 --data=files", "'--data=files' is not of the form KEY=VALUE; keys have no dash"),
        ("--multi", "'--multi' is not of the form KEY=VALUE; keys have no dash"),
        ("seed=1 --cfg", "--cfg/-c: expected one arg"),
        ("--cfg seed=1", "--cfg/-c: invalid choice: 'seed=1'"),
    ],
)
def test_a_wrong_flag_is_one_line(call: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        flags_and_overrides(call.split())
    assert str(caught.value).startswith(says)


def test_the_experiment_of_the_corpus_and_the_keys_of_the_call() -> None:
    config = compose_config("train", ["data=files", "model=base", "~experiment"])
    assert (config.data.corpus, config.model.num_heads) == ("files", 8)
    assert config.trainer.precision == config.precision  # interpolations are resolved
    pocket = compose_config("train", ["seed=7"])
    assert (pocket.data.seed, pocket.tokenizer.vocab_size) == (7, 4000)
    # What the user says goes over both.
    chosen = compose_config("train", ["tokenizer.vocab_size=99", "experiment=multi30k_tiny"])
    assert (chosen.data.corpus, chosen.tokenizer.vocab_size) == ("multi30k", 99)


@pytest.mark.parametrize(
    ("trainer", "devices", "strategy"),
    [("gpu", 1, "auto"), ("ddp", -1, "ddp"), ("fsdp", -1, "fsdp")],
)
def test_a_gpu_brings_its_settings(trainer: str, devices: int, strategy: str) -> None:
    config = compose_config("train", [f"trainer={trainer}"])
    given = config.trainer
    assert (given.accelerator, given.devices, given.strategy) == ("gpu", devices, strategy)
    assert (config.precision, given.precision, given.search_tokens) == ("auto", "auto", 65_536)
    assert (config.data.workers, config.loss.chunk) == (2, 32_768)
    changes = ["precision=32-true", "data.workers=0", "loss.chunk=1", "trainer.search_tokens=9"]
    config = compose_config("train", [*changes, f"trainer={trainer}", "loss=r_drop"])
    given = config.trainer
    assert (given.precision, config.loss.consistency) == ("32-true", "r_drop")
    assert (config.data.workers, config.loss.chunk, given.search_tokens) == (0, 1, 9)


def test_a_corpus_brings_its_experiment() -> None:
    for corpus, vocab_size in (("tanaka_enja", 8000), ("multi30k", 10000)):
        by_corpus = compose_config("train", [f"data={corpus}"])
        assert by_corpus == compose_config("train", [f"experiment={corpus}"])
        assert by_corpus.tokenizer.vocab_size == vocab_size
    assert by_corpus == compose_config("train", ["experiment=multi30k_tiny"])
    assert with_experiment(["--cfg=job", "data=tanaka_enja"])[2:] == ["experiment=tanaka_enja"]
    assert with_experiment(["data=files"]) == ["data=files"]
    # A sweep over corpora has no one experiment.
    for corpora in ("pocket,multi30k_tok", "choice(pocket,multi30k_tok)"):
        with pytest.raises(InputError, match=r"sweep over the experiments, --multirun experiment="):
            with_experiment(["--multirun", f"data={corpora}"])
        named = ["--multirun", f"data={corpora}", "experiment=pocket"]
        assert with_experiment(named) == named


@pytest.mark.parametrize("corpus", ["multi30k_tok", "tanaka_enja"])
def test_a_tokenized_corpus_has_its_own_metrics(corpus: str) -> None:
    for other in ("experiment=multi30k_tiny", "~experiment"):
        config = compose_config("train", [f"data={corpus}", other])
        assert (config.data.corpus, config.metrics.tokenize) == (corpus, "none")
    # A recipe of stages reads its text from files.
    files = compose_config("train", [f"experiment={corpus}", "data.corpus=files"])
    assert files.metrics.tokenize == "none"
    raw = compose_config("train", [f"experiment={corpus}", "data=multi30k"])
    assert raw.metrics.tokenize == "13a"
    given = compose_config("train", [f"data={corpus}", "metrics=detokenized"])
    assert given.metrics.tokenize == "13a" and given.metrics.choose == "bleu"
    given = compose_config("train", [f"data={corpus}", "metrics.tokenize=char"])
    assert given.metrics.tokenize == "char"


def test_the_metrics_of_no_corpus_are_for_any() -> None:
    for name in (name for name in choices("metrics") if name not in choices("data")):
        group = compose_config("train", ["data=multi30k_tok", f"metrics={name}"]).metrics
        config = typed(MetricsConfig, OmegaConf.to_container(group), "metrics")
        assert config.choose in config.validated and set(config.validated) <= set(config.tested)


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "pocket"),
        (["experiment=multi30k_tok"], "multi30k_tok"),
        (["data=files"], "files"),
        (["~experiment", "data=multi30k"], "multi30k"),
    ],
)
def test_run_directory_is_named_by_experiment_or_data(overrides: list[str], name: str) -> None:
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config = compose("train", overrides, return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    assert config.hydra.run.dir.startswith(f"runs/{name}/2")


def test_a_folder_of_the_user_adds_choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "it's mine"
    (folder / "loss").mkdir(parents=True)
    (folder / "loss" / "soft.yaml").write_text("defaults: [label_smoothed]\nlabel_smoothing: 0.3\n")
    monkeypatch.setenv(CONFIG_DIR, str(folder))
    assert compose_config("train", ["loss=soft"]).loss.label_smoothing == 0.3
    (folder / "loss" / "r_drop.yaml").touch()
    with pytest.raises(InputError, match=r"r_drop\.yaml has the name of a choice of conf/"):
        compose_config("train", ["loss=soft"])
    monkeypatch.setenv(CONFIG_DIR, str(tmp_path / "gone"))
    with pytest.raises(InputError, match=r"--config-dir=.*gone is no folder"):
        compose_config("train", [])


@pytest.mark.parametrize(
    ("argument", "read"),
    [
        ("++optimizer.lr=1", "optimizer.lr=1"),
        ("optimizer.lr=1", "optimizer.lr=1"),
        # Of Hydra's own keys some are there, and others are not.
        ("+hydra.run.dir=a", "++hydra.run.dir=a"),
        ("hydra.run.dir=a", "hydra.run.dir=a"),
    ],
)
def test_a_plus_before_a_key_is_understood(argument: str, read: str) -> None:
    assert without_plus(argument) == read


@pytest.fixture(scope="module")
def train() -> DictConfig:
    return compose_config("train", [])


@pytest.fixture(scope="module")
def translate() -> DictConfig:
    return compose_config("translate", ["checkpoint=x"])


def test_what_other_toolkits_say_is_a_key_here(train: DictConfig, translate: DictConfig) -> None:
    evaluate = compose_config("evaluate", ["checkpoint=x"])
    known = {"hydra.run.dir"}.union(*map(known_keys, (train, translate, evaluate)))
    assert {key for keys in ELSEWHERE.values() for key in keys} <= known
    # A name of our own needs no translation, but where a verb lacks it.
    assert {name for name in ELSEWHERE if name in known} <= {"device", "metrics", "model"}


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("optimizer.learning_rate", "optimizer.lr"),
        ("beam_size", "decoding.beam_size"),
        ("max_epochs", "trainer.max_epochs"),
        ("warmup-steps", "schedule.warmup"),
        ("model.layers", "model.encoder_layers"),
        ("trainer.seed", "seed"),
        ("max_length", "data.max_length or model.max_length"),
        ("callbacks.ema", "callbacks.ema_decay"),
        ("save_dir", "hydra.run.dir"),
    ],
)
def test_a_key_of_train_is_found(key: str, meant: str, train: DictConfig) -> None:
    assert nearest_key(key, [*known_keys(train), "hydra.run.dir"]) == f" (did you mean {meant}?)"


def test_a_key_of_translate_is_its_own(translate: DictConfig) -> None:
    own = {"beam": "decoding.beam_size", "batch_size": "batch_tokens", "gpus": "device"}
    for key, meant in own.items():
        assert nearest_key(key, known_keys(translate)) == f" (did you mean {meant}?)"
    assert nearest_key("learning_rate", known_keys(translate)) == ""
