// Package heavy is the module of the tests with heavy servers and foreign programs: Temporal, Chromium, Postgres for
// many workers, MCP servers and clients from npm. Nothing else requires what they need. "make heavy" and "make interop"
// run them; [github.com/kitbag-go/kitbag/internal/heavy/distributed] and the packages beside it say what they test.
package heavy
