"""The repository's map."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.cycle.relevance import repository_map, size_words
from tests.unit.bot.cycle.briefing_samples import tracked_file


def test_all_files_are_listed_where_they_fit() -> None:
    files = [tracked_file("b/c.py", 1_234), tracked_file("a.py", 5), tracked_file("b/d/e.py", 2_500_000)]
    assert repository_map(files, 1_000) == ("a.py (5 B)\nb/c.py (1.2 kB)\nb/d/e.py (2.5 MB)", 0)


def test_folders_that_do_not_fit_are_one_line_each() -> None:
    files = [tracked_file(f"vendor/lib{i}.py", 100) for i in range(100)] + [
        tracked_file("src/a.py", 1),
        tracked_file("b.py", 1),
    ]
    text, unlisted = repository_map(files, 60)
    assert text == "b.py (1 B)\nsrc/a.py (1 B)\nvendor/ (100 files, 10.0 kB)"
    assert unlisted == 100


def test_room_that_is_left_goes_to_a_part_of_a_large_folder() -> None:
    files = [tracked_file(f"src/module{i:03}.py", 100) for i in range(100)]
    text, unlisted = repository_map(files, 500)
    lines = text.splitlines()
    assert lines[0] == "src/ (100 files, 10.0 kB)"
    assert lines[1] == "src/module000.py (100 B)"
    assert unlisted == 100 - (len(lines) - 1) < 90


def test_a_root_that_is_too_large_is_listed_in_part() -> None:
    text, unlisted = repository_map([tracked_file(f"file{i:04}", 1) for i in range(1_000)], 100)
    assert text.startswith("file0000 (1 B)\n")
    assert 980 < unlisted < 1_000


PATHS = st.lists(st.sampled_from(["a", "bb", "src", "x.py"]), min_size=1, max_size=4).map("/".join)


@given(paths=st.sets(PATHS, max_size=30), limit=st.integers(0, 500))
def test_the_map_fits_and_counts_every_file(paths: set[str], limit: int) -> None:
    files = [tracked_file(path, 1) for path in sorted(paths)]
    text, unlisted = repository_map(files, limit)
    lines = text.splitlines()
    assert len(text) <= limit
    assert unlisted == len(files) - sum(not line.split(" (")[0].endswith("/") for line in lines)
    assert unlisted == 0 or sum(len(path) + 40 for path in paths) > limit


def test_a_hundred_thousand_files_are_mapped() -> None:
    files = [tracked_file(f"d{i % 97}/e{i % 89}/f{i}.py", 10) for i in range(100_000)]
    text, unlisted = repository_map(files, 8_000)
    assert len(text) <= 8_000
    assert unlisted > 99_000


def test_sizes_are_short() -> None:
    assert [size_words(size) for size in (0, 999, 1_000, 999_949, 1_500_000)] == [
        "0 B", "999 B", "1.0 kB", "999.9 kB", "1.5 MB",
    ]  # fmt: skip
