# What people type. `make test` is the test command of the README.
GO ?= go

.PHONY: test lint bench fuzz

test:
	$(GO) vet ./...
	$(GO) test -race -shuffle=on -timeout 20m ./...
	./internal/interop/install.sh
	$(GO) test -race -shuffle=on -timeout 5m -tags interop ./internal/interop

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these"; exit 1; }
	$(GO) vet ./...
	$(GO) run honnef.co/go/tools/cmd/staticcheck@2025.1.1 ./...

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...
