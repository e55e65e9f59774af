"""`python -m mltrainer`."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the folder that one stands in, which may be a stranger's: nothing is imported from it

from mltrainer.cli.main import main

if __name__ == "__main__":
    main()
