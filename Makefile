# `make help` lists what there is. The work is done by the scripts in .make/.

.PHONY: run setup setup-dev test check bench-ui lock wheel clean help
.DEFAULT_GOAL := run

# Options for the command that a target ends in: make ARGS="--model tiny", make test ARGS="tests/engine -k sampling"
ARGS =

run: setup  ## set up, then start the server and the dashboard (this is plain `make`)
	@exec .venv/bin/tokenwalk serve $(ARGS)

setup:  ## environment in .venv, locked dependencies, built-in model
	@sh .make/setup

setup-dev:
	@sh .make/setup --dev

test: setup-dev  ## set up, then every test
	@sh .make/test $(ARGS)

check: setup-dev  ## format, lint, types (Python and JavaScript), generated files in step
	@sh .make/check

bench-ui: setup-dev  ## how fast the page is in a real browser, each figure beside its bar
	@.venv/bin/python -m tests.bench_ui $(ARGS)

lock:  ## resolve requirements.lock anew (needs uv)
	uv pip compile --universal --python-version 3.11 --extra dev --upgrade --no-emit-index-url \
	    --custom-compile-command "make lock" --quiet pyproject.toml -o requirements.lock

wheel: setup-dev  ## build the wheel into dist/
	@.venv/bin/python -m hatchling build -t wheel

clean:  ## remove all that was made here, the environment included
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find engine backend tests -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## this list
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile
