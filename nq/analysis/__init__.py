"""Error analysis: by kind of question, by stage and by confidence.

| step | file |
|---|---|
| example -> its traits, such as the question word | ``traits.py`` |
| example, prediction, output of each stage -> case | ``losses.py`` |
| cases -> analysis | ``summary.py`` |
| analysis -> tables for a terminal | ``text.py`` |
"""
