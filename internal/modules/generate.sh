#!/usr/bin/env bash
# Runs the go:generate line that package tool/docs documents in an empty module: it writes
# the descriptions, and adds nothing to go.mod. GOPROXY says which proxy has the command.
set -euo pipefail
cd "$(dirname "$0")/../.."
line=$(sed -n 's|^//\t\(//go:generate .*\)|\1|p' tool/docs/docs.go)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
export GOWORK=off
go mod init example.com/tools 2>/dev/null
cp go.mod before
cat >tools.go <<GO
package tools

$line

// An Order is what a customer wants.
type Order struct {
	Dish string \`json:"dish"\` // from the menu
}
GO
go generate
grep -q 'An Order is what a customer wants' kitbag_schema.go
cmp go.mod before
[ ! -e go.sum ] || { echo "$line has written a go.sum" >&2; exit 1; }
echo "$line: it writes the descriptions, and adds nothing to go.mod"
