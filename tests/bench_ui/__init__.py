"""How fast the page is, in a real browser: `python -m tests.bench_ui`, or `make bench-ui`."""
