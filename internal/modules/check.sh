#!/usr/bin/env bash
# Makes a release in a clone, and resolves it as others will: without go.work, by its
# version. Only the place of the repository differs: git is told to take the clone. With
# -install the command is also compiled and started.
set -euo pipefail
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
version=v0.0.1-check
root=$(go list -m | head -n 1)
modules=$(go list -m)

git clone --quiet . "$tmp/clone"
for setting in user.name=check user.email=check@localhost commit.gpgSign=false tag.gpgSign=false; do
	git -C "$tmp/clone" config "${setting%%=*}" "${setting#*=}"
done
"$tmp/clone/internal/modules/release.sh" $version >/dev/null

# What is published here is fetched by git, and goes into a module cache of its own.
proxy=$(go env GOPROXY)
export GOPROXY="file://$(go env GOMODCACHE)/cache/download,${proxy:-direct}"
export GOWORK=off GOFLAGS=-modcacherw GOMODCACHE="$tmp/cache" GOBIN="$tmp/bin" GOPRIVATE="$root"
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$tmp/clone.insteadOf" GIT_CONFIG_VALUE_0="https://$root"

cd "$tmp"
quietly() { "$@" >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2; exit 1; }; }
if [ "${1:-}" = -install ]; then
	quietly go install "$root/cmd/kitbag@$version"
	quietly "$tmp/bin/kitbag" help
else
	quietly go install -n "$root/cmd/kitbag@$version"
fi

mkdir user
cd user
quietly go mod init example.com/user
for m in $modules; do
	quietly go get "$m@$version"
	[ "$m" = "$root" ] || quietly go list -deps "$m"
done
