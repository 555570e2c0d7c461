"""``python -m nq.clean``: see ``nq.commands.clean``."""

from nq.commands.clean import main

if __name__ == "__main__":
    raise SystemExit(main())
