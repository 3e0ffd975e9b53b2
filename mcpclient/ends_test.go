package mcpclient_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/mcpclient"
)

// TestServerEndsAtOnce checks that the error of a server that ends before it answers contains the program, how it
// ended, and its last output.
func TestServerEndsAtOnce(t *testing.T) {
	for _, row := range []struct {
		args []string
		want []string
	}{
		{[]string{"-c", "echo no such package >&2; exit 3"}, []string{`MCP server "demo"`, `"sh"`, "exit status 3", "no such package"}},
		{[]string{"-c", "exit 0"}, []string{`MCP server "demo"`, `"sh"`, "exit status 0"}},
		{[]string{"-c", "kill -9 $$"}, []string{`MCP server "demo"`, `"sh"`, "signal: killed"}},
		{[]string{"-c", "echo hello; echo usage >&2; exit 2"}, []string{`MCP server "demo"`, `"sh"`, "exit status 2", "usage"}},
		{[]string{"-c", "read line; echo late >&2; exit 4"}, []string{`MCP server "demo"`, `"sh"`, "exit status 4", "late"}},
		{[]string{"-c", "echo 'hid\U000E0041den' >&2; exit 5"}, []string{"exit status 5", "hidden"}},
	} {
		c, err := mcpclient.New("demo", mcpclient.Command{Path: "sh", Args: row.args}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Tools(t.Context())
		for _, part := range row.want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("sh %q: %v; want %s", row.args, err, part)
			}
		}
		if se, ok := errors.AsType[*mcpclient.ServerError](err); !ok || strings.Contains(se.Err.Error(), "\n") {
			t.Errorf("sh %q: %#v", row.args, err)
		}
		_ = c.Close()
	}
	c, err := mcpclient.New("demo", mcpclient.Command{Path: "no-such-program-anywhere"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Tools(t.Context()); err == nil || !strings.Contains(err.Error(), "no-such-program-anywhere") {
		t.Error(err)
	}
}
