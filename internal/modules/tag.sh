#!/usr/bin/env bash
# Tags a release of all modules in go.work: tag.sh v0.1.0. All get that version, and
# require it of each other. A release is one commit, with the version in the go.mod files
# and in go.work, and a tag for each public module; pushing them together publishes it.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${1:-}
root=$(go list -m | head -n 1)

if [[ ! $version =~ ^v[01]\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "version \"$version\" is not like v0.1.0; run make release VERSION=v0.1.0 (from v2 on, the module paths have to change)" >&2
	exit 1
fi
if [ -n "$(git status --porcelain)" ]; then
	echo "there are changes that are not committed; commit them, or release from a clone" >&2
	exit 1
fi
./internal/modules/tidy.sh -diff

tags=
for m in $(go list -m); do
	dir=${m#"$root"}
	case $dir in
	/examples | /internal/*) ;; # nothing imports them
	*) tags="$tags ${dir#/}${dir:+/}$version" ;;
	esac
	sed -i.bak -E "s#(^|[[:space:]])($root[^[:space:]]*) v[^[:space:]]+#\1\2 $version#" ".$dir/go.mod"
	rm ".$dir/go.mod.bak"
done
sed -i.bak -E "s#(^|[[:space:]])($root[^[:space:]]*) v[^[:space:]]+#\1\2 $version#" go.work
rm go.work.bak
go list -deps work >/dev/null

git commit --quiet --all --message "all modules: $version"
for t in $tags; do git tag --annotate --message "$t" "$t"; done
echo "to publish it: git push --atomic origin HEAD$tags"
