"""Rules: which text may pass. Pure code: no files, no network, no database, and time proportional to the text.

>>> rules = compile([Rule(name="no mail", matcher=Pii(labels=("email",)), action="redact")], "inbound")
>>> (await rules.decide("Write to ann@example.com.")).text
'Write to [EMAIL].'
"""

from __future__ import annotations

from millpond_products.rules.classifiers import Classifier, Finding
from millpond_products.rules.gate import RulesGate, screen
from millpond_products.rules.rule import (
    RULES_MAX,
    TEXT_MAX,
    Action,
    Classified,
    Direction,
    Keywords,
    Length,
    Matcher,
    Mode,
    Pattern,
    Pii,
    Profanity,
    Rule,
    Secrets,
    Urls,
    check,
    read,
)
from millpond_products.rules.ruleset import (
    VERDICTS_MAX,
    Decision,
    Judged,
    RuleSet,
    Verdict,
    compile,  # noqa: A004 - the verb
)

__all__ = [
    "RULES_MAX",
    "TEXT_MAX",
    "VERDICTS_MAX",
    "Action",
    "Classified",
    "Classifier",
    "Decision",
    "Direction",
    "Finding",
    "Judged",
    "Keywords",
    "Length",
    "Matcher",
    "Mode",
    "Pattern",
    "Pii",
    "Profanity",
    "Rule",
    "RuleSet",
    "RulesGate",
    "Secrets",
    "Urls",
    "Verdict",
    "check",
    "compile",
    "read",
    "screen",
]
