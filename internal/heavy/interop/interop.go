// Package interop tests kitbag against MCP servers and clients by other authors. The tests need Node and the
// servers in package.json, which install.sh installs, and run with the build tag "interop"; make test does all
// of that.
package interop
