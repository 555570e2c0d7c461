"""nq answers Natural Questions from whole Wikipedia pages with a BERT-Joint model.

The public names are those in ``nq/__init__.pyi``. Each is imported when it is first used:
``import nq`` alone loads neither TensorFlow, Beam nor MLflow.

>>> import nq
>>> str(nq.Profile.parse("xla+mixed"))
'mixed+xla'
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
