"""The HTML page of a finished run: its questions with their passages, figures and errors.

| step | file |
|---|---|
| prediction, gold, n-best list, page -> question | ``questions.py`` |
| page and answers of a question -> passages with marks | ``passages.py`` |
| answers of a question -> words | ``texts.py`` |
| question -> JSON for the script | ``entries.py`` |
| judgments, bins, seconds -> charts | ``charts.py`` |
| figures, error analysis -> tables with links | ``overview.py`` |
| all of them -> one file, or a file and parts beside it | ``page.py`` |

Text of the data reaches the page as JSON, in which no character can end a script, and the script
shows it as text only. The templates escape what they are given.
"""
