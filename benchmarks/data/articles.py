"""Made-up articles with summaries, and questions on them with their answers, in JSONL.

    python -m benchmarks.data.articles FOLDER [--articles 10000] [--seed 1]

An article has a lead sentence, which names an event and a building, and four facts in sentences of
various wordings, in any order, among sentences that say nothing: who, how many, where and when.
Some sentences have persons, numbers, towns and days of other matters. A summary has all four facts
in a fixed wording, so that no part of the article is one. Validation and test have a second wording
as another reference. A question asks for one of the facts; validation and test accept two forms of
the answer. Most articles of training are short, half of those of validation and test have more than
250 words.

FOLDER gets ``summaries/`` and ``answers/``, each with ``train.jsonl``, ``validation.jsonl`` and
``test.jsonl``, and, line by line for the test text, what a system without a network would write:
``whole.txt`` (the source), ``lead.txt`` (its first sentence), ``first.txt`` (as many first words as
a summary has on average), ``same.txt`` (the first summary of training, for every article) and
``usual.txt`` (the most frequent answer to this question in training).
It knows no subwords: an article has at most some 900 words and signs.
"""

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

Pair = tuple[str, list[str]]
"""A source and its targets."""

_WORDS = """
Ada Boris Clara David Emil Flora Georg Hanna Ivo Karla Max Nora

Abel Berg Dietz Frank Haas Jahn Keller Lang Mohr Peters Roth Vogel

Altmar Brunn Dornau Elmstadt Gronau Hollern Isen Kirn Lauben Nebra Parchim Zeven

Monday Tuesday Wednesday Thursday Friday Saturday Sunday

museum station castle school market library theatre hospital

old new small large quiet famous green grey narrow busy empty strange

road bridge garden tower window door kitchen office boat train bicycle dog horse baker teacher
painter driver doctor crowd choir band fountain field forest hill street square shop lamp roof

waits stands rests shines moves turns sleeps works stays returns sings grows
"""
(FIRST_NAMES, LAST_NAMES, TOWNS, DAYS, BUILDINGS, ADJECTIVES, NOUNS, VERBS) = (
    words.split() for words in _WORDS.split("\n\n")
)
ADVERBS = (
    "near the wall",
    "in the morning",
    "for a while",
    "as always",
    "without a word",
    "after lunch",
    "in the rain",
    "at the corner",
    "behind the church",
    "with great care",
    "every summer",
    "under a blue sky",
)


@dataclass(frozen=True)
class Event:
    """What happens: a noun, its verb in the past and as a participle, and what it is done to."""

    noun: str
    past: str
    participle: str
    things: str


EVENTS = (
    Event("theft", "stole", "stolen", "paintings"),
    Event("rescue", "rescued", "rescued", "travellers"),
    Event("discovery", "found", "found", "coins"),
    Event("sale", "sold", "sold", "tables"),
    Event("repair", "repaired", "repaired", "clocks"),
    Event("gift", "gave away", "given away", "books"),
)

LEADS = (
    "The {noun} at the {building} is the talk of the week.",
    "There is news of a {noun} at the {building}.",
    "Many have heard of the {noun} at the {building}.",
)
FACTS = {
    "who": ("It was {who} who did it.", "The police named {who}.", "Only {who} had a hand in it."),
    "number": (
        "In all there were {number} {things}.",
        "The number of {things} is {number}.",
        "A list has {number} {things}.",
    ),
    "town": (
        "All this happened in {town}.",
        "The scene lies in {town}.",
        "Neighbors in {town} saw it.",
    ),
    "day": ("It took place on {day}.", "It began and ended on {day}.", "That was on {day}."),
}
OTHER_MATTERS = (
    "{who} was asked about it and knew nothing.",
    "A reader by the name of {who} wrote to this paper.",
    "Last year there were {number} complaints.",
    "A bus with {number} seats was late again.",
    "In {town} nobody had heard of it.",
    "A reporter came all the way from {town}.",
    "The weather is going to change by {day}.",
    "The next meeting is planned for {day}.",
)
SUMMARIES = (
    "{who} {past} {number} {things} at the {building} in {town} on {day}.",
    "On {day} {number} {things} were {participle} at the {building} in {town} by {who}.",
)
QUESTIONS = {
    "who": "Who {past} the {things}?",
    "number": "How many {things} were {participle}?",
    "town": "In which town was the {noun}?",
    "day": "On which day was the {noun}?",
}
FORMS = {
    "who": ("{who}", "{last_name}"),
    "number": ("{number}", "{number} {things}"),
    "town": ("{town}", "in {town}"),
    "day": ("{day}", "on {day}"),
}
SIZES = {"train": 10_000, "validation": 200, "test": 500}
LONGEST = 118
"""Sentences of an article; they have six to twelve words and signs each."""


