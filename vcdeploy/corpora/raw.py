"""A corpus before it is encoded: three texts, or three sequences of music symbols."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vcdeploy.errors import VcdeployError

SPLITS = ("train", "valid", "test")
# Fewer characters than this leave a validation part too short to say anything.
SHORTEST = 200


@dataclass(frozen=True)
class RawCorpus:
    """Split name to a str (kind "text") or to a list of symbols (kind "music")."""

    kind: str
    splits: Mapping[str, Sequence[str]]
    left_out: Mapping[str, int] = field(default_factory=dict)  # tunes, by reason


def cut(text: str, name: str, *, at_lines: bool = True) -> RawCorpus:
    """First 90 % of `text`, next 5 %, last 5 %.

    With `at_lines`, a cut moves on to the next line end if there is one within a hundredth of the text.
    """
    if len(text) < SHORTEST:
        raise VcdeployError(
            f"{name} has {len(text)} characters; at least {SHORTEST} are needed to cut it into train, "
            "valid and test parts"
        )

    def place(percent: int) -> int:
        at = len(text) * percent // 100
        end = text.find("\n", at - 1, at + len(text) // 100) if at_lines else -1
        return end + 1 if end >= 0 else at

    first, second = place(90), place(95)
    return RawCorpus("text", {"train": text[:first], "valid": text[first:second], "test": text[second:]})
