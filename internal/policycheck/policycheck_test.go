package policycheck

import (
	"context"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// A borrower is a tool whose calls are also judged by rules for Read.
type borrower struct{ tool.Tool }

func (borrower) Judge(c *permission.Call) { c.Borrows = []string{"Read"} }

// TestTypo checks the error for a rule whose tool name is almost that of a tool.
func TestTypo(t *testing.T) {
	named := func(name string) tool.Tool {
		return tool.Must(tool.New(name, "", func(context.Context, struct{}) (string, error) { return "", nil }))
	}
	own := []tool.Tool{named("Read"), named("Head"), borrower{named("Grep")}, borrower{named("Glob")}}
	for name, want := range map[string]string{
		"Read": "", "Reed": `rule "Reed" (deny): there is no tool "Reed"; did you mean Read?`,
		"Rea*": "", "Write": "", "read2": "", "Network": "", "Listed": "",
		"Netwrok": `rule "Netwrok" (deny): there is no tool "Netwrok"; did you mean Network?`,
	} {
		p := &permission.Policy{Rules: []permission.Rule{{Tool: name, Behavior: permission.Deny}}}
		err := Check(p, own, []tool.Tool{named("Listed")}, "Network")
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}
