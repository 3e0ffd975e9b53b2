#!/usr/bin/env bash
# Compiles and vets every package for macOS and Windows, with its tests. None is left out: what
# only Linux has is in files *_linux.go, and what Unix has in files with a build constraint.
set -euo pipefail
cd "$(dirname "$0")/../.."
for os in darwin windows; do
	GOOS=$os CGO_ENABLED=0 go build work
	GOOS=$os CGO_ENABLED=0 go vet work
	echo "all packages and tests compile for $os"
done
