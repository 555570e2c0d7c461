"""Where a finished run loses its answers: by kind of question, by stage, by confidence.

| step | file |
|---|---|
| the run's folder -> examples, predictions, scores | ``finished.py`` |
| example -> its kind, in words | ``traits.py`` |
| example, prediction, what each stage keeps -> case | ``losses.py`` |
| cases -> report | ``report.py`` |
| report -> text, page | ``text.py``, ``page.py`` |
"""
