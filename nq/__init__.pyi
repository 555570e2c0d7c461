from .bundle import bundled_sample
from .config import (
    Beam,
    Compute,
    DecisionConfig,
    TrackingConfig,
    WindowConfig,
)
from .errors import Error
from .evaluation.evaluate import evaluate
from .formats.documents import page_from_html, page_from_text
from .formats.inputs import read_examples, read_page
from .inference.profile import Profile
from .model.spec import find_model
from .reader import Reader, load, pipeline
from .records import (
    Answer,
    Example,
    Page,
    YesNo,
)
from .runs.compare import compare
from .runs.job import Job
from .runs.run import run

__all__ = [
    "Answer",
    "Beam",
    "Compute",
    "DecisionConfig",
    "Error",
    "Example",
    "Job",
    "Page",
    "Profile",
    "Reader",
    "TrackingConfig",
    "WindowConfig",
    "YesNo",
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
