"""Ten tasks of two small repositories, and what a scripted model does in each: most go well, some do not."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.doubles.model_server import fail, plan, reply
from tests.scenarios.stage import FINISH, Call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.doubles.model_server import RecordedRequest, Step

MONEY = '''"""Amounts of money, as people write them."""

from decimal import Decimal


def parse_amount(text):
    """Read an amount such as 1,234.50."""
    return Decimal(text.replace(",", ""))


def format_amount(amount, currency="EUR"):
    """Write an amount with its currency."""
    return f"{amount:,.2f} {currency}"
'''
BOOK = '''"""Entries of a ledger."""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True)
class Entry:
    """What was paid, and when."""

    date: str
    text: str
    amount: Decimal
    kind: str = "payment"


def balance(entries):
    """The sum of all entries. Refunds are given back."""
    return sum((entry.amount for entry in entries), Decimal(0))


def newest_first(entries):
    """The entries, the newest day first."""
    return sorted(entries, key=lambda entry: entry.date, reverse=True)


def months(entries):
    """Each month with its entries."""
    found = {}
    for entry in entries:
        month = entry.date[:7]
        found[month] = [one for one in entries if one.date[:7] == month]
    return found
'''
TEST_MONEY = """from decimal import Decimal

import pytest

from ledger.money import format_amount, parse_amount


@pytest.mark.parametrize(
    ("text", "amount"), [("1", "1"), ("0.50", "0.50"), ("1,234.50", "1234.50"), ("-3", "-3")]
)
def test_an_amount_is_read(text, amount):
    assert parse_amount(text) == Decimal(amount)


@pytest.mark.parametrize(("amount", "text"), [("1234.5", "1,234.50 EUR"), ("-3", "-3.00 EUR")])
def test_an_amount_is_written(amount, text):
    assert format_amount(Decimal(amount)) == text
"""
TEST_BOOK = """from decimal import Decimal

from ledger.book import Entry, balance, months, newest_first

RENT = Entry("2026-11-01", "Rent", Decimal(900))
FOOD = Entry("2026-11-20", "Groceries", Decimal("41.30"))
BOOK = Entry("2026-10-03", "Book", Decimal(25))


def test_payments_add_up():
    assert balance([RENT, FOOD]) == Decimal("941.30")


def test_the_newest_day_comes_first():
    assert newest_first([BOOK, FOOD, RENT]) == [FOOD, RENT, BOOK]


def test_months():
    assert months([BOOK, FOOD, RENT]) == {"2026-10": [BOOK], "2026-11": [FOOD, RENT]}
