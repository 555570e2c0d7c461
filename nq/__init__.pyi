from .answers import Answer, Page
from .bundle import bundled_sample
from .config import DecisionConfig, WindowConfig
from .errors import Error
from .evaluation.evaluate import evaluate
from .formats.documents import page_from_html, page_from_text
from .formats.inputs import read_page
from .inference.profile import Profile
from .lab.measure import compare
from .model.convert import convert
from .model.model import Model
from .questions import read_examples
from .reader import Reader, load, pipeline
from .records import Example
from .runs.config import Compute
from .runs.job import Job
from .runs.run import run
from .runs.tuning import tune
from .training.train import train

__all__ = [
    "Answer",
    "Compute",
    "DecisionConfig",
    "Error",
    "Example",
    "Job",
    "Model",
    "Page",
    "Profile",
    "Reader",
    "WindowConfig",
    "bundled_sample",
    "compare",
    "convert",
    "evaluate",
    "load",
    "page_from_html",
    "page_from_text",
    "pipeline",
    "read_examples",
    "read_page",
    "run",
    "train",
    "tune",
]

__version__: str
