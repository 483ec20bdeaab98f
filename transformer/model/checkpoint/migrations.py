"""Formats of the checkpoint: what each added, so that a file of an older one opens as it was meant.

It knows plain values only, and not what reads them.
"""

from typing import Any

FORMAT = 8
"""Of the portable part, as it is written; a reader refuses a newer one."""

MODEL_2 = {
    "num_kv_heads": None,
    "head_dim": None,
    "query_key_norm": False,
    "layer_drop": 0.0,
    "norm": "layer",
    "relative_buckets": 32,
    "relative_max_distance": 128,
    "share_layers": "none",
    "sdpa_backend": "any",
    "pattern": "full",
    "decoder_pattern": None,
    "window": 64,
    "global_tokens": 1,
    "random_blocks": 2,
    "random_block_size": 16,
    "pattern_seed": 1,
}
LOSS_2 = {"alignment_weight": 0.0, "alignment_layer": None, "alignment_head": 0}

DECODING_3 = {
    "length_penalty_form": "wu",
    "coverage_penalty": 0.0,
    "no_repeat_ngram": 0,
    "eos_threshold": 0.0,
    "groups": 1,
    "diversity": 0.0,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "epsilon": 0.0,
    "seed": 1,
}
DECODING_4 = {"stopping": "full", "candidates": 1, "candidates_by": "sampling", "utility": "chrf"}

DATA_5 = {
    "corpora": None,
    "temperature": None,
    "target_tag": False,
    "documents": None,
    "document_key": None,
    "prepare_workers": None,
    "streaming": False,
    "buffer": 100_000,
}
RECOVERY_5 = {"explosion": 5.0, "skips": 10, "returns": 3, "lr_factor": 0.5}

MODEL_6 = {"source_token_dropout": 0.0, "target_token_dropout": 0.0}
LOSS_6 = {"consistency": "none", "consistency_weight": 0.0, "cut": 0.0}
METRICS_6 = {"tokenize": "13a", "lowercase": False}

DATA_8 = {"max_line": 1_000_000, "max_left_out": 1.0}

GROUPS = (
    *("data", "tokenizer", "model", "loss", "optimizer", "schedule", "recovery", "trainer"),
    *("callbacks", "logger", "decoding", "metrics"),
)
"""Of the config of every run."""

ADDED: dict[int, dict[str, dict[str, Any]]] = {
    2: {"model": MODEL_2, "loss": LOSS_2, "data": {"alignment": None}},
    3: {"model": {}, "decoding": DECODING_3},
    4: {"model": {}, "decoding": DECODING_4},
    5: {
        "model": {},
        "data": DATA_5,
        "recovery": RECOVERY_5,
        "callbacks": {"save_interval": 1000},
    },
    6: {"model": MODEL_6, "loss": LOSS_6, "metrics": METRICS_6},
    7: {"model": {}},
    8: {"model": {}, "data": DATA_8},
}
"""For each format, the keys that came with it, by group, and the values that change nothing."""

ADDED_AT_ROOT: dict[int, dict[str, Any]] = {
    2: {"task": "translation"},
    5: {"objective": None, "gradient_checkpointing": False, "resume_check": None},
    6: {"test": True, "finetune_from": None},
}
"""Likewise, the keys outside of the groups."""


def as_meant(config: dict[str, Any]) -> dict[str, Any]:
    """The config of a run, of any format, without what nothing read: the beam of sampling."""
    decoding = config.get("decoding", {})
    if decoding.get("algorithm") != "sampling":
        return config
    return config | {"decoding": decoding | {"beam_size": 1}}


def upgraded(portable: dict[str, Any]) -> dict[str, Any]:
    """The portable part in today's format; values that the file has stay."""
    if "config" in portable:
        portable = portable | {"config": as_meant(portable["config"])}
    if portable["format"] == FORMAT:
        return portable
    model, config = portable["model"], portable["config"]
    for number in range(portable["format"] + 1, FORMAT + 1):
        model = ADDED[number]["model"] | model
        config = ADDED_AT_ROOT.get(number, {}) | config
        for group, values in ADDED[number].items():
            config = config | {group: values | config.get(group, {})}
    return portable | {"format": FORMAT, "model": model, "config": config}
