package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
)

// TestSpent ends a run with what it has cost; the money only where the price is known.
func TestSpent(t *testing.T) {
	workspace(t)
	for models, want := range map[string]string{
		`{"models":{}}`: `\n2 steps in \d+s: 20 tokens in, 10 out\n$`,
		`{"models":{"test":{"price":{"input":1000,"output":2000}}}}`: `\n2 steps in \d+s: 20 tokens in, 10 out, about \$0\.0400\n$`,
	} {
		for name, text := range map[string]string{"models.json": models, configFile: `{"models":"models.json"}`} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		serve(t, openaitest.Calls(call("TaskList", `{}`)), openaitest.Text("well"))
		got := kitbag(t.Context(), "run", "--trust", "go")
		if got.code != exitDone || !regexp.MustCompile(want).MatchString(got.stderr[max(0, len(got.stderr)-120):]) {
			t.Errorf("%s: %+v", models, got)
		}
	}
}
