# What people type. `make help` lists it; .ci/run is what must be green.

GO ?= go
BIN := $(CURDIR)/bin
GOLANGCI_VERSION := v2.15.0

# Test runs of two packages at a time: each has a PostgreSQL of its own.
TEST_FLAGS ?= -p 2 -timeout 15m
FUZZTIME ?= 30s

race_flag = $$(GO='$(GO)' sh internal/tools/race.sh)

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: postgres ## Three workers share a git history; one is killed. REPO=… LIMIT=… choose it.
	@$(GO) run ./examples/gitchurn

.PHONY: test
test: postgres ## Run all tests, with the race detector where it works.
	$(GO) test $(race_flag) $(TEST_FLAGS) ./...
	$(GO) test -count=1 -run '^TestPubSubReconnect$$' ./shardpub # the suite's own code races here

.PHONY: test-short
test-short: postgres ## Run the tests without the long ones.
	$(GO) test -short $(TEST_FLAGS) ./...

.PHONY: race
race: postgres ## Run all tests twice with the race detector, or fail.
	$(GO) test -race -count=2 $(TEST_FLAGS) ./...

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME (30s).
	GO='$(GO)' sh internal/tools/fuzz.sh $(FUZZTIME)

.PHONY: suite
suite: postgres ## Run Watermill's universal suite in full (half an hour).
	SUISHA_SUITE=full $(GO) test $(race_flag) -count=1 -v -run '^TestPubSub' -timeout 60m ./shardpub/
	SUISHA_SUITE=full $(GO) test -count=1 -v -run '^TestPubSubReconnect$$' -timeout 60m ./shardpub/

.PHONY: pooler
pooler: postgres ## Run the tests that need PgBouncer.
	$(GO) test $(race_flag) -count=1 -tags pgbouncer -run Pooler ./shardpub/

.PHONY: simulate
simulate: ## Simulate ownership over SCHEDULES (20,000) random schedules; a million take over an hour.
	$(GO) test -count=1 -timeout $(if $(SCHEDULES),4h,4m) -run '^TestSimulatedOwnership' ./lease -sim.schedules=$(or $(SCHEDULES),20000)

.PHONY: chaos
chaos: postgres ## Break worker processes at random for a minute; DURATION=… SEED=… choose.
	$(GO) run ./integration/chaos -duration $(or $(DURATION),60s) $(if $(SEED),-seed $(SEED))

.PHONY: bench
bench: postgres ## Measure suisha beside its peers (ten minutes). ONLY=… REPEATS=… choose.
	cd integration/bench && GOWORK=off $(GO) run -tags peers . $(if $(ONLY),-only $(ONLY)) $(if $(REPEATS),-repeats $(REPEATS)) $(if $(JSON),-json $(abspath $(JSON)))

.PHONY: bench-peers
bench-peers: postgres ## Run each case of the benchmark once over little, the peers' too (minutes).
	cd integration/bench && GOWORK=off $(GO) vet -tags peers ./...
	cd integration/bench && GOWORK=off $(GO) test -tags peers -timeout 10m ./...
	sh internal/tools/peers.sh write

.PHONY: bench-docs
bench-docs: postgres ## Measure, and write tables and charts into docs.
	cd integration/bench && GOWORK=off $(GO) run -tags peers . -svg $(CURDIR)/docs/bench -markdown $(CURDIR)/docs/BENCHMARKS.md

.PHONY: lint
lint: $(BIN)/golangci-lint-$(GOLANGCI_VERSION) ## Run golangci-lint; the first run builds it (minutes).
	$(BIN)/golangci-lint run ./...

.PHONY: format
format: tools ## Format all Go files.
	$(BIN)/gofumpt -w .

.PHONY: check
check: ## Run what must be green: .ci/run.
	.ci/run

.PHONY: tools
tools: ## Build gofumpt and staticcheck into ./bin.
	cd internal/tools && GOWORK=off $(GO) build -o $(BIN)/ mvdan.cc/gofumpt honnef.co/go/tools/cmd/staticcheck

.PHONY: postgres
postgres: ## Make sure that there is a PostgreSQL; as root, install one.
	@sh internal/tools/postgres.sh

$(BIN)/golangci-lint-$(GOLANGCI_VERSION):
	GOWORK=off GOBIN=$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@touch $@
