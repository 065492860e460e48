"""The exceptions users see: a message says what is wrong, where, and how to fix it."""


class VcdeployError(Exception):
    """A problem the user can fix; the command line prints it without a traceback and exits with `exit_code`."""

    exit_code = 1


class BadValue(VcdeployError):
    """An option or argument has a value that can't be used."""

    exit_code = 2  # as for options that the command line itself rejects


class NoGpu(VcdeployError):
    """A GPU, or the software to use it, is missing."""

    exit_code = 3


class TimedOut(VcdeployError):
    """A call took longer than its `timeout`."""


class Cancelled(VcdeployError):
    """The event that was passed to a call as `cancel` was set."""
