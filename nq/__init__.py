"""nq answers Natural Questions from whole Wikipedia pages with a BERT-Joint model.

Questions in memory:

    reader = nq.load()                    a model; reader.ask(QUESTION, PAGE) answers
    nq.pipeline("question-answering")     the same, called as the pipeline of transformers 4
    nq.read_page(FILE)                    a page; nq.page_from_text, nq.page_from_html

Files, as the commands of the same names, and ``nq answer``:

    nq.run(FILES, profile=…)              answers, scores, metrics
    nq.evaluate(GOLD, PREDICTIONS)        the metrics of a file of predictions
    nq.compare(FILES, PROFILES)           profiles, or models, against each other
    nq.tune(FILES, MODEL)                 fits the decision of a model
    nq.train(FILES, init=…, output=…)     makes a model
    nq.convert(MODEL, NEW, to=…)          converts a model, or exports it

All public names are in ``nq.__all__``. Each is imported when it is first used: ``import nq`` alone
loads neither TensorFlow, Beam nor MLflow.

>>> import nq
>>> str(nq.Profile("xla+mixed"))
'mixed+xla'
"""

import os
import sys
import warnings

try:
    import lazy_loader
except ModuleNotFoundError as error:  # a clone, run by a Python into which nq is not installed
    from nq.errors import not_installed

    if sys.argv[0] == "-m":  # Python looks for the module of a command, such as nq.answer
        raise SystemExit(f"nq: error: {not_installed('lazy_loader')}") from None
    raise ModuleNotFoundError(not_installed("lazy_loader"), name=error.name) from None

# Libraries that report to their makers read these switches when they are imported. OpenVINO and
# NNCF have none, but report nothing where ``openvino_telemetry`` cannot be imported.
for _library in ("HF_HUB", "MLFLOW", "ORT"):  # the last one is ONNX Runtime
    os.environ.setdefault(f"{_library}_DISABLE_TELEMETRY", "1")
os.environ.setdefault("DO_NOT_TRACK", "1")
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
# tqdm, which libraries import, warns in a notebook without ipywidgets.
warnings.filterwarnings("ignore", "IProgress not found")
__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
