"""Keywords: a word is found however it is dressed up, and only where it stands as a word."""

# ruff: noqa: RUF001 - letters that look alike are the point
from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from products.tests.rules.deciding import decide, found, ruleset

from millpond.errors import InputError
from millpond_products.rules import Keywords, Profanity, folding
from millpond_products.rules.keywords import Lexicon

SECRET = Keywords(words=("secret",))

DRESSED_UP = {
    "as it is": "secret",
    "capitals": "SeCReT",
    "accents": "sécrèt",
    "accents that are characters of their own": "se\u0301cre\u0300t",
    "Cyrillic letters": "ѕесrеt",
    "Greek letters": "sεcrετ",
    "full width": "ｓｅｃｒｅｔ",
    "mathematical letters": "𝐬𝑒𝒸𝓇𝕖𝗍",
    "letters in circles": "ⓢⓔⓒⓡⓔⓣ",
    "letters in boxes": "🅂🄴🄲🅁🄴🅃",
    "letters in black boxes": "🆂🅴🅲🆁🅴🆃",
    "small capitals": "ꜱᴇᴄʀᴇᴛ",
    "zero-width spaces": "s\u200be\u200bc\u200br\u200be\u200bt",
    "a soft hyphen": "sec\u00adret",
    "a word joiner": "sec\u2060ret",
    "a bidirectional mark": "sec\u202eret",
    "variation selectors": "s\ufe0fecret",
    "tags": "sec\U000e0041ret",
    "a Hangul filler": "sec\u3164ret",
    "a joiner of marks": "sec\u034fret",
    "places that are kept free": "s\u2065\u2065\u2065\u2065ecr\U000e0080\U000e0080\U000e0080\U000e0080et",
    "controls": "s\x01\x01\x01\x01ecr\x7fet",
    "Cherokee letters": "ᏚᎬᏟᎡᎬᎢ",
    "small Cherokee letters": "ꮪꭼꮯꭱꭼꭲ",
    "Lisu letters": "ꓢꓰꓚꓣꓰꓔ",
    "full stops": "s.e.c.r.e.t",
    "one full stop": "sec.ret",
    "hyphens": "s-e-c-r-e-t",
    "underscores": "s_e_c_r_e_t",
    "stars": "s**e**c**r**e**t",
    "bullets": "s•e•c•r•e•t",
    "hearts": "s♥e♥c♥r♥e♥t",
    "spaces": "s e c r e t",
    "wide spaces": "s\u2003e\u2003c\u2003r\u2003e\u2003t",
    "lines": "s\ne\nc\nr\ne\nt",
    "drawn out": "seeeecret",
    "drawn out at its end": "secretttttt",
}


@pytest.mark.parametrize("written", DRESSED_UP.values(), ids=DRESSED_UP.keys())
async def test_a_word_is_found_however_it_is_written(written: str) -> None:
    text = f"This is {written}, you know."
    assert await found(text, SECRET) == [written]
    decision = await decide(text, Keywords(words=("secret",), label="hush"), action="redact")
    assert decision.text == "This is [HUSH], you know."


@pytest.mark.parametrize("text", ["secretary", "nosecrets", "sec ret", "secre t", "s e c r e d", ""])
async def test_a_part_of_another_word_is_not_the_word(text: str) -> None:
    assert await found(text, SECRET) == []


async def test_contractions_are_two_words() -> None:
    assert await found("He'll see that she'll go, and I'll be ill.", Keywords(words=("hell", "shell", "ill"))) == [
        "ill"
    ]
    assert await found("He’ll go", Keywords(words=("hell",))) == []
    assert await found("Oh h'e'l'l", Keywords(words=("hell",))) == ["h'e'l'l"]


@pytest.mark.parametrize("written", ["s3cr3t", "$ecret", "5ECRE7", "s3.cr.3t", "s3cr3t!"])
async def test_digits_are_letters_only_where_the_rule_says_so(written: str) -> None:
    assert await found(f"my {written} here", SECRET) == []
    assert await found(f"my {written} here", Keywords(words=("secret",), leet=True)) == [written.rstrip("!")]


async def test_one_may_be_an_i_or_an_l_but_letters_stay_what_they_are() -> None:
    rule = Keywords(words=("kill", "all"), leet=True)
    assert await found("k1ll ki11 ail a1l kiil", rule) == ["k1ll", "ki11", "a1l"]


async def test_phrases_stand_in_their_order_with_anything_between_them() -> None:
    rule = Keywords(words=("credit card", "top-secret plan"))
    assert await found("my credit   card, a CREDIT-CARD, crédit\ncard", rule) == [
        "credit   card",
        "CREDIT-CARD",
        "crédit\ncard",
    ]
    assert await found("credit cards, discredit card, card credit, creditcard", rule) == []
    assert await found("the topsecret plan", rule) == ["topsecret plan"]


async def test_phrases_that_begin_alike_are_each_found_where_they_end() -> None:
    rule = Keywords(words=("the red", "the red fox", "the red fox ran", "the blue", "red fox"))
    rules = ruleset(rule, Keywords(words=("the red fox",)))
    text = "the red fox sat; the blue red fox"
    listed = [(verdict.name, text[verdict.start : verdict.end]) for verdict in (await rules.decide(text)).verdicts]
    assert listed == [
        ("rule 0", "the red fox"),
        ("rule 0", "the blue"),
        ("rule 0", "red fox"),
        ("rule 1", "the red fox"),
    ]


