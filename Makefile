# What people do with this project, one word each. Everything made lands in build/.

export CARGO_TARGET_DIR := $(CURDIR)/build/cargo

# What follows "##" is what `make help` says of a target.
.PHONY: help build demo test soak bench footprint deb server stop lint
.DEFAULT_GOAL := help

help:   ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

build:  ## set up if needed, then build the plugin into build/plugin/ha_rrd.so
	@scripts/build_plugin.sh

demo: build ## show it: load, compare with InnoDB, kill the server, count what survived
	@scripts/demo.sh

test:   ## run all tests; the last line counts those passed and failed
	@scripts/test.sh

soak: build ## run all loops with random numbers side by side for HOURS=0.5: kills, DDL, rings, XA, replicas, backups, fuzzing; the last line counts
	@tests/soak/run

bench: build ## load and query the same data in RRD and its peers, table and plots in docs/bench/ (QUICK=1: a short try; ROWS=, ENGINES=, MODE=: see bench/bench.py)
	@scripts/setup.sh bench
	@scripts/venv.sh bench
	@cargo build --release --quiet -p rrd-gen
	@build/venv/bin/python bench/bench.py

footprint: build ## bytes on disk over twenty laps of rings and of InnoDB, and the plot in docs/bench/
	@scripts/venv.sh bench
	@build/venv/bin/python bench/footprint.py

deb: build ## the Debian package mariadb-plugin-rrd for the server that was found, into build/deb/
	@scripts/deb.sh

server: build ## start a private server with the engine and say how to connect
	@scripts/server.sh start

stop:   ## stop that server
	@scripts/server.sh stop

lint: build ## formatting, clippy, licences; C++ warnings are errors in every build
	@scripts/lint.sh
