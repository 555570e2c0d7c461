"""``python -m nq.train``: see ``nq.commands.train``."""

from nq.commands.train import main

if __name__ == "__main__":
    raise SystemExit(main())
