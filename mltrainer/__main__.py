"""`python -m mltrainer`."""

from mltrainer.cli.main import main

if __name__ == "__main__":
    main()
