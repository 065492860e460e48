"""What a command said, for tests that run one with click's runner."""

from click.testing import Result


def refused(result: Result) -> str:
    """The message for a bad value."""
    return said(result, code=2)


def said(result: Result, code: int = 1) -> str:
    """The message of a failure."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    return result.stderr
