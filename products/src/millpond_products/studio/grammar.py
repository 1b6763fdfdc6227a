"""A small grammar that writes copy about a product from its own facts, if no language model is configured.

It states nothing that the facts do not state. The same seed writes the same text, and another seed another one.
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millpond_products.studio.products import ProductFacts

Tone = Literal["friendly", "confident", "playful", "elegant", "urgent"]

HEADLINE_MAX: Final = 100
SCRIPT_MAX: Final = 320
_SENTENCE_MAX: Final = 160
_SENTENCE_MIN: Final = 12
_POINT_MAX: Final = 70
_NAME_MAX: Final = 60
_TAGS_MAX: Final = 6
_WORD_MIN: Final = 3
_STARS_MIN: Final = 4.0
_REVIEWS_MIN: Final = 5
_SYMBOLS: Final[Mapping[str, str]] = {
    "USD": "$",
    "EUR": "€",
    "GBP": "£",
    "JPY": "¥",
    "CAD": "CA$",
    "AUD": "A$",
    "INR": "₹",
}

_HEADLINES: Final[Mapping[Tone, Sequence[str]]] = {
    "friendly": (
        "Say hello to {the_name}",
        "{name}: made for days like yours",
        "Meet your new favorite: {name}",
        "You and {the_name} will get along",
        "{point}. That's {the_name}.",
        "A little good news: {the_name} is here",
        "{point}? Yes, please",
        "{brand} made this one for you",
        "Good things come with {the_name}",
        "All this for {price}",
    ),
    "confident": (
        "{name}. Built to be used.",
        "Stop settling. Start with {the_name}.",
        "{point}. No compromises.",
        "This is how {brand} does it",
        "{name}: the one you keep",
        "Everything you need. {price}.",
        "The details are the difference: {a_point}",
        "Made to last. Made by {brand}.",
        "You will not need another one: {name}",
        "Put {the_name} to the test",
    ),
    "playful": (
        "Plot twist: {the_name} exists",
        "Warning: {the_name} may cause envy",
        "{point}. We're as excited as you are.",
        "Your cart called. It wants {the_name}.",
        "Go on, treat yourself: {name}",
        "Too good to keep quiet about: {name}",
        "{price} of pure joy",
        "We made {the_name}. You're welcome.",
        "Once you go {name}, you don't go back",
        "Psst. {point}.",
    ),
    "elegant": (
        "{name}, considered in every detail",
        "Quietly remarkable: {name}",
        "{point}. Nothing more, nothing less.",
        "The art of {brand}",
        "Simply {name}",
        "Made with care. Made by {brand}.",
        "Where less becomes more: {name}",
        "An everyday object, perfected",
        "For those who notice: {a_point}",
        "{name}. Understated by design.",
    ),
    "urgent": (
        "{name}: get yours today",
        "Now at {price}: {name}",
        "Don't wait. Get {the_name}.",
        "Today is the day for {the_name}",
        "{point}. Ready when you are.",
        "Before everybody else has one: {name}",
        "Why wait? {name} is here now",
        "{price}. Today. {name}.",
        "The best time to get {the_name} is now",
        "Now is better than later: {name}",
    ),
}
_OPENINGS: Final[Mapping[Tone, Sequence[str]]] = {
    "friendly": (
        "Some things just make the day easier, and {the_name} is one of them.",
        "If you have been looking for something like this, here it is: {the_name}.",
        "We think you will like {the_name}.",
        "{The_name} is the kind of thing you soon reach for every day.",
    ),
    "confident": (
        "{The_name} does exactly what it promises.",
        "There are many like it. There is only one {name}.",
        "When it matters, you want {the_name}.",
        "{The_name} was made to be relied on.",
    ),
    "playful": (
        "We could go on about {the_name} all day. So we will, but briefly.",
        "Somebody had to make {the_name}. Lucky you.",
        "Once upon a time there was no such thing as {the_name}. Dark days.",
        "Fair warning: you will tell your friends about {the_name}.",
    ),
    "elegant": (
        "{The_name} begins with a simple thought: leave out what is not needed.",
        "There is a calm to things that are made well. {The_name} has it.",
        "Every line of {the_name} is there for a reason.",
        "{The_name} does not ask for attention. It simply deserves it.",
    ),
    "urgent": (
        "If you have been waiting for a sign, this is it: {the_name}.",
        "{The_name} is here, and there is no reason to wait.",
        "You know you want it, and today is a good day for it: {the_name}.",
        "The sooner you have {the_name}, the longer you enjoy it.",
    ),
}
_CLOSINGS: Final[Mapping[Tone, Sequence[str]]] = {
    "friendly": ("Come and have a look.", "We can't wait for you to try it.", "See for yourself how good it feels."),
    "confident": ("See it. Use it. Keep it.", "Judge for yourself.", "Try it once, and you will know."),
    "playful": ("Resistance is optional.", "Go on. We won't tell.", "Your future self says thanks."),
    "elegant": ("Discover it in your own time.", "It speaks for itself.", "Some things need no further words."),
    "urgent": ("Get yours now.", "Don't leave it for tomorrow.", "Order today and be done with waiting."),
}
_CALLS: Final[Mapping[Tone, Sequence[str]]] = {
    "friendly": ("Take a look", "Find yours", "Try it today"),
    "confident": ("Get it now", "See it in action", "Choose yours"),
    "playful": ("Gimme", "Treat yourself", "Yes, I want it"),
    "elegant": ("Discover more", "Explore the details", "View the piece"),
    "urgent": ("Order now", "Get yours today", "Buy now"),
}
_HOOKS: Final[Mapping[Tone, Sequence[str]]] = {
    "friendly": (
        "Okay, I have to tell you about {the_name}.",
        "So this just arrived, and I already love it: {the_name}.",
        "Let me show you something: {the_name}.",
    ),
    "confident": (
        "I don't say this often, but {the_name} is the real thing.",
        "I have tried a lot of these. {The_name} is the one I kept.",
        "Here is why I chose {the_name}.",
    ),
    "playful": (
        "Nobody asked me, but I'm talking about {the_name} anyway.",
        "Stop scrolling. This is {the_name}, and it is a whole mood.",
        "My new personality? {The_name}.",
    ),
    "elegant": (
        "I would like to show you something that is made well: {the_name}.",
        "A small thing, made with great care. This is {the_name}.",
        "Sometimes it is the quiet things. Like {the_name}.",
    ),
    "urgent": (
        "If you only watch one thing today, make it this: {the_name}.",
        "You'll want to see this before you buy anything else: {the_name}.",
        "Quick one: {the_name} is here.",
    ),
}
_TAGS: Final[Mapping[Tone, Sequence[str]]] = {
    "friendly": ("NewFavorite", "EverydayJoy", "MadeForYou"),
    "confident": ("BuiltToLast", "NoCompromise", "TheRealThing"),
    "playful": ("TreatYourself", "NeedIt", "ShopHappy"),
    "elegant": ("QuietLuxury", "DesignMatters", "LessIsMore"),
    "urgent": ("GetItNow", "JustIn", "DontMissOut"),
}
_POINTS: Final = ("The short version? {points}.", "What counts? {points}.", "What you get? {points}.")
_PRICES: Final = ("Yours for {price}.", "All of it for {price}.", "It costs {price}.")
_RATINGS: Final = (
    "{reviews} customers rate it {rating} out of 5.",
    "Rated {rating} out of 5 by {reviews} customers.",
)


class Copy(msgspec.Struct, kw_only=True):
    """The texts of an ad."""

    headlines: list[str]
    body: str
    call_to_action: str
    hashtags: list[str]
    script: str
    """The spoken text."""


def write(product: ProductFacts, *, tone: Tone, seed: int, headlines: int) -> Copy:
    chance = random.Random(f"{seed}/{tone}/{product.name}")  # noqa: S311 - reproducible on purpose
    facts = _facts(product, chance)
    return Copy(
        headlines=_headlines(facts, tone, chance, headlines),
        body=_body(product, facts, tone, chance),
        call_to_action=chance.choice(_CALLS[tone]),
        hashtags=_hashtags(product, tone, chance),
        script=_script(product, facts, tone, chance),
    )


# The facts, as they stand in a sentence


def _facts(product: ProductFacts, chance: random.Random) -> dict[str, str]:
    name = short_name(product.name)
    article = name if _stands_alone(name) else f"the {name}"
    facts = {"name": name, "the_name": article, "The_name": article[0].upper() + article[1:]}
    points = _points(product)
    chance.shuffle(points)
    given = {
        "brand": _clip(product.brand, _NAME_MAX),
        "price": money(product.price, product.currency),
        "point": points[0] if points else "",
        "a_point": _lowered(points[0]) if points else "",
        "points": ". ".join(points[:3]),
    }
    if product.rating is not None and product.rating >= _STARS_MIN and (product.reviews or 0) >= _REVIEWS_MIN:
        given |= {"rating": f"{product.rating:.1f}".removesuffix(".0"), "reviews": f"{product.reviews:,}"}
    return facts | {word: text for word, text in given.items() if text}


def short_name(name: str) -> str:
    """The name without what a shop adds for search engines after a bar or a dash."""
    head = re.split(r"\s+[|–—•·]\s+|\s+-\s+", " ".join(name.split()))[0]
    return _clip(head, _NAME_MAX)


def money(price: str, currency: str = "") -> str:
    """A price as people write it: 129.00 and USD are $129."""
    text = " ".join(price.split())
    if not re.fullmatch(r"[0-9]{1,9}(?:[.,][0-9]{1,2})?", text):
        return text[:24]
    amount = text.replace(",", ".")
    whole, _, cents = amount.partition(".")
    plain = whole if not cents.strip("0") else f"{whole}.{cents:0<2}"
    symbol = _SYMBOLS.get(currency.upper())
    if symbol is not None:
        return f"{symbol}{plain}"
    return f"{plain} {currency.upper()}".strip()[:24]


def _stands_alone(name: str) -> bool:
    """Whether a name needs no article: a single word, or a name that begins with an article."""
    first = name.partition(" ")[0].lower()
    return " " not in name or first in {"the", "a", "an", "my", "our", "your"}


def _points(product: ProductFacts) -> list[str]:
    """The features that are short enough."""
    given = [text.strip().rstrip(".!;,") for text in product.features]
    found = [text[0].upper() + text[1:] for text in given if text and len(text) <= _POINT_MAX]
    return list(dict.fromkeys(found))


def _sentences(product: ProductFacts) -> list[str]:
    parts = re.split(r"(?<=[.!?])\s+", " ".join(product.description.split()))
    whole = [part for part in parts if _SENTENCE_MIN <= len(part) <= _SENTENCE_MAX]
    return [part if part.endswith((".", "!", "?")) else f"{part}." for part in whole]


def _lowered(text: str) -> str:
    """The form within a sentence. A first word in capitals, or one that looks like a name, stays as it is."""
    head = text.partition(" ")[0]
    is_plain = head[1:].islower() and head.isalpha()
    return text[0].lower() + text[1:] if is_plain or head == "A" else text


def _clip(text: str, limit: int) -> str:
    """The text, cut to ``limit`` at the end of a word."""
    text = text.strip()
    if len(text) <= limit:
        return text
    cut = text[:limit].rsplit(" ", 1)[0] if " " in text[:limit] else text[:limit]
    return cut.rstrip(" ,;:–—-")


# The text


def _fitting(templates: Iterable[str], facts: Mapping[str, str], limit: int = 1_000) -> list[str]:
    """The texts of the templates for which all facts are known."""
    made: list[str] = []
    for template in templates:
        if set(re.findall(r"\{(\w+)\}", template)) <= set(facts):
            text = template.format_map(facts)
            made += [text[0].upper() + text[1:]] if len(text) <= limit else []
    return made


def _headlines(facts: Mapping[str, str], tone: Tone, chance: random.Random, wanted: int) -> list[str]:
    made = _fitting(_HEADLINES[tone], facts, HEADLINE_MAX) or [facts["name"]]
    return chance.sample(made, min(wanted, len(made)))


def _body(product: ProductFacts, facts: Mapping[str, str], tone: Tone, chance: random.Random) -> str:
    sentences = [chance.choice(_fitting(_OPENINGS[tone], facts)), *_sentences(product)[:2]]
    for templates in (_POINTS, _RATINGS, _PRICES):
        fitting = _fitting(templates, facts)
        sentences += [chance.choice(fitting)] if fitting else []
    return " ".join([*sentences, chance.choice(_CLOSINGS[tone])])


def _script(product: ProductFacts, facts: Mapping[str, str], tone: Tone, chance: random.Random) -> str:
    end = chance.choice(_CLOSINGS[tone])
    sentences = [chance.choice(_fitting(_HOOKS[tone], facts))]
    more = [*_sentences(product)[:2]]
    for templates in (_POINTS, _RATINGS, _PRICES):
        fitting = _fitting(templates, facts)
        more += [chance.choice(fitting)] if fitting else []
    for sentence in more:
        if len(" ".join([*sentences, sentence, end])) <= SCRIPT_MAX:
            sentences.append(sentence)
    return " ".join([*sentences, end])


def _hashtags(product: ProductFacts, tone: Tone, chance: random.Random) -> list[str]:
    words = re.findall(r"\w+", short_name(product.name))
    whole = "".join(part[0].upper() + part[1:] for part in words[:4])
    named = [] if whole.isdigit() else [whole]
    brand = "".join(part[0].upper() + part[1:] for part in re.findall(r"\w+", product.brand)[:3])
    mood = list(_TAGS[tone])
    chance.shuffle(mood)
    kind = [words[-1].capitalize()] if len(words) > 1 and words[-1].isalpha() and len(words[-1]) >= _WORD_MIN else []
    tags = [tag[:40] for tag in (brand, *named, *kind, *mood) if tag]
    return [f"#{tag}" for tag in dict.fromkeys(tags)][:_TAGS_MAX]
