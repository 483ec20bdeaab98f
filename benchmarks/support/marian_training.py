"""Train Hugging Face's Marian from scratch on the batches of a run of ours, in a plain loop.

``python -m benchmarks.support.marian_training FOLDER KEY=VALUE… [marian.KEY=VALUE…]``: keys of our
run say text, subwords, size, tokens of a batch, updates and validations; ``Settings`` are Marian's.
Killed, it goes on from the last validation. It validates by ``generate`` and keeps the best
weights, with which it translates the test set at the end.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import seed_everything
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GenerationConfig, MarianMTModel
from transformers.optimization import get_inverse_sqrt_schedule

from benchmarks.support.marian_twin import logits, marian_config
from benchmarks.support.peer import Outcome, Text, own_and_ours, write_outcome
from transformer.common.files import written_whole
from transformer.data.batching.batch import Batch, pad_source
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import BOS, EOS, PAD

SENTENCES = 64
"""Of a batch that is translated, sorted by length."""


@dataclass(frozen=True)
class Settings:
    """Of Marian, whose documentation has none for a model from scratch.

    These are those of Wu et al. 2021 for a model of this size on this text
    (benchmarks/results/README.md), and the norm to which ``transformers.Trainer`` clips gradients.
    """

    learning_rate: float = 5e-3
    warmup: int = 2000
    dropout: float = 0.3
    label_smoothing: float = 0.1
    max_grad_norm: float = 1.0
    num_beams: int = 5


def build(config: RunConfig, settings: Settings, vocabulary: int) -> Any:
    """A model of the size of ours, with weights as Marian draws them."""
    sizes = replace(
        config.model,
        source_vocab_size=vocabulary,
        target_vocab_size=vocabulary,
        dropout=settings.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
    )
    model = MarianMTModel(marian_config(sizes))
    model.generation_config = GenerationConfig.from_model_config(model.config)
    # They are no words.
    model.final_logits_bias[:, [PAD, BOS]] = -1e4
    return model


class Training:
    """The loop and its state."""

    def __init__(self, folder: Path, text: Text, settings: Settings) -> None:
        self.folder = folder
        self.text = text
        self.settings = settings
        self.config = text.config
        seed_everything(self.config.seed, verbose=False)
        self.model = build(self.config, settings, text.tokenizer.target_vocab_size)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=settings.learning_rate,
            betas=(0.9, 0.98),
            eps=1e-8,
            weight_decay=0.0,
        )
        self.schedule = get_inverse_sqrt_schedule(self.optimizer, settings.warmup)
        self.validations: list[tuple[int, float]] = []
        self.done = 0
        self.random: Tensor | None = None

    @property
    def parameters(self) -> int:
        """Those that learn."""
        return sum(one.numel() for one in self.model.parameters() if one.requires_grad)

    def train(self) -> None:
        """To the last update, from the last validation."""
        self.resume()
        last = self.config.trainer.max_steps
        every = self.config.trainer.val_check_interval
        for batch in self.batches():
            if self.done >= last:
                break
            if self.random is not None:
                # Not before: whoever asks for the first batch draws a number.
                torch.set_rng_state(self.random)
                self.random = None
            self.model.train()
            self.update(batch)
            self.done += 1
            if self.done % every == 0 or self.done == last:
                self.validate()

    def batches(self) -> Iterator[Batch]:
        """Those of our run that are not done yet."""
        for update in islice(self.text.task.data.train_dataloader(), self.done, None):
            (batch,) = update.batches
            yield batch

    def update(self, batch: Batch) -> None:
        """One."""
        loss = F.cross_entropy(
            logits(self.model, batch).flatten(0, 1),
            batch.target_output.flatten(),
            ignore_index=PAD,
            label_smoothing=self.settings.label_smoothing,
        )
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.max_grad_norm)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()

    def validate(self) -> None:
        """Translate the validation text; keep the weights if they are the best, and the state."""
        score = round(self.text.bleu(self.translate("validation")), 2)
        best = max((bleu for _, bleu in self.validations), default=-1.0)
        self.validations.append((self.done, score))
        if score > best:
            self.save("best.pt", self.model.state_dict())
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "random": torch.get_rng_state(),
            "validations": json.dumps(self.validations),
            "done": self.done,
        }
        self.save("last.pt", state)
        print(f"update {self.done}: BLEU {score:.2f}", flush=True)

    def save(self, name: str, state: dict[str, Any]) -> None:
        """A file that is whole or as it was."""
        with written_whole(self.folder / name) as part:
            torch.save(state, part)

    def resume(self) -> None:
        """From the last validation, if there was one."""
        file = self.folder / "last.pt"
        if not file.exists():
            return
        state = torch.load(file, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.random = state["random"]
        self.validations = [(updates, bleu) for updates, bleu in json.loads(state["validations"])]
        self.done = state["done"]

    def test(self) -> Outcome:
        """Translate the test set with the best weights, and score it."""
        self.model.load_state_dict(torch.load(self.folder / "best.pt", weights_only=True))
        hypotheses = self.translate("test")
        lines = "".join(f"{line}\n" for line in hypotheses)
        (self.folder / "test.hyp").write_text(lines, "utf-8")
        scores, signatures = self.text.scores(hypotheses, "test")
        return Outcome(self.validations, self.parameters, scores, signatures)

    @torch.inference_mode()
    def translate(self, split: str) -> list[str]:
        """Beam search; sources as long as each other are in one batch."""
        self.model.eval()
        tokenizer = self.text.tokenizer
        sources = tokenizer.encode_source([source for source, _ in self.text.pairs(split)])
        order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
        found: list[list[int]] = [[] for _ in sources]
        for start in range(0, len(order), SENTENCES):
            indices = order[start : start + SENTENCES]
            source = pad_source([sources[index] for index in indices])
            longest = max(self.config.decoding.limit(len(sources[index])) + 1 for index in indices)
            rows = self.model.generate(
                source,
                attention_mask=(source != PAD).long(),
                max_new_tokens=longest,
                num_beams=self.settings.num_beams,
                early_stopping=True,
                do_sample=False,
            )
            for index, row in zip(indices, rows.tolist(), strict=True):
                found[index] = [piece for piece in row if piece not in (PAD, BOS, EOS)]
        return tokenizer.decode_target(found)


def main(arguments: Sequence[str]) -> None:
    """Train, test, and write the outcome."""
    folder = Path(arguments[0])
    own, ours = own_and_ours(arguments[1:], "marian")
    types = {name: type(value) for name, value in vars(Settings()).items()}
    if unknown := set(own) - set(types):
        raise SystemExit(f"marian.{min(unknown)}: no such setting; it has {', '.join(types)}")
    settings = Settings(**{name: types[name](value) for name, value in own.items()})
    folder.mkdir(parents=True, exist_ok=True)
    training = Training(folder, Text(ours), settings)
    training.train()
    write_outcome(folder, training.test())


if __name__ == "__main__":
    main(sys.argv[1:])
