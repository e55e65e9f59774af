"""`python -m mltrainer`; the package has removed the current folder from the path by now."""

from mltrainer.cli.main import main

if __name__ == "__main__":
    main()
