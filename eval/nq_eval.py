"""``python -m eval.nq_eval`` runs the official evaluation; see ``nq.evaluation.nq_eval``."""

from nq.evaluation.nq_eval import main

if __name__ == "__main__":
    raise SystemExit(main())
