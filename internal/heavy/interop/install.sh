#!/bin/sh
# Installs the MCP servers of package.json, exactly as locked, unless they are installed.
set -eu
cd "$(dirname "$0")"
if [ node_modules/.package-lock.json -nt package-lock.json ]; then exit 0; fi
command -v npm >/dev/null || { echo "interop tests need Node 20 or newer with npm; install it, or run go test ./... without them" >&2; exit 1; }
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
