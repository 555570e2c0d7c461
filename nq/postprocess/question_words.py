"""What an English question asks for, by its words."""

import re

OTHER = "other"
YES_NO_VERBS = (
    *("am", "is", "are", "was", "were", "be", "do", "does", "did", "have", "has", "had"),
    *("can", "could", "may", "might", "must", "shall", "should", "will", "would"),
    *("ain't", "aren't", "isn't", "wasn't", "weren't", "don't", "doesn't", "didn't", "can't"),
)
WORDS = {word: word for word in ("who", "when", "where", "what", "which", "how", "why")}
WORDS |= {"whom": "who", "whose": "who"}
HOW_MANY = "how many"
YES_NO_VERB = "yes/no verb"


def question_word(question: str) -> str:
    """Returns the kind of a question: its yes/no verb in front, else its first question word.

    >>> [question_word(q) for q in ("who's it", "is it when", "in what year", "how many", "moon")]
    ['who', 'yes/no verb', 'what', 'how many', 'other']
    """
    words = re.findall(r"[\w']+", question.lower().replace("\u2019", "'"))
    if words and words[0] in YES_NO_VERBS:
        return YES_NO_VERB
    words = [word.split("'")[0] for word in words]
    position = next((i for i, word in enumerate(words) if word in WORDS), None)
    if position is None:
        return OTHER
    if words[position] == "how" and words[position + 1 : position + 2] in (["many"], ["much"]):
        return HOW_MANY
    return WORDS[words[position]]


def asks_for_words(question: str) -> bool:
    """Returns whether a question asks for something else than yes or no, by a question word.

    >>> asks_for_words("how much was he paid"), asks_for_words("was he paid when he left")
    (True, False)
    """
    return question_word(question) not in (YES_NO_VERB, OTHER)
