#!/usr/bin/env bash
# Makes the files of a release: release.sh v0.1.0 fills dist/proxy, a module proxy, with
# all modules as they are in the last commit. Whoever sets
#
#	GOPROXY=file://$PWD/dist/proxy,$(go env GOPROXY) GONOSUMDB=github.com/kitbag-go/kitbag
#
# gets them as from any other proxy. Nothing is committed or tagged here: tag.sh does that.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${1:-}
root=$(go list -m | head -n 1)
tmp=$(mktemp -d)
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT

git clone --quiet . "$tmp/clone"
for setting in user.name=release user.email=release@localhost commit.gpgSign=false tag.gpgSign=false; do
	git -C "$tmp/clone" config "${setting%%=*}" "${setting#*=}"
done
"$tmp/clone/internal/modules/tag.sh" "$version" >/dev/null

# The go command packs the modules, as a proxy would have it do: by git, from the clone.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$tmp/clone.insteadOf" GIT_CONFIG_VALUE_0="https://$root"
cache="$tmp/cache/cache/download/$root"
modules=$(go list -m | grep -vE '/(examples|internal/.*)$')
for m in $modules; do
	(cd "$tmp" && GOWORK=off GOPRIVATE="$root" GOMODCACHE="$tmp/cache" GOFLAGS=-modcacherw go mod download "$m@$version")
	echo "$version" >"$cache${m#"$root"}/@v/list"
done
rm -rf "dist/proxy/$root"
mkdir -p "dist/proxy/$(dirname "$root")"
cp -R "$cache" "dist/proxy/$root"
find dist/proxy -name '*.lock' -delete
cat <<TXT
dist/proxy has $(wc -w <<<"$modules") modules of $version. To use them:

	export GOPROXY=file://$PWD/dist/proxy,$(go env GOPROXY) GONOSUMDB=$root
	go get $root@$version

internal/modules/tag.sh $version tags them, to publish them by git.
TXT
