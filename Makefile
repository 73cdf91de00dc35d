# Everything a person types. `make` alone lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
DESTDIR ?=
BINDIR := $(DESTDIR)$(PREFIX)/bin
COMPLETIONS := $(DESTDIR)$(PREFIX)/share
UNITDIR := $(DESTDIR)$(PREFIX)/lib/systemd/system
RULESDIR := $(DESTDIR)$(PREFIX)/lib/udev/rules.d
USERSDIR := $(DESTDIR)$(PREFIX)/lib/sysusers.d
# What takes symbols out of the programs that are installed; empty to leave them in.
STRIP ?= strip

RELEASE := $(or $(CARGO_TARGET_DIR),target)/release
XTASK := cargo run --quiet --locked --package xtask --

.PHONY: help build built demo test test-long bench lab install uninstall need-cargo

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

build: need-cargo ## build the binaries `polder` and `polder-lab`
	cargo build --release --locked --package polder
	cargo build --release --locked --package polder-lab --bin polder-lab

demo: build ## two gateways and a gretap tunnel carry real traffic (complete as root)
	$(RELEASE)/polder demo

test: need-cargo ## every check and test; installs missing tools when root; what CI runs
	scripts/install-test-dependencies
	$(XTASK) ci

test-long: need-cargo ## soak tests, more interleavings, valgrind, fuzzing
	scripts/install-test-dependencies --long
	$(XTASK) long

bench: need-cargo ## micro-benchmarks of all crates
	cargo bench --locked --workspace

lab: build ## every measurement of the lab, in its quick form
	$(RELEASE)/polder lab run all --quick

install: built ## install what `make build` has built, completions, the systemd unit, udev rule and group below PREFIX (/usr/local)
	install -D -m 0755 $(if $(STRIP),-s --strip-program=$(STRIP)) -t $(BINDIR) $(RELEASE)/polder $(RELEASE)/polder-lab
	install -d $(COMPLETIONS)/bash-completion/completions $(COMPLETIONS)/zsh/site-functions $(COMPLETIONS)/fish/vendor_completions.d
	$(RELEASE)/polder completions bash > $(COMPLETIONS)/bash-completion/completions/polder
	$(RELEASE)/polder completions zsh > $(COMPLETIONS)/zsh/site-functions/_polder
	$(RELEASE)/polder completions fish > $(COMPLETIONS)/fish/vendor_completions.d/polder.fish
	install -d $(UNITDIR)
	for unit in packaging/*.service; do \
		sed 's|/usr/local/bin/|$(PREFIX)/bin/|g' "$$unit" > $(UNITDIR)/"$${unit##*/}"; \
	done
	install -D -m 0644 -t $(RULESDIR) packaging/70-polder-usb.rules
	install -D -m 0644 packaging/polder.sysusers $(USERSDIR)/polder.conf

uninstall: ## remove what `make install` put there
	rm -f $(BINDIR)/polder $(BINDIR)/polder-lab
	rm -f $(COMPLETIONS)/bash-completion/completions/polder $(COMPLETIONS)/zsh/site-functions/_polder
	rm -f $(COMPLETIONS)/fish/vendor_completions.d/polder.fish
	for unit in packaging/*.service; do rm -f $(UNITDIR)/"$${unit##*/}"; done
	rm -f $(RULESDIR)/70-polder-usb.rules $(USERSDIR)/polder.conf

# Root, who installs, seldom has cargo, and what it builds would belong to root.
built:
	@test -x $(RELEASE)/polder -a -x $(RELEASE)/polder-lab || $(MAKE) build

need-cargo:
	@command -v cargo >/dev/null || { \
		echo "cargo is missing: install Rust 1.95 or newer (rustup, with the components clippy and rustfmt)" >&2; \
		exit 1; }
