"""Hostile input of every kind: one sentence or the right answer, never a traceback, a hang, or a silent loss.

`make slow` tries 5,000 cases. FUZZ_CASES=200:260 tries these numbers; a failure names the number of its case.
"""

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fuzz import folders, sources, words
from tests.fuzz.place import Place
from tests.fuzz.trying import FINE, SENTENCE, Case, attempt

Make = Callable[[Place, random.Random, Path], Case]
KINDS: list[Make] = [
    folders.damaged,
    folders.resumed,
    folders.absurd,
    folders.absurd,
    sources.sound,
    sources.damaged,
    sources.junk,
    sources.places,
    sources.labels,
    words.settings,
    words.kept,
    words.options,
    words.paths,
    words.texts,
]
FEW, MANY, AT_ONCE = 56, 5_000, 250


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A home folder of its own, also for what `~` and relative paths mean."""
    home = tmp_path_factory.mktemp("fuzz")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        patch.setenv("HOME", str(home))
        patch.chdir(home)
        yield Place.make(home)


def tried(place: Place, numbers: range) -> Counter[str]:
    """The kinds of outcomes of the cases with these numbers; fails with all that are neither."""
    counts, faults = Counter[str](), []
    for number in numbers:
        make, chance = KINDS[number % len(KINDS)], random.Random(f"case {number}")
        folder = place.folder(number)
        case = make(place, chance, folder)
        outcome = attempt(case)
        counts[outcome.kind] += 1
        if outcome.kind not in (SENTENCE, FINE):
            line = f"{number} ({make.__module__}.{make.__name__}): {outcome.kind}"
            faults.append(f"{line}\n  mein {[word[:200] for word in case.words]}\n  {outcome.detail[-3000:]}")
        shutil.rmtree(folder, ignore_errors=True)
    assert not faults, f"{len(faults)} of {len(numbers)} cases\n" + "\n\n".join(faults)
    return counts


def test_a_few_hostile_commands(place: Place) -> None:
    given = os.environ.get("FUZZ_CASES", f"0:{FEW}")
    start, stop = map(int, given.split(":"))
    counts = tried(place, range(start, stop))
    print(dict(counts))
    assert counts[SENTENCE] > 0
    assert counts[FINE] > 0


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, MANY, AT_ONCE))
def test_many_hostile_commands(place: Place, start: int) -> None:
    tried(place, range(start, start + AT_ONCE))
