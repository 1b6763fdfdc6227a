"""Keywords: words and phrases, searched in the folded text by word rather than by letter.

The set of the text's words is compared with a dictionary, so that a thousand words cost no more than one. Separated
words (``s.e.c.r.e.t``, ``s e c r e t``) are joined if the text contains such chains, stretched words (``seeecret``) are
shortened, and, if a rule says so, digits are read as letters.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from millpond.errors import InputError
from millpond_products.rules import folding, patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from millpond_products.rules.folding import View

Hit = tuple[int, int, int]
"""The number of the rule, and where in the folded text its word begins and ends."""

CHAIN_MAX: Final = 32
"""The maximum length of a word that is found if it is separated."""

_TOKEN: Final = re.compile(r"[^\W_]+")
_LEET: Final = re.compile(r"[0-9@$!|+]")
_DRAWN_OUT: Final = re.compile(r"([^\W\d_])\1\1")
_RUN: Final = re.compile(r"([^\W\d_])\1{2,}")
# Parts of a word with signs between them, or single letters with anything between them.
_CHAIN: Final = patterns.expression(r"[\pL\pN]+(?:[^\s\pL\pN]{1,3}[\pL\pN]+)+")
_LETTERS: Final = patterns.expression(r"(?:^|[^\pL\pN])[\pL\pN](?:[^\pL\pN]{1,3}[\pL\pN]){2,}(?:[^\pL\pN]|$)")
_TAILS: Final = frozenset({"s", "t", "d", "m", "ll", "re", "ve"})
"""What may follow an apostrophe: ``he'll`` is two words."""
_SIGN: Final = r"[\x00-/:-@\[-`{-\x7f]"  # a folded text has no other signs
WORDS_MAX: Final = 20_000
"""Words of all rules together, without the built-in list of profanity."""
LITERALS_MAX: Final = 200_000
"""Steps of all words together that are searched letter by letter."""
_TRIE_MAX: Final = 60_000
"""Letters up to which a pattern of all words is made; a larger one saves little time."""


class Literals(NamedTuple):
    """Words of one rule that are searched letter by letter."""

    rule: int
    expression: str
    is_bounded: bool
    """Whether a match must not begin or end inside a word."""


class Lexicon:
    """The words of all rules."""

    def __init__(self) -> None:
        self._plain = _Words()
        self._leet = _Words()
        self.size = 0
        """The number of words that rules contain, without the built-in list."""
        self.literals: list[Literals] = []

    def add(
        self,
        rule: int,
        words: Iterable[str],
        *,
        whole_words: bool,
        leet: bool,
        field: str,
        is_builtin: bool = False,
    ) -> None:
        dense: list[str] = []
        odd: list[str] = []
        for place, word in enumerate(words):
            form = _form(word, f"{field}[{place}]")
            if not whole_words or folding.DENSE.search(form.text):
                dense.append(form.text)
            elif form.is_odd:
                odd.append(form.text)
            else:
                self._plain.add(rule, form)
                if leet:
                    self._leet.add(rule, _leet_form(form))
            self.size += not is_builtin
        if self.size > WORDS_MAX:
            raise InputError(
                f"All rules together have more than {WORDS_MAX:,} words.", field=field, hint="Use fewer words."
            )
        for texts, is_bounded in ((dense, False), (odd, True)):
            if texts:
                self.literals.append(Literals(rule, _alternatives(texts), is_bounded))

    def close(self) -> list[tuple[str, Callable[[View], Iterator[Hit]]]]:
        """Prepare the searches, now that all words are known. Each one is worthwhile only if its pattern matches."""
        used = [(words, find) for words, find in ((self._plain, self._find), (self._leet, self._find_leet)) if words]
        return [(words.close(is_leet=words is self._leet), find) for words, find in used]

    def _find(self, view: View) -> Iterator[Hit]:
        """Every word of a rule in a folded text."""
        return self._plain.find(view)

    def _find_leet(self, view: View) -> Iterator[Hit]:
        """The words that are written with a digit or sign; ``_find`` finds those in letters alone."""
        if _LEET.search(view.text):
            for rule, start, end in self._leet.find(folding.View(folding.leet(view.text))):
                if _LEET.search(view.text, start, end):
                    yield rule, start, end


def find_literals(literals: Literals, expression: Any, view: View) -> Iterator[Hit]:
    text = view.text
    for first, last in patterns.places(expression, view.data):
        start, end = view.char(first), view.char(last)
        if literals.is_bounded and (_goes_on(text, start - 1, start) or _goes_on(text, end - 1, end)):
            continue
        yield literals.rule, start, end


def _goes_on(text: str, left: int, right: int) -> bool:
    """Whether both characters belong to the same word."""
    return left >= 0 and right < len(text) and text[left].isalnum() and text[right].isalnum()


