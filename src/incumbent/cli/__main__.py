"""`python -m incumbent.cli` is `incumbent`."""

from incumbent.cli import main

if __name__ == "__main__":
    main()
