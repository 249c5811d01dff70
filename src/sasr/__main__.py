"""`python -m sasr` is the `sasr` command."""

from sasr.cli import main

if __name__ == "__main__":
    main()