async def test_a_star_stands_for_any_ending() -> None:
    assert await found("bank banking riverbank b.a.n.k.i.n.g", Keywords(words=("bank*",))) == [
        "bank",
        "banking",
        "b.a.n.k.i.n.g",
    ]
    assert await found("my b.a.nking", Keywords(words=("bank*",))) == ["b.a.nking"]
    assert await found("a ban.king s.ban", Keywords(words=("ban*", "bank"))) == ["ban.king", "ban"]


async def test_a_word_with_signs_at_its_edge_is_found_as_it_is() -> None:
    rule = Keywords(words=("c++", "@everyone", ".env"))
    assert await found("I write C++, not c; ping @everyone about .env", rule) == ["C++", "@everyone", ".env"]
    assert await found("abc++ and @everyones", rule) == []


async def test_scripts_without_spaces_are_looked_through() -> None:
    assert await found("这是坏词吗", Keywords(words=("坏词",))) == ["坏词"]
    assert await found("그건 비밀이야", Keywords(words=("비밀",))) == ["비밀"]
    assert await found("เป็นความลับนะ", Keywords(words=("ความลับ",))) == ["ความลับ"]


async def test_russian_and_greek_words_are_found_in_either_case() -> None:
    assert await found("ВОЙНА и война, ΠΌΛΕΜΟΣ", Keywords(words=("война", "πόλεμος"))) == ["ВОЙНА", "война", "ΠΌΛΕΜΟΣ"]


async def test_without_word_boundaries_any_place_counts() -> None:
    assert await found("topsecretary", Keywords(words=("secret",), whole_words=False)) == ["secret"]


async def test_every_rule_is_reported_by_its_own_words() -> None:
    text = "a credit card"
    rules = ruleset(Keywords(words=("credit",)), Keywords(words=("credit card",)), Keywords(words=("credit", "card")))
    listed = [(verdict.name, text[verdict.start : verdict.end]) for verdict in (await rules.decide(text)).verdicts]
    assert listed == [
        ("rule 0", "credit"),
        ("rule 1", "credit card"),
        ("rule 2", "credit"),
        ("rule 2", "card"),
    ]


async def test_so_many_words_that_no_sieve_is_made_are_found_all_the_same() -> None:
    letters = string.ascii_lowercase
    many = tuple(
        f"{a}{b}{c}{d}zzqx" for a in letters[:13] for b in letters[:16] for c in letters[:6] for d in letters[:4]
    )
    rule = Keywords(words=(*many[:4_990], "secret"))
    rules = ruleset(rule, Keywords(words=tuple(f"y{word}" for word in many[:4_990])))
    text = f"a s.e.c.r.e.t and {many[17]} and y{many[4_000]}"
    verdicts = (await rules.decide(text)).verdicts
    assert [text[v.start : v.end] for v in verdicts] == ["s.e.c.r.e.t", many[17], f"y{many[4_000]}"]


@pytest.mark.parametrize("word", ["", "  ", "\u200b", "two words*", "*"])
def test_a_word_of_which_nothing_can_be_seen_is_refused(word: str) -> None:
    if word == "*":
        ruleset(Keywords(words=(word,)))  # a star alone is just that
        return
    with pytest.raises(InputError) as caught:
        ruleset(Keywords(words=("fine", word)))
    assert caught.value.field == "rules[0].matcher.words[1]"


WORDS = st.lists(st.text("abil", min_size=1, max_size=4), min_size=1, max_size=6)
TEXTS = st.text("abil1!. -'_ée", max_size=40)


@settings(max_examples=400, deadline=None)
@given(words=WORDS, text=TEXTS, stems=st.booleans())
def test_the_sieve_lets_through_all_that_there_is(words: list[str], text: str, stems: bool) -> None:  # noqa: FBT001
    """What is found without the sieve is found by its pattern too: it may let pass too much, but never too little."""
    lexicon = Lexicon()
    lexicon.add(0, [f"{word}*" if stems else word for word in words], whole_words=True, leet=True, field="words")
    from millpond_products.rules.patterns import Sieve  # noqa: PLC0415 - what is under test

    for pattern, find in lexicon.close():
        view = folding.View(folding.fold(text))
        if list(find(view)):
            assert Sieve([pattern]).sift(view.data), (pattern, text)


# Profanity


@pytest.mark.parametrize(
    "text", ["Scunthorpe", "Essex", "Penistone", "assess the class", "he'll", "Dickens", "cockpit"]
)
async def test_innocent_words_are_not_profane(text: str) -> None:
    assert await found(text, Profanity()) == []


@pytest.mark.parametrize(
    "text", ["fuck", "FUCKING", "f.u.c.k", "fuuuuck", "sh1t", "b!tch", "Scheiße", "cabrón", "сука", "傻逼"]
)
async def test_profanity_is_found_in_many_languages(text: str) -> None:
    assert await found(f"oh {text} !", Profanity()) == [text]


async def test_the_list_can_be_added_to_and_allowed_from() -> None:
    assert await found("darn, bollocks", Profanity(extra=("darn",), allow=("bollocks",))) == ["darn"]
    assert await found("fucking", Profanity(allow=("fuck",))) == []
