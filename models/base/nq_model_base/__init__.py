"""The model ``base`` of nq: this folder is the model folder that ``nq.load("base")`` reads."""
