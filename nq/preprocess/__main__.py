"""``python -m nq.preprocess``: see ``nq.commands.preprocess``."""

from nq.commands.preprocess import main

if __name__ == "__main__":
    raise SystemExit(main())
