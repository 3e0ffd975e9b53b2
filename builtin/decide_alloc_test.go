//go:build !race

package builtin_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// TestCostOfDecision checks the number of allocations of the first decision about a command, and of a repeated
// one. It is not built with the race detector, under which pools drop items at random.
func TestCostOfDecision(t *testing.T) {
	bash, err := builtin.Bash(builtin.Config{Dirs: []string{"/tmp"}})
	if err != nil {
		t.Fatal(err)
	}
	p := &permission.Policy{Dirs: []string{"/tmp"}}
	decide := func(input json.RawMessage) permission.Behavior {
		return permission.Decide(p, tool.PermissionCall(bash, input)).Behavior
	}
	for _, row := range []struct {
		command      string
		first, again float64
	}{
		{"pwd", 4, 1},
		{"ls -la src", 4, 1},
		{"git log --oneline -5", 10, 1}, // git and go: the directory's settings are checked, as it is not trusted
		{"cd src && go version 2>&1 | tail -5", 83, 1},
		{"grep -rn 'two words' src | sort | uniq -c | head -20", 25, 3},
		{`for f in *.go; do wc -l "$f"; done`, 39, 1},
	} {
		const runs = 50
		var inputs []json.RawMessage
		for i := range runs + 1 { // AllocsPerRun runs once more
			inputs = append(inputs, json.RawMessage(fmt.Sprintf(`{"command":%q}`, strings.Repeat(" ", i)+row.command)))
		}
		i := -1
		first := testing.AllocsPerRun(runs, func() {
			i++
			if decide(inputs[i]) != permission.Allow {
				t.Fatalf("%s is not allowed", inputs[i])
			}
		})
		again := testing.AllocsPerRun(runs, func() { decide(inputs[i]) })
		if first != row.first || again != row.again {
			t.Errorf("%q: %v allocations, then %v; want %v and %v", row.command, first, again, row.first, row.again)
		}
	}
}
