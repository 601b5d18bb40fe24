# mudev: `make help` lists what can be made. Targets that need a tool install it on Debian (as root) and
# name it elsewhere (test/need.sh).

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

.DEFAULT_GOAL := all
.PHONY: help all demo check test lint layers static vm bench results fuzz attack man install clean peer tools

CARGO   ?= cargo
PREFIX  ?= /usr
DESTDIR ?=
INIT    ?=
WITH_UDEV_NAMES ?= 0
STATIC  := x86_64-unknown-linux-gnu
RELEASE := target/release
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/sbin:/sbin

all: tools ## the release build: target/release/mudev, with mudevd and mudevadm beside it (plain `make`)
	$(CARGO) build --release --locked
	ln -sf mudev $(RELEASE)/mudevd
	ln -sf mudev $(RELEASE)/mudevadm

tools:
	@test/need.sh cargo cc

demo: all ## what mudev does, on real devices in a private namespace, in under 30 s after the build
	@test/need.sh ip losetup strace
	@test/demo.sh $(RELEASE)

check: lint layers man test ## everything a change must pass: format, lint, layers, man pages, all tests
	test/install.sh $(RELEASE)/mudev

lint: tools ## format, clippy, what nobody uses and links of comments, warnings are errors
	@test/need.sh rustfmt clippy
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	CARGO="$(CARGO)" test/unused.sh
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet --locked --no-deps --document-private-items

layers: tools ## pure layers stay pure, unsafe stays in sys/, mio in daemon/, no circle of files
	$(CARGO) test --locked --test layers

test: tools ## unit tests, corpus, fuzz corpus, real-kernel tests
	@test/need.sh ip losetup strace
	@test/need.sh peer || echo "The tests beside Debian's udev and libudev are skipped."
	$(CARGO) build --locked --release
	$(CARGO) test --locked --no-fail-fast

static: tools ## a static executable (glibc), tested in an empty chroot
	RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --release --locked --target $(STATIC)
	ln -sf mudev target/$(STATIC)/release/mudevd
	ln -sf mudev target/$(STATIC)/release/mudevadm
	test/static.sh target/$(STATIC)/release/mudev

vm: static ## Debian's kernel under QEMU with our static build and with Debian's udevd, dumps compared; INIT="openrc s6 ..." or INIT=all: under these init systems
ifeq ($(INIT),)
	test/vm/run.sh target/$(STATIC)/release/mudev
else
	test/vm/systems.sh target/$(STATIC)/release/mudev $(INIT)
endif

bench: all peer ## beside Debian's udevd and a bare loop: CPU, wall, memory, latency, claims, start-up
	@test/need.sh ip strace
	$(CARGO) bench --locked --bench bench -- $(BENCH)

results: all peer ## `make bench` in full, recorded in test/bench/RESULTS.md and README.md
	@test/need.sh ip strace
	$(CARGO) bench --locked --bench bench >target/results.md || { cat target/results.md; exit 1; }
	test/bench/record.sh target/results.md

fuzz: tools ## the fuzz targets guided by coverage, for FUZZ_SECONDS (60) each, FUZZ_JOBS (1) at once; without a C++ compiler on mutations
	test/fuzz/run.sh

attack: tools ## attacks on the daemon on the real kernel, for SECONDS (600); SEED= repeats a run, ATTACK= takes those of this name
	@test/need.sh ip losetup
	ATTACK_SECONDS=$(or $(SECONDS),600) ATTACK_SEED=$(SEED) ATTACK="$(ATTACK)" \
	    $(CARGO) test --locked --test attacks -- --nocapture

man: ## check the manual pages
	@test/need.sh groff
	test/man.sh man/*.[1-8]

peer:
	@test/need.sh peer

install: all ## into $(DESTDIR)$(PREFIX); INIT="openrc ..." (init/README.md) adds service files, WITH_UDEV_NAMES=1 udev's names
	DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" INIT="$(INIT)" WITH_UDEV_NAMES="$(WITH_UDEV_NAMES)" init/install.sh $(RELEASE)/mudev

clean: ## remove target/
	$(CARGO) clean
