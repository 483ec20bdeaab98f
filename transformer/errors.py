"""The one exception that speaks to the user; it does not know who catches it."""


class InputError(Exception):
    """The input or the call is wrong, and the user can mend it.

    The message is one line that says what is wrong, where, and what to do. The command line
    prints it without a traceback and exits with code 2.
    """


class Interrupted(Exception):
    """The user stopped the work; the message says in one line how to go on."""


class AnotherRankFailed(Exception):
    """This process cannot go on, and the one that knows why has said it."""
