"""A call becomes a config, or one line that helps."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig

from transformer.cli.arguments import (
    ELSEWHERE,
    check_overrides,
    config_folder,
    flags_and_overrides,
    help_text,
    known_keys,
    nearest_key,
    without_plus,
)
from transformer.cli.config import compose_config, with_experiment
from transformer.common.errors import InputError
from transformer.common.files import CONFIG_DIR


@pytest.mark.parametrize(
    ("verb", "overrides", "message"),
    [
        ("train", ["model.d_modle=64"], "unknown key model.d_modle (did you mean model.d_model?)"),
        # A key of another choice of its group.
        (
            "train",
            ["data=files", "optimizer.momentum=0.9"],
            "unknown key optimizer.momentum (it is a key of optimizer=muon)",
        ),
        # The default experiment leaves no key of its own optimizer behind.
        (
            "train",
            ["optimizer=adam", "optimizer.momentum=0.9"],
            "unknown key optimizer.momentum (it is a key of optimizer=muon)",
        ),
        ("train", ["data.train=[a"], "data.train=[a is not KEY=VALUE as Hydra reads it (no viable"),
        ("train", ["~decoding"], "'~decoding' is not of the form KEY=VALUE; no key can be removed"),
        # A group that the command does not have.
        ("translate", ["model=RUN"], "unknown key model (did you mean checkpoint?)"),
        ("evaluate", ["/"], "'/' is not of the form KEY=VALUE; a run is given as checkpoint=/"),
        ("train", ["loss=[r_drop,x]"], "loss=[r_drop,x] is a list; choose one, loss=NAME"),
        ("train", ["experiment=[pocket,x]"], "experiment=x is unknown; choose denoising or"),
        ("train", ["model=tiny,base"], "model=tiny,base: add --multirun to sweep over them"),
        ("evaluate", ["decoding=beam,greedy"], "decoding=beam,greedy: choose one"),
        ("translate", ["input=a,b"], "input=a,b: write 'input=[a,b]' for a list"),
        ("score", [], "score needs a value for checkpoint= and source="),
        # All that is wrong is named.
        (
            "train",
            ["model=tinny", "trainer=x"],
            "model=tinny is unknown (did you mean tiny?); choose base or big or small or "
            "student_small or student_tiny or tiny; "
            "also trainer=x is unknown; choose ",
        ),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_meant(
    verb: str, overrides: list[str], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        compose_config(verb, overrides)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_each_choice_of_a_sweep_is_checked() -> None:
    check_overrides("train", ["model=tiny,base"], sweep=True)
    with pytest.raises(InputError, match=r"^model=bose is unknown \(did you mean base\?\)"):
        check_overrides("train", ["model=tiny,bose"], sweep=True)


def test_the_help_of_a_recipe_shows_each_recipe() -> None:
    shown = help_text("recipe")
    for recipe in ("distill", "backtranslate"):
        assert f"# ==== recipe={recipe}" in shown
        assert f"# ==== recipe={recipe}" not in help_text("train")


def test_flags_may_stand_anywhere() -> None:
    for call, flags, overrides in (
        ("a=1,2 --multirun c=d", ["--multirun"], ["a=1,2", "c=d"]),
        ("a=b -c job --resolve ~c", ["-c", "job", "--resolve"], ["a=b", "~c"]),
        # Hydra would take the KEY=VALUE for what to show.
        ("--info a=b", ["--info=all"], ["a=b"]),
        ("--info config a=b", ["--info", "config"], ["a=b"]),
    ):
        assert flags_and_overrides(call.split()) == (flags, overrides)
    with pytest.raises(InputError, match="'--data=files' is not of the form KEY=VALUE; keys have"):
        flags_and_overrides(["seed=1", "--data=files"])
    with pytest.raises(InputError, match="--cfg/-c: invalid choice: 'seed=1'"):
        flags_and_overrides(["--cfg", "seed=1"])


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
    ("name", "devices", "strategy"),
    [("gpu", 1, "auto"), ("ddp", -1, "ddp"), ("fsdp", -1, "fsdp")],
)
def test_a_gpu_brings_its_settings(name: str, devices: int, strategy: str) -> None:
    config = compose_config("train", [f"trainer={name}"])
    trainer = config.trainer
    assert (trainer.accelerator, trainer.devices, trainer.strategy) == ("gpu", devices, strategy)
    assert (config.precision, trainer.precision, trainer.search_tokens) == ("auto", "auto", 65_536)
    assert (config.data.workers, config.loss.chunk) == (2, 32_768)
    changes = ["precision=32-true", "data.workers=0", "loss=r_drop"]
    config = compose_config("train", [*changes, f"trainer={name}"])
    assert (config.trainer.precision, config.data.workers) == ("32-true", 0)


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


def test_a_tokenized_corpus_has_its_own_metrics() -> None:
    corpus = "multi30k_tok"
    for overrides, tokenize in (
        ([f"data={corpus}", "experiment=multi30k_tiny"], "none"),
        ([f"data={corpus}", "~experiment"], "none"),
        # A recipe of stages reads its text from files.
        ([f"experiment={corpus}", "data.corpus=files"], "none"),
        ([f"experiment={corpus}", "data=multi30k"], "13a"),
        ([f"data={corpus}", "metrics=detokenized"], "13a"),
        ([f"data={corpus}", "metrics.tokenize=char"], "char"),
    ):
        assert compose_config("train", overrides).metrics.tokenize == tokenize


def test_run_directory_is_named_by_experiment_or_data() -> None:
    for overrides, name in (([], "pocket"), (["~experiment", "data=multi30k"], "multi30k")):
        with initialize_config_dir(str(config_folder()), version_base="1.3"):
            config = compose("train", with_experiment(overrides), return_hydra_config=True)
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


def test_a_plus_before_a_key_is_understood() -> None:
    assert without_plus("++optimizer.lr=1") == without_plus("optimizer.lr=1") == "optimizer.lr=1"
    # Of Hydra's own keys some are there, and others are not.
    assert without_plus("+hydra.run.dir=a") == "++hydra.run.dir=a"
    assert without_plus("hydra.run.dir=a") == "hydra.run.dir=a"


def test_keys_of_other_toolkits_are_understood() -> None:
    translate = known_keys(compose_config("translate", ["checkpoint=x"]))
    score = known_keys(compose_config("score", ["checkpoint=x", "source=y"]))
    train = [*known_keys(compose_config("train", [])), "hydra.run.dir"]
    assert {key for keys in ELSEWHERE.values() for key in keys} <= {*train, *translate, *score}
    for keys, key, meant in (
        (train, "optimizer.learning_rate", "optimizer.lr"),
        (train, "beam_size", "decoding.beam_size"),
        (train, "max_epochs", "trainer.max_epochs"),
        (train, "warmup-steps", "schedule.warmup"),
        (train, "trainer.seed", "seed"),
        (train, "max_length", "data.max_length or model.max_length"),
        (score, "reference", "target"),
        (translate, "beam", "decoding.beam_size"),
        (translate, "batch_size", "batch_tokens"),
    ):
        assert nearest_key(key, keys) == f" (did you mean {meant}?)"
    assert nearest_key("learning_rate", translate) == ""
