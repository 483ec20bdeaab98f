"""Which known key was probably meant by an unknown one."""

from omegaconf import DictConfig

from transformer.common.errors import did_you_mean

ELSEWHERE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("learning_rate", "max_lr"), ("optimizer.lr",)),
    **dict.fromkeys(("batch_size", "max_tokens"), ("data.batch_tokens", "batch_tokens")),
    **dict.fromkeys(("epochs", "max_epoch", "num_epochs"), ("trainer.max_epochs",)),
    **dict.fromkeys(("max_update", "train_steps", "steps", "updates"), ("trainer.max_steps",)),
    **dict.fromkeys(("update_freq", "accum_count"), ("trainer.accumulate_grad_batches",)),
    **dict.fromkeys(("clip_norm", "max_grad_norm"), ("trainer.gradient_clip_val",)),
    **dict.fromkeys(("gpus", "num_gpus", "devices"), ("trainer.devices", "device")),
    **dict.fromkeys(("gpu", "cuda", "device", "accelerator"), ("device", "trainer.accelerator")),
    **dict.fromkeys(("fp16", "bf16", "amp"), ("precision",)),
    **dict.fromkeys(("valid_steps", "eval_steps"), ("trainer.val_check_interval",)),
    **dict.fromkeys(("warmup_updates", "warmup_steps"), ("schedule.warmup",)),
    **dict.fromkeys(("beam", "num_beams"), ("decoding.beam_size",)),
    **dict.fromkeys(("lenpen", "len_penalty", "alpha"), ("decoding.length_penalty",)),
    **dict.fromkeys(("n_best", "num_return_sequences"), ("decoding.nbest",)),
    **dict.fromkeys(("layers", "enc_layers", "num_layers"), ("model.encoder_layers",)),
    "loss.alpha": ("loss.consistency_weight",),
    "dec_layers": ("model.decoder_layers",),
    **dict.fromkeys(("heads", "attention_heads", "nhead"), ("model.num_heads",)),
    **dict.fromkeys(("hidden_size", "embed_dim", "dim"), ("model.d_model",)),
    **dict.fromkeys(("ffn_embed_dim", "intermediate_size"), ("model.ffn_dim",)),
    **dict.fromkeys(("source_lang", "src"), ("data.source",)),
    **dict.fromkeys(("target_lang", "tgt"), ("data.target",)),
    **dict.fromkeys(("trainpref", "train_src"), ("data.train",)),
    **dict.fromkeys(("validpref", "valid", "dev"), ("data.validation",)),
    **dict.fromkeys(("save_dir", "output_dir", "save_model"), ("hydra.run.dir",)),
    **dict.fromkeys(
        ("resume", "restore_file", "train_from", "resume_from_checkpoint", "model_path"),
        ("checkpoint",),
    ),
}
"""Names of keys in other toolkits, by their last part; the first of our keys that exists counts."""


def nearest_key(key: str, config: DictConfig) -> str:
    """What the user may have meant, in parentheses; empty when nothing is near.

    First keys with the same last part, then names of other toolkits, then longer names, then
    similar ones.
    """
    known = known_keys(config)
    # Hydra's own key, which only ``train`` has.
    known += ["hydra.run.dir"] if "trainer" in config else []
    last = key.rpartition(".")[2].replace("-", "_").lower()
    same = [each for each in known if each.rpartition(".")[2] == last and each != key]
    same = [last] if last in same else same
    elsewhere = ELSEWHERE.get(key) or ELSEWHERE.get(last, ())
    same = same or [each for each in elsewhere if each in known][:1]
    same = same or [each for each in known if "." in key and each.startswith(f"{key}_")]
    if same:
        return f" (did you mean {' or '.join(same)}?)"
    return did_you_mean(key, known, cutoff=0.5)


def known_keys(config: DictConfig, prefix: str = "") -> list[str]:
    """Every key of a config, dotted."""
    keys = []
    for name in map(str, config):
        keys.append(f"{prefix}{name}")
        value = config._get_node(name)
        if isinstance(value, DictConfig):
            keys += known_keys(value, f"{prefix}{name}.")
    return keys
