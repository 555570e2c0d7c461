"""Makes yes/no questions of questions with a short answer: "is Paris the capital of France".

The wording follows that of the question, by a few patterns; a question that fits none makes none.
Half of the claims are wrong: the answer is replaced by a number or a name from the same paragraph.
"""

import random
import re
from collections.abc import Iterator, Sequence

from experiments import Values

Record = Values

BE = "is|are|was|were"
AUXILIARIES = f"{BE}|did|does|do|will|has|have|had|can"
PREPOSITIONS = "in|on|at|from|during|after|before|since|by|around|near|between|until"
WH = "(?:who|what|which|where)"
PATTERNS = [
    (rf"{WH}(?: \w+){{0,2}}? ({AUXILIARIES}) (.+ (?:{PREPOSITIONS}|of|for|to|with|as|about|like))",
     "{0} {1} {a}"),
    (rf"what ({BE}) (.+ (?:called|named))", "{0} {1} {a}"),
    (r"(?:who|what) (did|does|do|will|can) (.+)", "{0} {1} {a}"),
    (rf"(?:who|what|which \w+) ({BE}|has|have|had) (.+)", "{0} {a} {1}"),
    (rf"(?:in |during )?(?:what|which) (?:year|month|century|decade) ({AUXILIARIES}) (.+)",
     "{0} {1} in {a}"),
    (rf"when ({AUXILIARIES}) (.+)", "{0} {1} {p}{a}"),
    (rf"where ({AUXILIARIES}) (.+)", "{0} {1} {p}{a}"),
    (rf"how many (.+?) ({BE}) (.+)", "{1} {a} {0} {2}"),
    (r"how many (.+?) (did|does|do|have|has|had|can|will) (.+)", "{1} {2} {a} {0}"),
    (rf"how (?:long|old|tall|far|high|big|large|wide|deep|fast|much) ({AUXILIARIES}) (.+)",
     "{0} {1} {a}"),
    (r"who (\w+s) (.+)", "is it {a} who {0} {1}"),
    (r"who (.+)", "was it {a} who {0}"),
]  # fmt: skip
PREPOSITION = re.compile(rf"(?:{PREPOSITIONS}|the day|late|early)\b", re.IGNORECASE)
DAY = re.compile(r"[A-Z]\w+ \d{1,2}\b|\d{1,2} [A-Z]\w+")
NUMBER = re.compile(r"\d[\d,.]*")
NAME = re.compile(r"[A-Z][\w'.-]*(?: (?:of |the |de |[A-Z0-9][\w'.-]*)*[A-Z0-9][\w'.-]*)?")
MAX_WORDS = 8


def claims(records: Sequence[Record], seed: int) -> Iterator[Record]:
    """Yields a record for each one that makes a claim: its question, and yes or no as answer."""
    for record in records:
        draw = random.Random(f"{seed}/{record['example_id']}")
        annotation = record["annotations"][0]
        shorts = annotation["short_answers"]
        if len(shorts) != 1:
            continue
        answer, block = (_text(record, span) for span in (shorts[0], annotation["long_answer"]))
        right = draw.random() < 0.5
        said = answer if right else other_answer(answer, block, record["question_text"], draw)
        question = claim(record["question_text"], said) if said else None
        if question:
            word = "YES" if right else "NO"
            given = {**annotation, "short_answers": [], "yes_no_answer": word}
            yield {**record, "question_text": question, "annotations": [given]}


def _text(record: Record, span: Record) -> str:
    tokens = record["document_text"].split(" ")[span["start_token"] : span["end_token"]]
    return " ".join(token for token in tokens if not token.startswith("<"))


def claim(question: str, answer: str) -> str | None:
    """Returns the yes/no question whether ``answer`` answers ``question``, if a pattern fits.

    >>> claim("who was the first president of the US ?", "Washington")
    'was Washington the first president of the us'
    >>> claim("when was the bridge built", "1932"), claim("which county is it in", "Kent")
    ('was the bridge built in 1932', 'is it in Kent')
    >>> claim("why is it so", "rain")
    """
    text = question.lower().rstrip(" ?.")
    if len(answer.split()) > MAX_WORDS:
        return None
    for pattern, form in PATTERNS:
        if match := re.fullmatch(pattern, text):
            bare = PREPOSITION.match(answer)
            preposition = "" if bare else "on " if DAY.match(answer) else "in "
            return form.format(*match.groups(), a=answer, p=preposition).rstrip()
    return None


def other_answer(answer: str, block: str, question: str, draw: random.Random) -> str | None:
    """Returns a wrong answer: another number or another name of the block, if it has one."""
    pattern = NUMBER if NUMBER.search(answer) else NAME
    known = f"{answer} {question}".lower()
    found = {match[0].rstrip(",.") for match in pattern.finditer(block)}
    others = sorted(one for one in found if one.lower() not in known and len(one) > 1)
    if pattern is NUMBER:
        own = NUMBER.search(answer)
        others = [one for one in others if own and len(one) == len(own[0].rstrip(",."))]
        number = draw.choice(others) if others else None
        return number and NUMBER.sub(number, answer, count=1)
    starts = {match[0].split()[0] for match in re.finditer(r"(?:^|[.!?\"] )(\w+)", block)}
    names = [one for one in others if one not in starts and answer[:1].isupper()]
    return draw.choice(names) if names else None
