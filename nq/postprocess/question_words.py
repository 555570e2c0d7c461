"""What an English question asks for, by its words."""

import re

OTHER = "other"
_YES_NO = re.compile(
    "am|is|are|was|were|be|do|does|did|have|has|had|can|could|may|might|must|shall|should|will|"
    "would|(?:ai|are|is|was|were|do|does|did|ca)n't"
)
WORDS = {word: word for word in ("who", "when", "where", "what", "which", "how", "why")}
WORDS |= {"whom": "who", "whose": "who"}
HOW_MANY, YES_NO_VERB = "how many", "yes/no verb"


def question_word(question: str) -> str:
    """Returns the kind of a question: its yes/no verb in front, else its first question word.

    >>> [question_word(q) for q in ("who's it", "is it when", "in what year", "how many", "moon")]
    ['who', 'yes/no verb', 'what', 'how many', 'other']
    """
    words = re.findall(r"[\w']+", question.lower().replace("\u2019", "'"))
    if words and _YES_NO.fullmatch(words[0]):
        return YES_NO_VERB
    words = [word.split("'")[0] for word in words]
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "how" and following in ("many", "much"):
            return HOW_MANY
        if word in WORDS:
            return WORDS[word]
    return OTHER


def asks_for_words(question: str) -> bool:
    """Returns whether a question asks for something else than yes or no, by a question word.

    >>> asks_for_words("how much was he paid"), asks_for_words("was he paid when he left")
    (True, False)
    """
    return question_word(question) not in (YES_NO_VERB, OTHER)
