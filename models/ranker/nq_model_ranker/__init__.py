"""The model ``ranker`` of nq: this folder is the model folder that ``nq.load("ranker")`` reads."""
