"""``python -m nq.convert``: see ``nq.commands.convert``."""

from nq.commands.convert import main

if __name__ == "__main__":
    raise SystemExit(main())
