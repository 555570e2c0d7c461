from .bundle import bundled_model, bundled_sample
from .config import (
    Beam,
    Compute,
    DecisionConfig,
    RankingWeights,
    TrackingConfig,
    TrainConfig,
    WindowConfig,
)
from .errors import Error
from .evaluation.evaluate import evaluate
from .evaluation.gate import Parity
from .formats.documents import page_from_html, page_from_text
from .formats.inputs import read_examples, read_page
from .inference.profile import Profile
from .model.spec import find_model
from .reader import Reader, load, pipeline
from .records import (
    Alternative,
    Annotation,
    Answer,
    Candidate,
    Example,
    Page,
    Prediction,
    Span,
    YesNo,
)
from .runs.compare import compare
from .runs.job import Job
from .runs.result import Result
from .runs.run import run

__all__ = [
    "Alternative",
    "Annotation",
    "Answer",
    "Beam",
    "Candidate",
    "Compute",
    "DecisionConfig",
    "Error",
    "Example",
    "Job",
    "Page",
    "Parity",
    "Prediction",
    "Profile",
    "RankingWeights",
    "Reader",
    "Result",
    "Span",
    "TrackingConfig",
    "TrainConfig",
    "WindowConfig",
    "YesNo",
    "bundled_model",
    "bundled_sample",
    "compare",
    "evaluate",
    "find_model",
    "load",
    "page_from_html",
    "page_from_text",
    "pipeline",
    "read_examples",
    "read_page",
    "run",
]

__version__: str