def values(draw: random.Random) -> dict[str, str]:
    """A person, a number, a town and a day."""
    last_name = draw.choice(LAST_NAMES)
    return {
        "who": f"{draw.choice(FIRST_NAMES)} {last_name}",
        "last_name": last_name,
        "number": str(draw.randint(11, 40)),
        "town": draw.choice(TOWNS),
        "day": draw.choice(DAYS),
    }


def filler(draw: random.Random) -> str:
    """A sentence that says nothing."""
    words = draw.choice(ADJECTIVES), draw.choice(NOUNS), draw.choice(VERBS), draw.choice(ADVERBS)
    return "The {} {} {} {}.".format(*words)


def article(draw: random.Random, skew: int) -> tuple[str, dict[str, str]]:
    """The text, and what it says; the larger ``skew``, the more short articles."""
    facts = values(draw) | vars(draw.choice(EVENTS)) | {"building": draw.choice(BUILDINGS)}
    body = [draw.choice(FACTS[kind]).format(**facts) for kind in FACTS]
    for _ in range(int((LONGEST - 5) * draw.random() ** skew)):
        if draw.random() < 0.8:
            body.append(filler(draw))
        else:
            body.append(draw.choice(OTHER_MATTERS).format(**values(draw)))
    draw.shuffle(body)
    return " ".join([draw.choice(LEADS).format(**facts), *body]), facts


def summaries(draw: random.Random, skew: int) -> Iterator[Pair]:
    """Articles with both wordings of their summaries."""
    while True:
        text, facts = article(draw, skew)
        yield text, [wording.format(**facts) for wording in SUMMARIES]


def answers(draw: random.Random, skew: int) -> Iterator[Pair]:
    """Questions with an article, and the accepted forms of the answers."""
    while True:
        text, facts = article(draw, skew)
        kind = draw.choice(list(QUESTIONS))
        question = QUESTIONS[kind].format(**facts)
        yield f"question: {question} context: {text}", [f.format(**facts) for f in FORMS[kind]]


def write(folder: Path, sizes: Mapping[str, int] = SIZES, seed: int = 1) -> None:
    """Write all files; the splits share no seed."""
    for name, make in {"summaries": summaries, "answers": answers}.items():
        (folder / name).mkdir(parents=True)
        splits = {}
        for split, size in sizes.items():
            draw = random.Random(f"{seed} {name} {split}")
            # Training has mostly short articles, which teach faster.
            splits[split] = list(islice(make(draw, 30 if split == "train" else 2), size))
            lines = (
                # One right answer to train on, as in SQuAD.
                {"source": source, "target": targets[0] if split == "train" else targets}
                for source, targets in splits[split]
            )
            write_lines(folder / name / f"{split}.jsonl", map(json.dumps, lines))
        sources = [source for source, _ in splits["test"]]
        baselines = parts(sources, splits["train"])
        if name == "answers":
            baselines = {"usual": usual_answers(sources, splits["train"])}
        for baseline, hypotheses in baselines.items():
            write_lines(folder / name / f"{baseline}.txt", hypotheses)


def parts(sources: list[str], training: list[Pair]) -> dict[str, list[str]]:
    """Each source, its first sentence, as many words as a summary of training has; one summary."""
    length = round(sum(len(targets[0].split()) for _, targets in training) / len(training))
    return {
        "whole": sources,
        "lead": [source.partition(".")[0] + "." for source in sources],
        "first": [" ".join(source.split()[:length]) for source in sources],
        "same": [training[0][1][0]] * len(sources),
    }


def usual_answers(sources: list[str], training: list[Pair]) -> list[str]:
    """The most frequent answer to each question in training; empty if nobody asked it there."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for source, targets in training:
        seen[source.partition(" context: ")[0]][targets[0]] += 1
    asked = (seen[source.partition(" context: ")[0]] for source in sources)
    return [answers.most_common(1)[0][0] if answers else "" for answers in asked]


def write_lines(file: Path, lines: Iterable[str]) -> None:
    """Write a text file."""
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--articles", type=int, default=SIZES["train"])
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    write(arguments.folder, SIZES | {"train": arguments.articles}, arguments.seed)


if __name__ == "__main__":
    main()