"""
LEDGER: Mapping[str, str | bytes] = {
    "README.md": "# Ledger\n\nWhat was paid, and what is left.\n",
    "ledger/__init__.py": "",
    "ledger/book.py": BOOK,
    "ledger/money.py": MONEY,
    "tests/test_book.py": TEST_BOOK,
    "tests/test_money.py": TEST_MONEY,
    ".github/workflows/tests.yml": "on: push\njobs:\n  tests:\n    runs-on: ubuntu-24.04\n",
}
SITE: Mapping[str, str | bytes] = {
    "README.md": "# Website\n\nThe pages of the ledger.\n",
    "index.html": "<!doctype html>\n<title>Ledger</title>\n<h1>Ledger</h1>\n<img src=logo.svg>\n",
    "news.md": "# News\n\n- 1.2: months\n",
    "settings.py": 'API = "https://api.example.org"\n',
}


def edit(path: str, old: str, new: str) -> Call:
    """A call that replaces text."""
    return "edit_file", {"path": path, "old_text": old, "new_text": new}


def write(path: str, content: str) -> Call:
    """A call that writes a file."""
    return "write_file", {"path": path, "content": content}


def read(path: str) -> Call:
    """A call that reads a file."""
    return "read_file", {"path": path}


def propose(title: str, body: str) -> Call:
    """A call that makes the pull request."""
    return "create_pull_request", {"title": title, "body": body}


@dataclass(slots=True)
class Task:
    """An issue, and what the model replies to the requests of its task, one after another.

    Attributes:
        past: so many days ago it was done; 0 is tonight.
    """

    title: str
    body: str
    steps: list[Step]
    repository: str = "octo/ledger"
    past: int = 0


def does(words: str, *calls: Call, tokens: int = 9_000) -> Step:
    """A reply with a plan, to a prompt of so many tokens."""
    return replace(plan(words, calls), input_tokens=tokens)


REFUND = edit(
    "ledger/book.py",
    "    return sum((entry.amount for entry in entries), Decimal(0))\n",
    "    return sum(\n"
    '        (-entry.amount if entry.kind == "refund" else entry.amount for entry in entries), Decimal(0)\n'
    "    )\n",
)
TEST_REFUND = edit(
    "tests/test_book.py",
    "def test_the_newest_day_comes_first",
    "def test_a_refund_is_subtracted():\n"
    '    back = Entry("2026-11-21", "Groceries, returned", Decimal(10), "refund")\n'
    '    assert balance([FOOD, back]) == Decimal("31.30")\n\n\n'
    "def test_the_newest_day_comes_first",
)
EUROPE = edit(
    "ledger/money.py",
    '    return Decimal(text.replace(",", ""))\n',
    '    if text.rfind(",") > text.rfind("."):\n'
    '        text = text.replace(".", "").replace(",", ".")\n'
    '    return Decimal(text.replace(",", ""))\n',
)
TEST_EUROPE = edit("tests/test_money.py", '("-3", "-3")]\n)', '("1.234,50", "1234.50"), ("-3", "-3")]\n)')
KEEPS = edit(
    "ledger/book.py",
    "sorted(entries, key=lambda entry: entry.date, reverse=True)",
    "sorted(entries, key=lambda entry: (entry.date, entry.text), reverse=True)",
)
HALF = 'f"{amount:,.2f} {currency}"'
ROUNDED = (
    "f\"{amount.quantize(Decimal('1'), ROUND_HALF_UP):,} {currency}\"",
    "f\"{amount.quantize(Decimal('0.01'), ROUND_HALF_UP):,} {currency}\"",
)
IMPORT = edit(
    "ledger/money.py", "from decimal import Decimal\n", "from decimal import ROUND_HALF_UP, Decimal\n"
)
TEST_HALF = edit("tests/test_money.py", '("-3", "-3.00 EUR")]', '("-3", "-3.00 EUR"), ("0.125", "0.13 EUR")]')
FAST = edit(
    "ledger/book.py",
    "        month = entry.date[:7]\n        found[month] = [one for one in entries if one.date[:7] == month]\n",
    "        found.setdefault(entry.date[:7], []).append(entry)\n",
)
TOKEN = "ghp_" + "R7kQ2mVx9TbLw4NcZ8sYp1HdJf6GaU3eXo5i"
OVERLOADED = fail(
    529,
    body={"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded, please try later"}},
)
TRIES = 5
"""So often a request is sent to a server that is overloaded, before the worker pauses."""


def refunds() -> Task:
    """A task that goes well, with a test."""
    return Task(
        "Refunds are added to the balance",
        "`balance()` adds refunds. They have to be subtracted.",
        [
            does(
                "Look at how the balance is made, and at its tests.",
                read("ledger/book.py"),
                read("tests/test_book.py"),
            ),
            does(
                "Subtract entries of the kind refund, and add a test of it.",
                REFUND,
                TEST_REFUND,
                tokens=11_000,
            ),
            does(
                "Propose it.",
                propose("Subtract refunds from the balance", "Refunds were added like payments."),
                FINISH,
                tokens=12_000,
            ),
        ],
    )


def bank_amounts() -> Task:
    """A task on which the model asks a question, and goes on with the answer."""
    return Task(
        "1.234,50 is read as an error",
        "Our bank writes amounts as `1.234,50`.",
        [
            does("Look at how amounts are read.", read("ledger/money.py"), read("tests/test_money.py")),
            does(
                "Both ways of writing exist; what 1.234 means is for people to say.",
                (
                    "ask_question",
                    {
                        "question_text": "The amount 1.234 can mean one thousand two hundred thirty-four, or a bit "
                        "more than one. Which is it, if nothing else in the text tells?",
                        "choices": ["1.234 is more than a thousand", "1.234 is a bit more than one"],
                    },
                ),
                tokens=11_000,
            ),
            does(
                "The last separator is the decimal one.",
                EUROPE,
                TEST_EUROPE,
                propose("Read amounts such as 1.234,50", "The last separator is taken for the decimal one."),
                FINISH,
                tokens=12_000,
            ),
        ],
    )


def entries_of_one_day() -> Task:
    """A task whose model server is overloaded at first."""
    return Task(
        "Entries of one day change their order",
        "Two entries of the same day should always come in the same order.",
        [
            *[OVERLOADED] * TRIES,
            does(
                "Sort by the text too.",
                KEEPS,
                propose("Keep the order of entries of one day", "By their text."),
                FINISH,
            ),
        ],
    )


def half_a_cent() -> Task:
    """A task whose first change does not pass the tests."""
    return Task(
        "Half a cent is rounded to the even one",
        "0.125 should become 0.13.",
        [
            does(
                "Round half a cent up.",
                IMPORT,
                edit("ledger/money.py", HALF, ROUNDED[0]),
                TEST_HALF,
                propose("Round half a cent up", "By `ROUND_HALF_UP`."),
                FINISH,
            ),
            does(
                "The tests say that cents are lost: the quantum has to be a cent.",
                edit("ledger/money.py", ROUNDED[0], ROUNDED[1]),
                propose("Round half a cent up", "By `ROUND_HALF_UP`."),
                FINISH,
                tokens=12_000,
            ),
        ],
    )


def months() -> Task:
    """A task that is interrupted, and done by a later cycle."""
    return Task(
        "Group entries by month faster",
        "`months()` takes minutes for a large book.",
        [
            does("Look at the function.", read("ledger/book.py")),
            does("One pass is enough.", FAST, tokens=10_000),
            does(
                "One pass is enough.",
                FAST,
                propose("Group entries by month in one pass", "It was one pass for each entry."),
                FINISH,
                tokens=11_000,
            ),
        ],
    )


def python_version() -> Task:
    """A task with a change to a protected path."""
    return Task(
        "Test on Python 3.14 too",
        "In the workflow and in the README.",
        [
            does(
                "Name the version in both files.",
                edit(".github/workflows/tests.yml", "ubuntu-24.04", "ubuntu-24.04 # Python 3.14"),
                edit("README.md", "is left.\n", "is left. For Python 3.11 to 3.14.\n"),
                propose("Say that Python 3.14 is supported", "In the README; the workflow waits for you."),
                FINISH,
            )
        ],
    )


def amounts_in_words() -> Task:
    """A task on which the model never replies with a plan."""
    return Task(
        "Write amounts in words",
        "As on a cheque.",
        [reply("I think this needs a library."), reply("One thousand..."), reply("Sorry.")],
    )


def api_token() -> Task:
    """A task in which the model writes a secret at first."""
    return Task(
        "Use the token of the API",
        "The site should send the token that is in the vault.",
        [
            does(
                "Put the token into the settings.",
                write("settings.py", f'API = "https://api.example.org"\nTOKEN = "{TOKEN}"\n'),
                propose("Send the token", "It is in the settings."),
                FINISH,
                tokens=5_000,
            ),
            does(
                "A token does not belong into the repository: read it from the environment.",
                write(
                    "settings.py",
                    'import os\n\nAPI = "https://api.example.org"\nTOKEN = os.environ["API_TOKEN"]\n',
                ),
                propose("Send the token", "It comes from the environment."),
                FINISH,
                tokens=6_000,
            ),
        ],
        "octo/website",
    )


def logo_text() -> Task:
    """A task whose pull request gets a conflict."""
    return Task(
        "The logo has no text for screen readers",
        "",
        [
            does(
                "Name what the picture shows.",
                edit("index.html", "<img src=logo.svg>", '<img src=logo.svg alt="Ledger">'),
                propose("Give the logo a text", "Screen readers say it."),
                FINISH,
                tokens=4_000,
            ),
            does(
                "Keep the new size, and the text.",
                write(
                    "index.html",
                    "<!doctype html>\n<title>Ledger</title>\n<h1>Ledger</h1>\n"
                    '<img src=logo.svg width=64 alt="Ledger">\n',
                ),
                propose("Give the logo a text", "Screen readers say it."),
                FINISH,
                tokens=5_000,
            ),
        ],
        "octo/website",
    )


def old_news() -> Task:
    """A task with nothing to do."""
    return Task(
        "Remove the old news",
        "",
        [
            does(
                "There is none.",
                ("finish", {"reason": "The file has no old news: 1.2 is the newest version."}),
            )
        ],
        "octo/website",
    )


def tonight() -> list[Task]:
    """The ten tasks, in the order of their issues."""
    return [
        refunds(),
        bank_amounts(),
        entries_of_one_day(),
        half_a_cent(),
        months(),
        python_version(),
        amounts_in_words(),
        api_token(),
        logo_text(),
        old_news(),
    ]


def earlier() -> list[Task]:
    """Tasks of the days before."""
    found = []
    for number, (days, title) in enumerate(_EARLIER):
        path = f"docs/{number}.md"
        calls = (write(path, "# A page\n"), propose(title, "As the issue says."), FINISH)
        step = does("Write the page.", *calls, tokens=12_000 + 9_000 * (number % 4))
        steps = [reply("I do not know.")] * 3 if "cheque" in title else [step]
        found.append(Task(title, "", steps, ("octo/ledger", "octo/website")[number % 3 == 2], days))
    return found


_EARLIER = (
    (12, "Describe the format of entries"),
    (11, "Describe refunds"),
    (11, "Write a page about the API"),
    (9, "Describe months"),
    (8, "Print a cheque"),
    (8, "Write a page about prices"),
    (6, "Describe rounding"),
    (5, "Describe the export"),
    (5, "Write a page about contact"),
    (3, "Describe currencies"),
    (2, "Describe the tests"),
    (2, "Write a page about news"),
    (1, "Describe releases"),
)


class Director(list[Any]):
    """A script that is never over: each request gets the next step of the task that it is about.

    Attributes:
        held: while a task's number of replies is here, its next reply stops in the middle until the event is set.
    """

    def __init__(self, tasks: list[Task]) -> None:
        super().__init__()
        self._steps: dict[str, Iterator[Step]] = {task.title: iter(task.steps) for task in tasks}
        self._asked: dict[str, int] = {}
        self.held: dict[tuple[str, int], Hold] = {}

    def __bool__(self) -> bool:
        return True

    def pop(self, _index: Any = -1) -> Any:
        return self._reply

    def _reply(self, request: RecordedRequest) -> Step:
        said = str(request.body["messages"][1]["content"]).partition("# Your task")[2]
        title = next((one for one in self._steps if one in said), "")
        number = self._asked[title] = self._asked.get(title, 0) + 1
        step = next(self._steps.get(title, iter(())), fail(400))
        hold = self.held.get((title, number))
        if hold is None:
            return step
        hold.began.set()
        return replace(step, gate=hold.over)


@dataclass(slots=True)
class Hold:
    """A reply that stops in the middle, so that its picture can be taken."""

    began: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
