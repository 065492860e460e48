"""The exception users see: its message says what is wrong, where, and how to fix it."""


class VcdeployError(Exception):
    """A problem the user can fix; the command line prints it without a traceback and exits with 1."""


class TimedOut(VcdeployError):
    """A call took longer than its `timeout`."""


class Cancelled(VcdeployError):
    """The event that was passed to a call as `cancel` was set."""
