// Package interop tests kitbag against MCP servers and clients that other people wrote.
// The tests need Node and the servers of package.json, which install.sh
// installs, and run with the build tag "interop"; make test does all of that.
package interop
