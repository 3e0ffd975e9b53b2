package builtin_test

import (
	"context"
	"testing"

	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"github.com/kitbag-go/kitbag/tool/tooltest"
)

// harmless is a backend that runs no commands and is confined to a directory.
type harmless struct{ *builtin.Local }

func (harmless) Run(_ context.Context, c builtin.Command) (builtin.Exit, error) {
	_, err := c.Output.Write([]byte(c.Args[len(c.Args)-1]))
	return builtin.Exit{}, err
}

// TestTools checks that all tools satisfy the contract of tools, with any input.
func TestTools(t *testing.T) {
	dir := t.TempDir()
	all, err := builtin.New(builtin.Config{Dirs: []string{dir}, Backend: harmless{&builtin.Local{Dirs: []string{dir}, Confined: true}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 10 {
		t.Fatalf("%d tools", len(all))
	}
	for _, tl := range all {
		t.Run(tl.Info().Name, func(t *testing.T) {
			tooltest.Run(t, tl, tooltest.Options{Calls: 200, Context: toolstate.With(t.Context(), &toolstate.State{})})
		})
	}
}
