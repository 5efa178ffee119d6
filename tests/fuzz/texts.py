"""Hostile texts and names, from a seeded generator."""

import random

PARTS = [
    "good",
    "bad film",
    "the",
    " ",
    "\t",
    "\n",
    "\r\n",
    "\0",
    "\x1b[31m",
    "\x7f",
    "\u200b",
    "\u202e",
    "\u2028",
    "\ufeff",
    "é",
    "e\u0301",
    "ﬁ",
    "İ",
    "ß",
    "日本語",
    "\U0001f600",
    "👩‍👩‍👧",
    "\U000e0001",
    "\ufffd",
    "\uffff",
    "٣",
    "½",
    "<script>alert(1)</script>",
    "&amp;",
    "{{7*7}}",
    "{0}",
    "%s",
    "%(x)s",
    "\\",
    "'",
    '"',
    '""',
    ",",
    ";",
    "|",
    "#",
    "=cmd|'/C calc'!A0",
    "-",
    "--help",
    "~",
    "*",
    "?",
    "[",
    "]",
    "[bold]",
    "nan",
    "NULL",
    "none",
    "-1",
    "1e999",
    "▁",
    "<unk>",
    "<s>",
    "a" * 5_000,
    "x " * 500,
    "!" * 300,
    "\u0300" * 200,
    "𝔘𝔫𝔦",
    "ａｂｃ",
]
HALF = "\ud800"


def text(chance: random.Random, *, halves: bool = False) -> str:
    """A text that nobody would write; with halves, one that no file can hold."""
    parts = [chance.choice(PARTS) for _ in range(chance.choice([0, 1, 1, 2, 3, 8]))]
    if chance.random() < 0.2:
        parts.append("".join(chr(chance.randrange(1, 0xD800)) for _ in range(chance.randrange(30))))
    if halves and chance.random() < 0.2:
        parts.append(HALF)
    return chance.choice(["", " "]).join(parts)


def label(chance: random.Random) -> str:
    """A label that is allowed: it has signs, and is no number, since 1.0 and 1 are one class."""
    return "".join(chance.choice("aé日 \"',;|\t<&=😀-_") for _ in range(chance.randrange(1, 8))) + "x"
