package permission_test

import (
	"fmt"

	"github.com/kitbag-go/kitbag/permission"
)

func Example() {
	settings, err := permission.ParseSettings("settings.json", []byte(
		`{"permissions": {"allow": ["add"], "deny": ["mcp__shop__*"]}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, tool := range []string{"add", "weather", "mcp__shop__buy"} {
		d := permission.Decide(&settings.Policy, &permission.Call{Tool: tool})
		fmt.Println(tool, d.Behavior, "-", d.Reason)
	}
	// Output:
	// add allow - allowed by rule add
	// weather ask - no rule covers the call
	// mcp__shop__buy deny - denied by rule mcp__shop__*
}

func ExampleExplain() {
	e := permission.Explain(&permission.Policy{}, &permission.Call{Tool: "add"})
	for _, s := range e.Steps {
		fmt.Println(s.Name, "-", s.Reason)
	}
	// Output:
	// deny rules - none covers the call
	// ask rules - none covers the call
	// tool - no opinion
	// allow rules - none covers the call
	// mode - no rule covers the call
}
