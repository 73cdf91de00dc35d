# Everything a person types. `make` alone lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
DESTDIR ?=
BINDIR := $(DESTDIR)$(PREFIX)/bin
COMPLETIONS := $(DESTDIR)$(PREFIX)/share
MANDIR := $(DESTDIR)$(PREFIX)/share/man
ZSHDIR := $(COMPLETIONS)/zsh/site-functions
UNITDIR := $(DESTDIR)$(PREFIX)/lib/systemd/system
RULESDIR := $(DESTDIR)$(PREFIX)/lib/udev/rules.d
USERSDIR := $(DESTDIR)$(PREFIX)/lib/sysusers.d
CNIDIR := $(DESTDIR)$(PREFIX)/lib/cni
# The programs that are installed.
PROGRAMS ?= polder polder-top polder-demo polder-lab
# What takes symbols out of the programs that are installed; empty to leave them in.
STRIP ?= strip

TARGET := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/release
XTASK := cargo run --quiet --locked --package xtask --

.PHONY: help build built demo test test-long bench lab install uninstall deb sbom site need-cargo

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

build: need-cargo ## build the binaries `polder`, `polder-top`, `polder-demo` and `polder-lab`
	cargo build --release --locked --package polder --package polder-top
	cargo build --release --locked --package polder-demo --package polder-lab --bins

demo: need-cargo ## two gateways and a gretap tunnel carry real traffic (complete as root)
	cargo build --profile demo --locked --package polder --package polder-demo
	$(TARGET)/demo/polder demo

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

install: built ## install what `make build` has built, completions, man pages, the systemd unit, udev rule, group and CNI plugin below PREFIX (/usr/local)
	install -D -m 0755 $(if $(STRIP),-s --strip-program=$(STRIP)) -t $(BINDIR) $(PROGRAMS:%=$(RELEASE)/%)
	install -d $(COMPLETIONS)/bash-completion/completions $(ZSHDIR) $(COMPLETIONS)/fish/vendor_completions.d
	$(RELEASE)/polder completions bash > $(COMPLETIONS)/bash-completion/completions/polder
	$(RELEASE)/polder completions zsh > $(ZSHDIR)/_polder
	$(RELEASE)/polder completions fish > $(COMPLETIONS)/fish/vendor_completions.d/polder.fish
	rm -rf $(MANDIR)/new
	$(RELEASE)/polder manual-pages $(MANDIR)/new
	install -D -m 0644 -t $(MANDIR)/man1 $(MANDIR)/new/*.1
	install -D -m 0644 -t $(MANDIR)/man5 $(MANDIR)/new/*.5
	rm -r $(MANDIR)/new
	install -d $(UNITDIR)
	for unit in packaging/*.service; do \
		sed 's|/usr/local/bin/|$(PREFIX)/bin/|g' "$$unit" > $(UNITDIR)/"$${unit##*/}"; \
	done
	install -D -m 0644 -t $(RULESDIR) packaging/70-polder-usb.rules
	install -D -m 0644 packaging/polder.sysusers $(USERSDIR)/polder.conf
	install -d $(CNIDIR)
	ln -sf ../../bin/polder $(CNIDIR)/polder-cni

uninstall: ## remove what `make install` put there
	rm -f $(PROGRAMS:%=$(BINDIR)/%)
	rm -f $(COMPLETIONS)/bash-completion/completions/polder $(ZSHDIR)/_polder
	rm -f $(COMPLETIONS)/fish/vendor_completions.d/polder.fish
	rm -f $(MANDIR)/man1/polder.1 $(MANDIR)/man1/polder-*.1 $(MANDIR)/man5/polder.toml.5
	for unit in packaging/*.service; do rm -f $(UNITDIR)/"$${unit##*/}"; done
	rm -f $(RULESDIR)/70-polder-usb.rules $(USERSDIR)/polder.conf $(CNIDIR)/polder-cni

deb: need-cargo ## build the Debian package and its list of components (SBOM) in target/deb
	scripts/sbom target/deb
	scripts/build-deb

sbom: need-cargo ## write the list of components (CycloneDX) to target/deb
	scripts/sbom target/deb

site: need-cargo ## build the site of the documents and manual pages in target/site
	scripts/mdbook
	cargo build --locked --package polder
	$(XTASK) site

# Root, who installs, seldom has cargo, and what it builds would belong to root.
built:
	@for program in $(PROGRAMS); do test -x $(RELEASE)/"$$program" || exec $(MAKE) build; done

need-cargo:
	@command -v cargo >/dev/null || { \
		echo "cargo is missing: install Rust 1.95 or newer (rustup, with the components clippy and rustfmt)" >&2; \
		exit 1; }
