"""`python -m backend` is the same as `tokenwalk`."""

from backend.cli import main

if __name__ == "__main__":
    main()
