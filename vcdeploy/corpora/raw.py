"""A corpus before it is encoded: three texts, or three sequences of music symbols."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vcdeploy.errors import VcdeployError

SPLITS = ("train", "valid", "test")
# Below this many characters the validation part is too short to be meaningful.
SHORTEST = 200


@dataclass(frozen=True)
class RawCorpus:
    """The splits of a corpus, each a str (kind "text") or a list of symbols (kind "music")."""

    kind: str
    splits: Mapping[str, Sequence[str]]
    left_out: Mapping[str, int] = field(default_factory=dict)  # number of tunes, by reason


def cut(text: str, name: str, *, at_lines: bool = True) -> RawCorpus:
    """Cut `text` into its first 90 %, next 5 % and last 5 %.

    With `at_lines`, a cut moves forward to the next line end if there is one within 1 % of the text.
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
