"""What the first prompt shows of a test that fails."""

from __future__ import annotations

from orchestrator.bot.cycle.verify import _shown
from tests.tables import table

PYTEST = """input_data = [[1, 2, 3, 4, 5, 6, ...], 4], expected = 5

    def test_kth(input_data, expected):
>       assert kth(*input_data) == expected

kth.py:12: in kth
    return kth(above, k)

    def kth(arr, k):
>       pivot = arr[0]
                ^^^^^^
E       IndexError: list index out of range

kth.py:2: IndexError"""


@table(
    ("message", "shown"),
    [
        (
            PYTEST,
            (
                "input_data = [[1, 2, 3, 4, 5, 6, ...], 4], expected = 5\n"
                ">       assert kth(*input_data) == expected\n"
                "E       IndexError: list index out of range"
            ),
        ),
        ("panicked at src/lib.rs:9:\nleft: 1\nright: 2", "panicked at src/lib.rs:9:\nleft: 1\nright: 2"),
        ("".join(f"{line}\n" for line in range(100)), "95\n96\n97\n98\n99"),
        ("E   " + "x" * 5_000, "E   " + "x" * 396),
        ("", ""),
    ],
)
def test_a_small_model_is_shown_what_went_wrong_alone(message: str, shown: str) -> None:
    assert _shown(message, brief=True) == shown
    assert _shown(message, brief=False) == message[:1_500]
