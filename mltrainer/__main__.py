"""`python -m mltrainer`; the package has taken the folder that one stands in off the path by now."""

from mltrainer.cli.main import main

if __name__ == "__main__":
    main()
