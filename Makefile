# The habits of this repository. `make` alone lists them.

GO ?= go
TOOL := $(GO) tool -modfile=.ci/tools.mod
# Reads `go test -json`, prints what go test would, then a table of skips; fails on
# a skip that test/skips/expected.txt does not name.
SKIPS := $(GO) run ./test/skips
# The packages with concurrency of their own, as far as they exist.
RACE := $(foreach d,ads reconcile test/dataplane test/fleet,$(if $(wildcard $(d)/*.go),./$(d)/...))
FUZZTIME ?= 20s

# The test files of this module, one a line, and the folders of those that hold $(1).
TESTFILES = $(GO) list -e -find -f '{{$$d := .Dir}}{{range .TestGoFiles}}{{$$d}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$$d}}/{{.}}{{"\n"}}{{end}}' ./... | grep .
with = $(sort $(patsubst %/,%,$(dir $(shell $(TESTFILES) | xargs grep -lE $(1)))))

.DEFAULT_GOAL := help
.PHONY: help check fmt fmt-check vet lint darwin test race sim sim-replay e2e e2e-deps bench bench-compile bench-plan screenshot golden fuzz vuln

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: fmt-check vet lint darwin ## format, vet, lint, build for darwin, fast tests: before each commit
	$(GO) test -short -json ./... | $(SKIPS)

fmt: ## format all Go files
	$(TOOL) gofumpt -w .

fmt-check:
	@files=$$($(TOOL) gofumpt -l .) && if [ -n "$$files" ]; then printf 'not formatted (make fmt):\n%s\n' "$$files" >&2; exit 1; fi

vet:
	$(GO) vet -tags e2e ./...

lint:
	$(TOOL) staticcheck -tags e2e ./...

darwin:
	GOOS=darwin $(GO) build ./...

test: ## all tests but those of e2e, with a table of skips
	$(GO) test -json ./... | $(SKIPS)
	cd test/peer && $(GO) test .

race: ## the race detector, on the packages with concurrency
	$(if $(RACE),$(GO) test -race -json $(RACE) | $(SKIPS),@echo "race: no such package yet")

SIMCHECKS ?= 10000
sim: ## modelled clients: SIMCHECKS (10000) of each property of paths, and as many histories
	$(GO) test -json ./planner -timeout 30m -rapid.checks $(SIMCHECKS) | $(SKIPS)
	$(GO) test -json ./test/sim -timeout 30m -histories $(SIMCHECKS) -stop 20 | $(SKIPS)

REPLAYS ?= 200
sim-replay: ## REPLAYS (200) seeds played to the models and to grpc-go and MOSN: they must agree
	$(GO) test -tags e2e -v -count 1 -timeout 30m ./test/sim -run TestReplay -replays $(REPLAYS)

e2e: ## real clients and load, one package at a time
	$(GO) test -p 1 -tags e2e -timeout 30m -json ./cmd/sluice ./test/... | $(SKIPS)

e2e-deps: ## install what `make e2e` runs: MOSN, the C core of gRPC, grpc-js, tmux
	test/clients/deps.sh

PEERS ?=
bench: PKGS = $(call with,'^func Benchmark')
bench: ## the benchmarks; PEERS='-n 1000 -size a -json FILE' for a part of the table beside peers
	$(GO) test -p 1 -run '^$$' -bench . -benchmem $(PKGS)
	cd test/peer && $(GO) run . run $(PEERS)

bench-compile: ## from tree to fleet, 10,000 services, beside cue export
	$(GO) run ./test/benchcompile -n $(or $(SERVICES),10000)

bench-plan: ## plans of 10,000 clusters and 50,000 routes, beside their goals
	@echo 'goals: one changed service 50 ms and 50 MB (Commit .../changed=1), everything 5 s (changed=10000),'
	@echo '       a step 2 us and 0 allocations (Step), a class of sessions that is new 50 us (NewClass, way=one); cpu-ns/op is for a busy machine'
	$(GO) test -run '^$$' -bench 'Commit|NewClass|Document|Step' -benchmem ./planner

screenshot: ## docs/top-*.svg, from a real rollout in tmux
	$(GO) test ./cmd/sluice -run '^TestTopInTmux$$' -screenshot

golden: PKGS = $(call with,'flag[.]Bool.*"update"')
golden: ## rewrite the golden files; read the diff
	$(if $(PKGS),$(GO) test $(PKGS) -update,@echo "golden: no golden file yet")

fuzz: ## each fuzz target for FUZZTIME (20s)
	@$(TESTFILES) | xargs grep -HoE '^func Fuzz[A-Za-z0-9_]+' | while IFS=: read -r file func; do \
		echo "$$(dirname "$$file"): $${func#func }"; \
		$(GO) test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" </dev/null || exit 1; \
	done

vuln: ## known vulnerabilities in what is linked; needs the network
	$(TOOL) govulncheck ./...
