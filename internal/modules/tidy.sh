#!/usr/bin/env bash
# Tidies go.mod and go.sum of each module in go.work; with -diff it changes nothing, and
# fails where one is not tidy or has a replace. "go mod tidy" alone does not look into
# go.work: it would ask a proxy for the version of kitbag that is not published yet.
set -euo pipefail
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

modules=$(go list -m -f '{{.Path}}={{.Dir}}')
replace=() drop=()
for m in $modules; do
	replace+=("-replace=$m")
	drop+=("-dropreplace=${m%%=*}")
done

for m in $modules; do
	dir=${m#*=}
	if grep -nE '^replace|=>' "$dir/go.mod"; then
		echo "$dir/go.mod has a replace, with which go install module@version fails; move it to go.work" >&2
		exit 1
	fi
	cp "$dir/go.mod" "$dir/go.sum" "$tmp"
	go mod edit "${replace[@]}" "$tmp/go.mod"
	(cd "$dir" && GOWORK=off go mod tidy -modfile="$tmp/go.mod" "$@") || {
		echo "$dir/go.mod is not tidy; run make tidy" >&2
		exit 1
	}
	go mod edit "${drop[@]}" "$tmp/go.mod"
	[ $# -gt 0 ] || cp "$tmp/go.mod" "$tmp/go.sum" "$dir"
done
