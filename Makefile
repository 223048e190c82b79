# Two commands are enough: `make run` starts the proxy, `make test` runs every test.

GO          ?= go
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS     := -X main.version=$(VERSION)
STATICCHECK := $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
BENCHSTAT   := $(GO) run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
FUZZTIME    ?= 60s

.DEFAULT_GOAL := build
.PHONY: help build run check vet lint fmt test test-deps unit race interop shape cover fuzz bench bench-base loadtest rivals golden release clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build ./proxy
	$(GO) build -ldflags '$(LDFLAGS)' -o proxy .

FRONT ?= www.debian.org
PORT  ?= $(if $(filter 0,$(shell id -u)),443,8443)

run: build config.toml ## build, write config.toml if there is none, start the proxy and print the link
	./proxy run --links config.toml

config.toml: | build
	umask 077; secret=$$(./proxy generate-secret $(FRONT)) && \
		printf 'secret  = "%s"\nbind-to = "0.0.0.0:%s"\n' "$$secret" $(PORT) > $@

check: fmt vet lint race ## what a change must pass

fmt:
	@out=$$(gofmt -l .); test -z "$$out" || { echo "not gofmt-ed: $$out"; exit 1; }

vet:
	$(GO) vet ./...
	cd interop && $(GO) vet ./...

lint:
	$(STATICCHECK) ./...
	cd interop && $(STATICCHECK) ./...

test: test-deps unit race interop ## install what the tests need, run every test

test-deps:
	sh interop/install.sh

unit:
	$(GO) test ./...

race:
	$(GO) test -race ./...

interop:
	cd interop && $(GO) test -count=1 -timeout 10m ./...
	@echo 'not run: interop TestShape and TestRivals, which measure for minutes; see make shape, make rivals'

shape: ## how close shaped sessions come to their fronts: three minutes
	cd interop && INTEROP_SHAPE=1 $(GO) test -count=1 -v -timeout 20m -run 'TestShape|TestServerHelloLike|TestFrontMoves' .

cover: ## coverage of the unit tests
	$(GO) test -coverprofile=cover.out ./... && $(GO) tool cover -func=cover.out | tail -1

# Minimising each new input, as Go does by default, would take most of a minute.
fuzz: ## every fuzz target for FUZZTIME
	@for p in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
			$(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$p || exit 1; \
		done; \
	done

BENCH_BASE := testdata/bench-base.txt

BENCH      := $(GO) test -run '^$$' -bench . -benchmem -benchtime 0.2s -count 10 ./...

bench: ## ten runs of every benchmark, compared with the stored ones
	$(BENCH) > bench.txt
	$(BENCHSTAT) $(BENCH_BASE) bench.txt

bench-base: ## store the benchmarks of the present code
	mkdir -p testdata && $(BENCH) > $(BENCH_BASE)

# A smaller size is that of .ci/run: make loadtest LEVELS=1000,4000 TIME=1s. With fewer clients the pages of code that the
# first of them touch count for more than their sessions.
LEVELS ?= 1000,5000,9000
TIME   ?= 5s

loadtest: build ## two minutes of load, with bounds that a regression breaks
	./proxy loadtest idle --connections $(LEVELS) --expect 'bytes_per_connection<=2.75KiB'
	./proxy loadtest bulk --connections 1,16 --duration $(TIME) --expect 'cpu_s_per_gb_1<=1.5' --expect 'cpu_s_per_gb_16<=1.5'
	./proxy loadtest bulk --connections 1,16 --duration $(TIME) --direction up --expect 'cpu_s_per_gb_1<=2.5' --expect 'cpu_s_per_gb_16<=2.5'
	./proxy loadtest ping --connections 1 --duration $(TIME) --expect 'added_p50_ms<=5'
	./proxy loadtest churn --duration $(TIME) --expect 'handshake_cpu_ms<=0.75'
	./proxy loadtest slow --stalled 20,100 --expect 'bytes_per_stalled<=32KiB'
	./proxy loadtest front --connections 200 --duration $(TIME) --expect 'visit_cpu_ms<=1'

rivals: build ## the proxy beside another one, HAProxy, nginx and a plain Go relay: twenty minutes, as root
	cd interop && INTEROP_PROXY=$(CURDIR)/proxy INTEROP_RIVALS=3 $(GO) test -count=1 -v -timeout 60m -run TestRivals .

golden: ## rewrite the golden files; review the diff
	$(GO) test ./... -update

release: ## a reproducible build
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w $(LDFLAGS)' -o proxy .

clean:
	rm -f proxy bench.txt cover.out
