package main

import (
	"fmt"
	"testing"

	"github.com/kitbag-go/kitbag/mcpserver"
)

func TestMCPKey(t *testing.T) {
	seen := map[string]bool{}
	for range 3 {
		got := kitbag(t.Context(), "mcp", "key")
		var token, hash string
		if n, _ := fmt.Sscanf(got.out, "token: %s\nhash:  %s\n", &token, &hash); n != 2 || len(token) < 2*mcpserver.MinToken || hash != mcpserver.HashToken(token) || seen[token] {
			t.Errorf("code %d: %s%s", got.code, got.out, got.stderr)
		}
		seen[token] = true
	}
}
