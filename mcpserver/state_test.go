package mcpserver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"github.com/kitbag-go/kitbag/toolkit"
)

var visits = toolstate.NewKey[int]("mcpserver_test.visits")

// TestWhoseState checks that the state of tools belongs to a session or, without sessions, to a credential.
func TestWhoseState(t *testing.T) {
	visit := tool.Must(tool.New("visit", "Counts.", func(ctx context.Context, _ none) (string, error) {
		n := 0
		err := visits.Update(ctx, func(v *int) error { *v++; n = *v; return nil })
		return fmt.Sprintf("visit %d", n), err
	}))
	url := listen(t, serve(t, mcpserver.Config{Toolkit: toolkit.Of(visit), Policy: open, Credentials: []mcpserver.Credential{
		{Name: "anna", Token: tokenA}, {Name: "otto", Token: tokenB}}}))
	modern := func(token string) func() string {
		m := newModern(t, url, token, `{}`)
		return func() string { _, got := m.send(t.Context(), "tools/call", "visit", ""); return got }
	}
	session := func(token string) func() string {
		w := newWire(t, url)
		w.token = token
		w.initialize(`{}`)
		return func() string { return strings.Join(w.rpc("tools/call", `{"name":"visit"}`), "") }
	}
	anna, ottoOld := modern(tokenA), session(tokenB)
	for i, row := range []struct {
		call func() string
		want string
	}{
		{anna, "visit 1"}, {anna, "visit 2"},
		{modern(tokenA), "visit 3"}, // the server cannot distinguish it from the first
		{modern(tokenB), "visit 1"},
		{session(tokenA), "visit 1"},
		{ottoOld, "visit 1"}, {ottoOld, "visit 2"},
		{session(tokenB), "visit 1"},
		{anna, "visit 4"},
	} {
		if got := row.call(); !strings.Contains(got, row.want) {
			t.Errorf("call %d: %s, want %s", i, got, row.want)
		}
	}
}
