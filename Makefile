# What people type. `make test` is the test command of the README.
GO ?= go

.PHONY: test lint bench fuzz costs

# Every module of the workspace: the root first, then the nested ones.
test:
	@for dir in $$($(GO) list -m -f '{{.Dir}}'); do \
		echo "== $$dir"; \
		(cd $$dir && $(GO) vet ./... && $(GO) test -race -shuffle=on -timeout 20m ./...) || exit 1; \
	done
	@$(MAKE) --no-print-directory costs interop

# The MCP servers of the interop tests come from npm. CI has Node; elsewhere the
# tests are left out where it is missing.
.PHONY: interop
interop:
	@if [ -n "$$CI" ] || command -v npm >/dev/null; then \
		./internal/interop/install.sh && \
		$(GO) test -race -shuffle=on -timeout 5m -tags interop ./internal/interop && \
		$(MAKE) --no-print-directory conformance; \
	else \
		echo "Node is not installed: the tests with MCP servers from npm are left out"; \
	fi

# The public MCP conformance suite, with a Node that npm has for Linux only.
.PHONY: conformance
conformance:
	@if [ "$$(uname -sm)" = "Linux x86_64" ]; then \
		./internal/interop/conformance/run.sh; \
	else \
		echo "the MCP conformance suite is left out: it runs on Linux x86_64"; \
	fi

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these"; exit 1; }
	$(GO) vet ./...
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

# What the hot paths allocate, without the race detector, which adds to it.
costs:
	$(GO) test -run '^TestCost' $$(dirname $$(git ls-files '*_alloc_test.go') | sort -u | sed 's|^|./|')

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

# kitbag beside other frameworks. Each of them is a module of its own that is not
# in go.work: one workspace has one version of every dependency, theirs would
# change what our tests run with, and `make test` would have to download them all.
.PHONY: bench-peers
bench-peers:
	cd bench && GOWORK=off $(GO) run . -out RESULTS.md
