"""``python -m eval.nq_eval`` runs the official evaluation; see ``nq.evaluation.nq_eval``."""

from nq.commands.eval import main

if __name__ == "__main__":
    raise SystemExit(main(prog="nq_eval"))
