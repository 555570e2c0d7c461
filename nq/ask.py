"""``python -m nq.ask``: see ``nq.commands.ask``."""

from nq.commands.ask import main

if __name__ == "__main__":
    raise SystemExit(main())
