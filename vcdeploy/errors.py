"""The one exception that reaches a user: it says what was wrong, where, and how to mend it."""


class VcdeployError(Exception):
    """A problem the user can mend; the command line prints it without a traceback and exits with 1."""
