"""The lock files: what `make demo` and `make test` install is pinned, with hashes, and agrees with constraints.txt."""

import importlib.metadata
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
EXTRAS = {"run": {"cpu", "music"}, "test": {"train", "cpu", "serve", "music", "plots", "dev"}}


def lock(name: str) -> dict[Requirement, list[str]]:
    found = {}
    for line in (ROOT / "locks" / f"{name}.txt").read_text().replace("\\\n", " ").splitlines():
        if not line.startswith("#"):
            requirement, *hashes = line.split(" --hash=")
            found[Requirement(requirement)] = [each.strip() for each in hashes]
    return found


def pinned(name: str) -> dict[str, str]:
    """The versions that a lock file installs here."""
    here = (each for each in lock(name) if each.marker is None or each.marker.evaluate())
    return {canonicalize_name(each.name): next(iter(each.specifier)).version for each in here}


def needed(extras: set[str]) -> set[str]:
    """The packages that these extras of vcdeploy need here, with what those need in turn."""
    found, waiting = set[str](), [("vcdeploy", extras)]
    while waiting:
        name, asked = waiting.pop()
        for text in importlib.metadata.requires(name) or []:
            requirement = Requirement(text)
            environments = [{"extra": each} for each in asked or {""}]
            if requirement.marker and not any(map(requirement.marker.evaluate, environments)):
                continue
            each = canonicalize_name(requirement.name)
            if each not in found:
                found.add(each)
                waiting.append((requirement.name, requirement.extras))
    return found


@pytest.mark.parametrize("name", ["run", "test", "cpu", "cuda"])
def test_every_package_is_pinned_with_hashes(name: str) -> None:
    for requirement, hashes in lock(name).items():
        assert [each.operator for each in requirement.specifier] == ["=="], requirement
        assert requirement.url is None
        assert hashes and all(re.fullmatch("sha256:[0-9a-f]{64}", each) for each in hashes), requirement


@pytest.mark.parametrize("name", ["run", "test"])
def test_what_is_needed_is_locked(name: str) -> None:
    versions = pinned(name)
    wanted = needed(EXTRAS[name]) | {"cmake", "nanobind", "ninja", "scikit-build-core"}
    cuda = {canonicalize_name(each.name) for each in lock("cuda")}
    assert wanted - versions.keys() - cuda == set()


@pytest.mark.parametrize("name", ["run", "test"])
def test_versions_are_those_of_the_constraints(name: str) -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    constraints = [Requirement(each) for each in lines if not each.startswith("#")]
    versions = pinned(name)
    for each in constraints:
        installed = versions.get(canonicalize_name(each.name))
        if installed and (each.marker is None or each.marker.evaluate()):
            assert each.specifier.contains(installed), each


def test_make_installs_only_what_is_locked() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    (options,) = re.findall("^LOCKED := (.*)$", makefile, re.MULTILINE)
    assert {"--require-hashes", "--no-deps", "--only-binary"} <= set(options.split())
    installs = [line for line in makefile.splitlines() if "pip install" in line and "docs" not in line]
    assert len(installs) == 3
    for line in installs:
        locked = line.count("pip install") == line.count("pip install $(LOCKED) -r locks/")
        assert locked or "pip install --quiet --no-deps --no-build-isolation -e ." in line
