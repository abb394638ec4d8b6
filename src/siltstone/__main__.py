"""`python -m siltstone` is `silt`."""

from siltstone.cli.main import main

if __name__ == "__main__":
    main()