class _Form(NamedTuple):
    """A word of a rule in the form in which it is searched."""

    text: str
    parts: tuple[str, ...]
    is_stem: bool
    is_odd: bool


def _form(word: str, field: str) -> _Form:
    is_stem = word.rstrip().endswith("*") and len(word.strip()) > 1
    text = " ".join(folding.fold(word.rstrip().removesuffix("*") if is_stem else word).split())
    parts = tuple("".join(_TOKEN.findall(part)) for part in text.split())
    if not text:
        raise InputError("The word contains no visible characters.", field=field)
    is_odd = not (text[0].isalnum() and text[-1].isalnum() and all(parts))
    if is_stem and (len(parts) != 1 or is_odd):
        raise InputError("Only a single word of letters and digits can end with *.", field=field)
    return _Form(text, parts, is_stem, is_odd)


def _leet_form(form: _Form) -> _Form:
    return form._replace(parts=tuple(part.translate(folding.LEET) for part in form.parts))


def _alternatives(texts: Sequence[str]) -> str:
    escaped = (re.sub(r"([^\w ])", r"\\\1", text) if text.isascii() else _quoted(text) for text in sorted(set(texts)))
    return f"(?:{'|'.join(escaped)})"


def _quoted(text: str) -> str:
    return "".join(
        letter if letter.isalnum() or not letter.isascii() or letter == " " else f"\\{letter}" for letter in text
    )


# The characters that `folding.LEET` reads as each letter, as a class.
_LEET_LETTERS: Final = {
    letter: f"[{re.escape(letter + ''.join(chr(sign) for sign, read in folding.LEET.items() if read == ord(letter)))}]"
    for letter in map(chr, set(folding.LEET.values()))
}


def _trie(words: Iterable[str], stems: Iterable[str], written: Mapping[str, str]) -> str:
    """One pattern of all words: a trie of their letters, which allows signs between letters and repeated letters.

    In a trie, a text takes a single path, however many words there are. If the trie would be too large, the pattern
    matches every text. Matches are verified later, so it may match too much, but never too little.
    """
    root: dict[str, Any] = {}
    size = 0
    for end, texts in (("$", words), ("*", stems)):
        for text in texts:
            node = root
            for letter in text:
                size += letter not in node
                node = node.setdefault(letter, {})
            node[end + end] = {}
    return f"(?:^|[^a-z0-9]){_branches(root, written)}" if size <= _TRIE_MAX else "(?s:.)"


def _branches(node: Mapping[str, Any], written: Mapping[str, str]) -> str:
    made: list[str] = []
    for letter, below in node.items():
        if letter == "$$":
            made.append("(?:[^a-z0-9]|$)")
        elif letter == "**":
            return ""  # any ending
        elif letter == " ":
            made.append(_branches(below, written))
        else:
            gap = f"{_SIGN}*" if "$$" not in below or len(below) > 1 else ""
            made.append(f"{written.get(letter, letter)}+{gap}{_branches(below, written)}")
    return f"(?:{'|'.join(made)})"


