# What people type. `make test` is the test command of the README; .ci/run runs it, and then what takes longer.
GO ?= go

.PHONY: test race heavy lint bench costs

# Every package of every module in go.work, but for internal/heavy, whose tests start heavy servers and foreign programs.
light = $$($(GO) list work | grep -v /internal/heavy)

test:
	$(GO) test -short -timeout 10m $(light)

race:
	$(GO) test -short -race -shuffle=on -timeout 20m $(light)

# The tests with heavy servers, which they install or compile, and the long forms of those that -short shortens.
heavy:
	$(GO) test -timeout 30m $$(dirname $$(git grep -l 'testing.Short()' -- '*_test.go') | sort -u | sed 's|^|./|')
	$(GO) test -tags pdfium -run '^TestPDF$$' ./cmd/kitbag
	$(GO) test -timeout 30m ./internal/heavy/...

# That each module's go.mod is tidy and has no replace ("make tidy" puts it right).
.PHONY: modules tidy
modules:
	@./internal/modules/tidy.sh -diff

tidy:
	@./internal/modules/tidy.sh
	@cd internal/heavy/temporalserver/server && GOWORK=off $(GO) mod tidy # which is not in go.work: it requires hundreds of others
	@cd examples/anthropicclouds && GOWORK=off $(GO) mod tidy # which is not in go.work either

# `make release VERSION=v0.1.0` fills dist/proxy, a module proxy, with all modules of the last commit; it tags and pushes
# nothing. `make stranger` uses it as others will.
.PHONY: release stranger
release:
	@./internal/modules/release.sh "$(VERSION)"

stranger:
	@./internal/modules/release.sh v0.0.1-check
	@./internal/modules/stranger.sh v0.0.1-check

# MCP servers, MCP clients and AG-UI clients from npm; they need Node 20.
.PHONY: interop
interop:
	@./internal/heavy/interop/install.sh && ./agui/interop/install.sh
	$(GO) test -race -shuffle=on -timeout 15m -tags interop ./internal/heavy/interop ./agui/interop

# Compiles everything, with the tests, for macOS and Windows.
.PHONY: cross
cross:
	@./internal/modules/cross.sh

# The public MCP conformance suite, with a Node that npm has for Linux on x86_64 only.
.PHONY: conformance
conformance:
	@./internal/heavy/interop/conformance/run.sh

# staticcheck takes a minute the first time, some seconds later.
lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "run gofmt -w on these"; exit 1; }
	$(GO) vet work
	$(GO) vet -tags live ./model/modeltest
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 work

# The example for Bedrock and Vertex, a module that is not in go.work: only it needs the clouds' SDKs.
.PHONY: clouds
clouds:
	cd examples/anthropicclouds && GOWORK=off $(GO) vet ./... && GOWORK=off $(GO) test -race ./...

# The contract of models with real servers, for whoever has keys: it needs OPENAI_API_KEY,
# KITBAG_LIVE_OPENAI_MODEL, ANTHROPIC_API_KEY and KITBAG_LIVE_ANTHROPIC_MODEL, and costs a few cents.
# It has not been run yet.
.PHONY: live
live:
	$(GO) test -count=1 -v -tags live -run '^TestLive' ./model/modeltest

# What the hot paths allocate, without the race detector, which adds to it, and how many bytes the lists of eight
# real MCP servers have.
costs:
	$(GO) test -run '^TestCost' $$(dirname $$(git ls-files '*_alloc_test.go') | sort -u | sed 's|^|./|')
	$(GO) test -count=1 -v -run '^TestCostClosed$$' ./mcpgateway

# schedules runs random schedules with hostile users, issuers, servers and token endpoints: the first a million times in
# half an hour, the second, with logins, 50,000 times in ten minutes.
.PHONY: schedules
schedules:
	$(GO) test -count=1 -timeout 12h ./mcpgateway -run TestTokensOfUsers -rapid.seed=0 -rapid.checks=1000000
	$(GO) test -count=1 -timeout 12h ./mcpgateway -run TestLoginsOfUsers -rapid.seed=0 -rapid.checks=50000

# The properties that `make test` tries with a few values, always the same, with many
# others: some minutes. A longer look is one package and more checks.
.PHONY: explore
explore:
	@for dir in $$(dirname $$(git grep -l pgregory.net/rapid -- '*_test.go') | sort -u); do \
		$(GO) test -count=1 -timeout 30m ./$$dir -rapid.seed=0 -rapid.checks=3000 || exit 1; \
	done
	KITBAG_SOUNDNESS=$$((2000 + $$(date +%s) % 1000)) $(GO) test -count=1 -timeout 30m -run 'TestSoundness$$' -v ./builtin/internal/shell
	KITBAG_RACE=1000 $(GO) test -count=1 -timeout 30m -run 'TestRaceWithLinks$$' ./builtin
	KITBAG_DIFFERENTIAL=100000 KITBAG_SEED=$$(date +%s) $(GO) test -count=1 -timeout 60m -run 'TestDifferential$$' -v ./builtin/internal/shell

# Each fuzz test in turn, with the seeds that `make test` runs too.
.PHONY: fuzz
FUZZTIME ?= 1m
fuzz:
	@for dir in $$(dirname $$(git grep -l '^func Fuzz' -- '*_test.go') | sort -u); do \
		for f in $$($(GO) test -list '^Fuzz' ./$$dir | grep '^Fuzz'); do \
			$(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) ./$$dir || exit 1; \
		done; \
	done

# Conversations on many workers, which are killed, with Postgres and Temporal in processes of their own: what was
# lost or done twice is in the last line. The tests have a short form.
.PHONY: distributed
distributed:
	$(GO) test -count=1 -timeout 60m -run TestFaults -v ./internal/heavy/distributed -args -runs 500 -fault-runs 100 -clock-runs 100 -cut 10s

# Three MCP gateways that serve as one, with 250 sessions of both eras behind a round-robin balancer, on Postgres: they are
# restarted and killed in turn. What was lost is in the last line. The tests have a short form.
.PHONY: replicas
replicas:
	$(GO) run ./internal/heavy/interop/replicas

# 10,000 conversations that wait for a person, on Postgres and Temporal: a quarter of an hour.
.PHONY: waiting
waiting:
	KITBAG_WAITING=10000 $(GO) test -count=1 -timeout 60m -run 'TestWaiting$$' -v ./agent/temporal

# Draws the pictures of the README again, from real runs.
.PHONY: pictures
pictures:
	$(GO) test -count=1 -run '^TestPicture' ./cmd/kitbag -update
	$(GO) test -count=1 -run '^TestPicture' ./mcpgateway -update
	$(GO) test -count=1 -run '^TestPicture' ./internal/heavy/browser -update

# That the page opens a long session within a second, and what it costs a run that 10 pages watch it: nothing if another
# process serves them. It needs a machine that does nothing else.
.PHONY: page-times
page-times:
	KITBAG_TIMES=1 $(GO) test -count=1 -v -run '^TestWatched$$' ./inspect
	KITBAG_TIMES=1 $(GO) test -count=1 -v -run '^TestLong$$' ./internal/heavy/browser

bench:
	$(GO) test -run '^$$' -bench . -benchmem work

# Compares kitbag with other frameworks. Each of them is a separate module that is
# not in go.work, because a workspace has only one version of each dependency: theirs
# would change what our tests run with, and `make test` would have to download them.
.PHONY: bench-peers
bench-peers:
	cd bench && GOWORK=off $(GO) run . -out RESULTS.md
