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

// TestCostOfDecision checks the number of allocations of the first decision about a call, and of a repeated
// one. It is not built with the race detector, under which pools drop items at random.
func TestCostOfDecision(t *testing.T) {
	bash, err := builtin.Bash(builtin.Config{Dirs: []string{"/tmp"}})
	if err != nil {
		t.Fatal(err)
	}
	p := &permission.Policy{Dirs: []string{"/tmp"}}
	for _, row := range []struct {
		command      string
		first, again float64
	}{
		{"pwd", 4, 0},
		{"ls -la src", 4, 0},
		{"git log --oneline -5", 11, 0}, // git and go: the directory's settings are checked, as it is not trusted
		{"cd src && go version 2>&1 | tail -5", 186, 0},
		{"grep -rn 'two words' src | sort | uniq -c | head -20", 35, 1},
		{`for f in *.go; do wc -l "$f"; done`, 39, 0},
	} {
		const runs = 50
		var inputs []json.RawMessage
		for i := range runs + 1 { // AllocsPerRun runs once more
			inputs = append(inputs, json.RawMessage(fmt.Sprintf(`{"command":%q}`, strings.Repeat(" ", i)+row.command)))
		}
		i := -1
		var call *permission.Call
		first := testing.AllocsPerRun(runs, func() {
			i++
			call = tool.PermissionCall(bash, inputs[i])
			if permission.Decide(p, call).Behavior != permission.Allow {
				t.Fatalf("%s is not allowed", inputs[i])
			}
		})
		again := testing.AllocsPerRun(runs, func() { permission.Decide(p, call) })
		if first != row.first || again != row.again {
			t.Errorf("%q: %v allocations, then %v; want %v and %v", row.command, first, again, row.first, row.again)
		}
	}
}
