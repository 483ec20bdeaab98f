"""``python -m transformer COMMAND KEY=VALUE…``, also installed as ``transformer``."""

import gc
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pkgutil import resolve_name
from typing import Any

from transformer import cli
from transformer.cli.exit import run_to_exit_code, terminate
from transformer.common.errors import InputError, did_you_mean
from transformer.common.processes import handling

VERBS = {
    "train": ("train:run_train", "train a model"),
    "doctor": ("corpus:run_doctor", "find faults in a corpus"),
    "clean": ("corpus:run_clean", "remove faulty pairs from a corpus"),
    "evaluate": ("evaluate:run_evaluate", "score a checkpoint on a test set"),
    "compare": ("evaluate:run_compare", "whether a system is better than another, and where"),
    "stress": ("evaluate:run_stress", "score a translator on a disturbed test set"),
    "report": ("evaluate:run_report", "one page of a run, or of several side by side"),
    "translate": ("translate:run_translate", "text to text, from stdin to stdout, line by line"),
    "ask": ("translate:run_ask", "let a server translate a file, line by line, as a teacher"),
    "serve": ("translate:run_serve", "answer requests over HTTP, as LibreTranslate and DeepL do"),
    "predict": ("translate:run_predict", "tags or probabilities of stdin, line by line"),
    "score": ("translate:run_score", "log-probabilities of given targets"),
    "text": ("corpus:run_text", "write a corpus as plain files"),
    "select": ("translate:run_select", "take the best candidate of each n-best list"),
    "recipe": ("recipe:run_recipe", "distill or back-translate: several stages"),
    "shortlist": ("translate:run_shortlist", "list the target tokens of each source token: speed"),
    "average": ("models:run_average", "average the last checkpoints of a run"),
    "consolidate": ("models:run_consolidate", "join a checkpoint of several files"),
    "tune": ("models:run_tune", "find the weights and the search that do best on validation"),
    "import": ("models:run_import", "make a run of a model of another framework"),
    "export": ("models:run_export", "write the model for another engine"),
    "push": ("models:run_push", "give the model to others on the Hugging Face Hub"),
    "attention": ("evaluate:run_attention", "show the attention of every head in a sentence"),
    "heads": ("evaluate:run_heads", "rank the heads by the cost of switching them off"),
}
"""The function of each command, in ``transformer.cli``, and what it does."""

COMPOSE_THEMSELVES = {"train", "recipe"}
"""Commands whose arguments are more than the keys of one config."""


def main(call: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code.

    Args:
        call: The command and its arguments; None takes those of the process.
    """
    arguments = list(sys.argv[1:] if call is None else call)
    code = 1
    try:
        code = run_to_exit_code(lambda: _run(arguments))
    except BaseException:
        if not _in_group():
            raise
        traceback.print_exc()
    if code and _in_group():
        from transformer.training.distributed.ranks import leave_group

        leave_group(code)
    return code


def _in_group() -> bool:
    """Whether this process is one of several ranks."""
    torch = sys.modules.get("torch")
    return bool(torch and torch.distributed.is_available() and torch.distributed.is_initialized())


def _run(call: list[str]) -> None:
    if {"--config-dir", "-cd"} & {argument.partition("=")[0] for argument in call}:
        from transformer.cli.arguments import take_config_folder

        call = take_config_folder(call)
    verb, *arguments = call or ["--help"]
    if verb.startswith("recipe="):
        verb = "recipe"
        arguments = call
    if verb == "help" and arguments:
        verb = arguments[0]
        arguments = ["--help"]
    if "--version" in call:
        print(version_line())
    elif verb in ("-h", "--help", "help"):
        _print_usage()
    elif verb not in VERBS:
        meant = did_you_mean(verb, VERBS)
        raise InputError(f"unknown command {verb}{meant}; choose {', '.join(VERBS)}")
    elif {"-h", "--help"} & set(arguments):
        from transformer.cli.arguments import help_text

        print(f"# {verb}: {VERBS[verb][1]}", help_text(verb), sep="\n")
    else:
        _run_verb(verb, arguments)


def _run_verb(verb: str, arguments: list[str]) -> None:
    with _imports_not_collected():
        function, values = _prepare(verb, arguments)
    if verb in COMPOSE_THEMSELVES:
        function(*values)  # it finishes an update at a signal, and writes a checkpoint
        return
    with handling(terminate, [signal.SIGTERM]):
        function(*values)


@contextmanager
def _imports_not_collected() -> Iterator[None]:
    """Exclude the imports of a new process from garbage collections: they live as long as it."""
    if "torch" in sys.modules:  # a program calls us: its objects may be garbage later
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _prepare(verb: str, arguments: list[str]) -> tuple[Callable[..., None], list[Any]]:
    """The function of a command, and its arguments: composed, unless it composes them itself."""
    if any(argument.startswith("+") for argument in arguments):
        from transformer.cli.arguments import without_plus

        arguments = list(map(without_plus, arguments))
    values: list[Any] = [arguments]
    if verb not in COMPOSE_THEMSELVES:
        # Before the module of the command: torch takes seconds to import.
        from transformer.cli.config import command_settings, compose_config

        config = compose_config(verb, arguments)
        values = [command_settings(verb, config, arguments), arguments]
    return resolve_name(f"{cli.__name__}.{VERBS[verb][0]}"), values


def _print_usage() -> None:
    print("usage: transformer COMMAND KEY=VALUE…\n")
    for name, (_, description) in VERBS.items():
        print(f"  {name:11} {description}")
    print("\ntransformer help COMMAND, or COMMAND --help, lists the keys of a command.")
    print("--version prints the versions.")
    print("--config-dir FOLDER adds your own choices of groups, FOLDER/GROUP/NAME.yaml.")


def version_line() -> str:
    """The versions of this package, torch and Python, and the kind of the processor."""
    import platform
    from importlib import metadata

    from transformer.common.processor import processor

    installed = (f"{name} {metadata.version(name)}" for name in ("transformer", "torch"))
    python = f"Python {platform.python_version()}"
    return ", ".join([*installed, python, f"processor {processor()}"])


if __name__ == "__main__":
    sys.exit(main())
