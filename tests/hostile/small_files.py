"""Small texts that take a careless parser much time or memory, for a process with limits.

`python -m tests.hostile.small_files` reads them all. A parser whose time is quadratic would need hours for
some of them, and one that follows aliases needs gigabytes.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator
from typing import Any

from inspector import layout as layouts
from inspector.audit import policy
from inspector.compare import board
from inspector.files import strict_json
from inspector.guides import assembly, processes
from inspector.layout import rule_files
from inspector.machines import targets
from inspector.sharding.rules import written
from inspector.text.errors import InvalidInput

# Characters of a file: fewer in CI, where a parser with quadratic time still needs more than MOST_SECONDS.
LENGTH = 990_000 if int(os.environ.get("HOSTILE_EXAMPLES", "0")) else 120_000
MOST_BYTES = 1024**3  # of memory
MOST_SECONDS = 2 * LENGTH // 1000  # of the processor for all of them; less than a tenth is used

LONGEST_LINK = 60_000  # characters; servers refuse longer addresses
LAYOUT = layouts.parse({}).unwrap()
# Each level of a list has nine times the level below.
BOMB = (
    "a0: &a0 [x]\n"
    + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 13))
    + "logical_axis_rules: *a12\n"
).encode()
PIECES_OF_YAML = (
    "- a\n", "[", "{a: ", "- ", "? ", "# ", "#a\n", "a ", "a\n", "\n", " ", "%TAG !a! b\n", "---\n",
    "a: b: ", "- !a x\n", "- {<<: {a: 1}, <<: {b: 1}}\n", "- 1:1:1\n", "&", "*a ", "!", "a: |\n b\n",
    "'", '"\\n', "-\n",
)  # fmt: skip


def repeated(piece: str, length: int = LENGTH) -> str:
    return piece * (length // len(piece))


def rule_file_texts() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file of rules."""
    yield "bomb.yaml", BOMB.decode()
    for piece in PIECES_OF_YAML:
        yield "a.yml", repeated(piece)
    yield "a.yml", "[" + repeated("a,") + "]"
    yield "a.yml", "".join(f"k{number}: 1\n" for number in range(60_000))
    yield "a.yml", ("- " + "1:" * 4_900 + "1\n") * 100  # one number in base 60
    # Keys with the same hash: Python computes it modulo 2^61 - 1.
    yield "a.yml", "".join(f"? {number * (2**61 - 1)}\n" for number in range(1, 9_900))


def rule_texts() -> Iterator[str]:
    """Yield texts of the option --rules, and of a field of the page."""
    length = written.MOST_CHARACTERS - 1000
    for piece in (
        "[",
        "a=b,",
        "=",
        "a",
        "+",
        "#\n",
        " ",
        "['a','b'],",
        ":",
        "(",
        "{'a':",
        ",",
        '"',
        "a:",
    ):
        for first in ("", "[", "a: [", "a=", "a", "{", "[['a',["):
            yield first + repeated(piece, length)
    yield "{" + ",".join(f"'k{number}':'a'" for number in range(7_000)) + ",'k6999':'a'}"


PIECES_OF_TOML = (
    "a.", "[a.", "[[a]]\n", "[[a]]\n[[a.b]]\n", "a=[", "a={a=", 'a="', "#\n", " ", "1_", "[a]\n", '"a".',
    "a . ", "a.b.c=1\n", "[collectives]\n",
)  # fmt: skip
PIECES_OF_JSON = (
    "[",
    '{"a":',
    "1,",
    '"',
    '"\\',
    "\\ud800",
    "9",
    " ",
    "[],",
    '{"":{}},',
    "-",
    "\n",
    "e",
)


def toml_texts() -> Iterator[str]:
    for piece in PIECES_OF_TOML:
        for last in ("", "a=1", "a]", "a=1]"):
            yield repeated(piece) + last
    # Lines of other keys with many parts.
    yield "".join(f"b{number}" + ".a" * 99 + "=1\n" for number in range(LENGTH // 210))
    yield "".join(f"[b{number}" + ".a" * 99 + "]\n" for number in range(LENGTH // 210))
    yield "".join(f"a{number}=1\n" for number in range(LENGTH // 10))


def json_texts() -> Iterator[str]:
    for piece in PIECES_OF_JSON:
        for first in ("", "[", '["', '{"a":"', "[1"):
            yield first + repeated(piece)
    yield "{" + "".join(f'"k{number}":0,' for number in range(LENGTH // 10)) + '"k9":0}'
    yield '[{"' + '":0},{"'.join(map(str, range(LENGTH // 12))) + '":0}]'


def link_texts() -> Iterator[str]:
    """Yield values of a field of a link, which are as long as a link can be."""
    for piece in (
        "1x", "x", "a,", ",", "a=b,", "=", "+", "a.", ".", " ", "9", "-", "->", "→", ":", "(", "fsdp(",
        "a:explicit,", "*", "tpu:", "tpu:v5e:", "2x4*", "\n", ";", "~", "W1=None.", "e", "0", "[", "\\", '"',
        "%", "a b ", "A",
    ):  # fmt: skip
        for first in ("", "a", "1", "tpu:v5e:", "a=", "["):
            yield first + repeated(piece, LONGEST_LINK)


def readings() -> Iterator[Callable[[], Any]]:
    """Yield a function for each text that reads it."""
    for name, text in rule_file_texts():
        yield lambda name=name, text=text: rule_files.rule_sets(text, name)
    for text in rule_texts():
        yield lambda text=text: written.parse(text)
        yield lambda text=text: rule_files.is_file_name(text)
    for text in toml_texts():
        yield lambda text=text: policy.parse(text)
    for text in json_texts():
        for known in (text, text.encode()):
            yield lambda text=known: strict_json.parse(text, "it")
    for text in link_texts():
        fields = dict.fromkeys(layouts.to_fields(LAYOUT), text)
        for module in (layouts, assembly, processes):
            yield lambda module=module, fields=fields: module.parse(fields)
        for name in fields:
            given = layouts.to_fields(LAYOUT) | {name: text}
            yield lambda given=given: layouts.parse(given)
        yield lambda text=text: targets.parse(text)
        yield lambda text=text: board.parse_link({"pin": [text, f"A~{text}"], "baseline": [text]})


def main() -> None:
    """Read every text in a process with limits, and print how many were read."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    number = 0
    for read in readings():
        try:
            read()
        except InvalidInput as error:
            assert "\n" not in str(error)
        number += 1
    sys.stdout.write(f"{number}\n")


if __name__ == "__main__":
    main()
