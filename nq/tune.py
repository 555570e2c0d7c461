"""``python -m nq.tune``: see ``nq.commands.tune``."""

from nq.commands.tune import main

if __name__ == "__main__":
    raise SystemExit(main())
