"""What a fuzz target is, and inputs for it: seeds, and pieces that are put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random


@dataclass(frozen=True, slots=True)
class Target:
    """A promise about every input.

    Attributes:
        run: raises only where the promise is broken.
        seeds: inputs that are worth keeping, what was found among them.
        pieces: what inputs are made of.
    """

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    pieces: tuple[bytes, ...]

    def inputs(self) -> st.SearchStrategy[bytes]:
        """For hypothesis."""
        some = st.one_of(st.sampled_from(self.pieces), st.binary(min_size=1, max_size=3))
        joined = st.lists(some, max_size=20).map(b"".join)
        return st.one_of(
            joined, st.builds(_spliced, st.sampled_from(self.seeds), joined, st.integers(0, 200))
        )

    def mutated(self, random: Random) -> bytes:
        """For those who have neither hypothesis' time nor atheris."""
        data = random.choice((*self.seeds, b""))
        for _ in range(random.randint(1, 8)):
            new = random.choice((*self.pieces, random.randbytes(2)))
            start = random.randint(0, len(data))
            end = start + random.choice((0, 0, 1, 8))
            data = data[:start] + new * random.choice((1, 1, 1, 50)) + data[end:]
        return data


def text_of(data: bytes) -> str:
    """The bytes as text; those that are not UTF-8 become halves of surrogate pairs, as JSON can bring them."""
    return data.decode("utf-8", "surrogateescape")


def pieces(*texts: str) -> tuple[bytes, ...]:
    """Texts as a target takes them."""
    return tuple(text.encode("utf-8", "surrogatepass") for text in texts)


def _spliced(seed: bytes, new: bytes, place: int) -> bytes:
    place = min(place, len(seed))
    return seed[:place] + new + seed[place:]
