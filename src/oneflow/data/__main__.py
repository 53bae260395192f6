"""``python -m oneflow.data``: makes, converts, shows and verifies record data sets."""

from oneflow.engine.data.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
