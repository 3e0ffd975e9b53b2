#!/usr/bin/env bash
# Uses a release as others will: stranger.sh v0.1.0 requires the modules in dist/proxy by
# their version, in an empty module without go.work, builds a program of each kind, runs
# the documented go:generate line, and installs the command. release.sh makes dist/proxy.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=$1
generate=$PWD/internal/modules/generate.sh
root=$(go list -m | head -n 1)
tmp=$(mktemp -d)
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT

proxy=$(go env GOPROXY)
cached=$(go env GOMODCACHE)/cache/download
export GOPROXY="file://$PWD/dist/proxy,file://$cached,${proxy:-direct}" GONOSUMDB="$root" GOWORK=off
export GOFLAGS=-modcacherw GOMODCACHE="$tmp/cache" GOBIN="$tmp/bin"
quietly() { "$@" >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2; exit 1; }; }

# The README's first program, as it stands there. Without a key it says which one is missing.
mkdir "$tmp/programs" "$tmp/programs/hello"
{
	echo "// go get $root"
	sed -n '/^```go$/,/^```$/p' README.md | sed '1d;/^```$/,$d'
} >"$tmp/programs/hello/main.go"
for program in internal/modules/testdata/*/main.go.txt; do
	name=$(basename "$(dirname "$program")")
	mkdir "$tmp/programs/$name"
	cp "$program" "$tmp/programs/$name/main.go"
done

for dir in "$tmp"/programs/*; do
	cd "$dir"
	name=$(basename "$dir")
	quietly go mod init "example.com/$name"
	for m in $(sed -n 's|^// go get ||p' main.go); do quietly go get "$m@$version"; done
	quietly go mod tidy
	quietly go build -o program .
	said=$(env -u OPENAI_API_KEY -u OPENAI_BASE_URL ./program 2>&1) || [ "$name" = hello ] || { echo "$said" >&2; exit 1; }
	echo "$name: $(wc -l <go.sum) lines in go.sum; it prints: $said"
done

quietly "$generate"
tail -n 1 "$tmp/log"
cd "$tmp"
quietly go install "$root/cmd/kitbag@$version"
"$tmp/bin/kitbag" version
