"""Error analysis of a finished run: by kind of question, by stage and by confidence.

| step | file |
|---|---|
| folder of a run -> examples, predictions, scores | ``finished.py`` |
| example -> its traits, such as the question word | ``traits.py`` |
| example, prediction, output of each stage -> case | ``losses.py`` |
| cases -> report | ``report.py`` |
| report -> text, HTML page | ``text.py``, ``page.py`` |
"""