class _Tree:
    """A trie of letters or of words, with the rules that its sequences belong to.

    Nodes are numbers, and all of them share one dictionary: a dictionary for each would take many times the memory.
    """

    def __init__(self) -> None:
        self.ends: dict[int, list[int]] = {}
        self._steps: dict[tuple[int, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self._steps)

    def add(self, sequence: Iterable[str]) -> int:
        """Add a sequence; returns the node at its end."""
        node = 0
        for part in sequence:
            node = self._steps.setdefault((node, part), len(self._steps) + 1)
        return node

    def step(self, node: int, part: str) -> int:
        """The node after this one; 0 if there is none."""
        return self._steps.get((node, part), 0)


class _Words:
    """Words, stems and phrases, with the rules that they belong to. A stem is the beginning of a word."""

    def __init__(self) -> None:
        self._words: dict[str, list[int]] = defaultdict(list)
        self._stems: dict[str, list[int]] = defaultdict(list)
        self._phrases: dict[tuple[str, ...], list[int]] = defaultdict(list)
        self._firsts: set[str] = set()
        self._parts = _Tree()
        self._letters = _Tree()
        self._begins: dict[int, list[int]] = {}
        """The rules of the stems that end at a node of ``_letters``."""
        self._stem_lengths: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._words or self._stems or self._phrases)

    def add(self, rule: int, form: _Form) -> None:
        first, *rest = form.parts
        owners = self._phrases[form.parts] if rest else (self._stems if form.is_stem else self._words)[first]
        if rule not in owners[-1:]:
            owners.append(rule)

    def close(self, *, is_leet: bool) -> str:
        """Prepare the search. Returns a pattern that matches every text with one of the words, however disguised."""
        for known, ends in ((self._words, self._letters.ends), (self._stems, self._begins)):
            for word, owners in known.items():
                if len(word) <= CHAIN_MAX and not word.isdecimal():
                    ends[self._letters.add(word)] = owners
        for parts, owners in self._phrases.items():
            self._parts.ends[self._parts.add(parts)] = owners
        self._firsts = {first for first, *_ in self._phrases}
        self._stem_lengths = sorted({len(stem) for stem in self._stems})
        phrases = map(" ".join, self._phrases)
        return _trie((*self._words, *phrases), self._stems, _LEET_LETTERS if is_leet else {})

    def find(self, view: View) -> Iterator[Hit]:
        yield from self._find_whole(view.text)
        yield from self._find_apart(view)

    def _find_whole(self, text: str) -> Iterator[Hit]:
        """The words that are in the text unchanged, or stretched."""
        tokens = _TOKEN.findall(text)
        present = set(tokens)
        known = self._known(present)
        if _DRAWN_OUT.search(text):
            for word in present:
                if _DRAWN_OUT.search(word):
                    known[word] = known.get(word, []) + self._shortened(word)
        starts = self._firsts & present
        if not known and not starts:
            return
        places = [found.span() for found in _TOKEN.finditer(text)]
        for place, word in enumerate(tokens):
            for rule in known.get(word, ()):
                yield rule, *places[place]
            if word in starts:
                for rule, last in self._phrases_at(tokens, place):
                    yield rule, places[place][0], places[last][1]

    def _phrases_at(self, tokens: Sequence[str], place: int) -> Iterator[tuple[int, int]]:
        """The rules of the phrases that begin with this word, and the word at which each phrase ends."""
        node = 0
        for last in range(place, len(tokens)):
            node = self._parts.step(node, tokens[last])
            if not node:
                return
            for rule in self._parts.ends.get(node, ()):
                yield rule, last

    def _known(self, present: set[str]) -> dict[str, list[int]]:
        known = {word: list(self._words[word]) for word in self._words.keys() & present}
        if self._stems:
            for word in present:
                if rules := self._begun(word):
                    known[word] = known.get(word, []) + rules
        return known

    def _begun(self, word: str) -> list[int]:
        """The rules that have a stem of this word."""
        return [
            rule for length in self._stem_lengths if length <= len(word) for rule in self._stems.get(word[:length], ())
        ]

    def _shortened(self, word: str) -> list[int]:
        forms = {_RUN.sub(r"\1", word), _RUN.sub(r"\1\1", word)}
        return [rule for form in forms for rule in (*self._words.get(form, ()), *self._begun(form))]

    def _find_apart(self, view: View) -> Iterator[Hit]:
        """The words that are separated."""
        if not self._letters:
            return
        for expression in (_CHAIN, _LETTERS):
            for first, last in patterns.places(expression, view.data):
                start = view.char(first)
                yield from self._joined(view.text[start : view.char(last)], start)

    def _joined(self, chain: str, offset: int) -> Iterator[Hit]:
        links = [(found[0], offset + found.start(), offset + found.end()) for found in _TOKEN.finditer(chain)]
        words, begins = self._letters.ends, self._begins
        for first, (word, start, stop) in enumerate(links):
            begun: list[int] = []
            node, end = self._along(0, word, begun), stop
            for place in range(first + 1, len(links)):
                if not node:
                    break
                link, begin, after = links[place]
                if link in _TAILS and chain[end - offset : begin - offset] == "'" and _is_tail(links, place, first):
                    break
                node, end = self._along(node, link, begun), after
                for rule in words.get(node, ()):
                    yield rule, start, end
                if begun and (len(link) > 1 or node in begins):  # otherwise it was found one letter earlier
                    for rule in (rule for passed in begun for rule in begins[passed]):
                        yield rule, start, _letters_end(links, place)

    def _along(self, node: int, link: str, begun: list[int]) -> int:
        """The node after all letters of a link; 0 if there is none. Adds the stems that end on the way to ``begun``."""
        for letter in link:
            node = self._letters.step(node, letter)
            if not node:
                return 0
            if node in self._begins:
                begun.append(node)
        return node


def _is_tail(links: Sequence[tuple[str, int, int]], place: int, first: int) -> bool:
    before = links[place - 1][0]
    return len(before) > 1 or (before == "i" and place - 1 == first)


def _letters_end(links: Sequence[tuple[str, int, int]], place: int) -> int:
    """Where the single letters after a link end: they are the rest of its word."""
    last = min(place + CHAIN_MAX, len(links) - 1)
    while place < last and len(links[place + 1][0]) == 1:
        place += 1
    return links[place][2]
