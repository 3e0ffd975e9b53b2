package builtin

import (
	"encoding/json"
	"testing"
)

// FuzzPlainCommand checks that plainCommand agrees with encoding/json.
func FuzzPlainCommand(f *testing.F) {
	for _, input := range []string{
		`{"command":"ls -la"}`, ` { "command" : "git log" , "description":"history", "timeout": 5000 } `,
		`{"command":"grep -rn \"a b\" . | sed 's/\\/x/\\t/'\n","timeout":0}`, `{"command":"a","command":"rm"}`,
		`{"command":"a","Command":"rm"}`, `{"command":"a","COMMAND":"rm"}`, `{"command":"a","comm\u0061nd":"rm"}`,
		`{"command":"ls 2\u003e\u00261 \u00E9 \u+061 \u00"}`, `{"command":"a\u0000b"}`, `{"command":"\u006"}`, `{"command":"\uD83D\uDE00"}`, `{"command":"é \ud83d"}`, "{\"command\":\"\xff\"}", "{\"command\":\"a\nb\"}", `{"command":"a",}`, `{"command":"a"}}`,
		`{"command":null}`, `{"command":["a"]}`, `{"command":"a","timeout":"5"}`, `{"command":"a","timeout":01}`, `{"command":"a","timeout":1.5}`,
		`{"command":"a","timeout":99999999999999999999}`, `{"command":"a","timeout":}`, `{"command":"a","description":1}`, `{"command":"a\/b \x41 \a"}`, `{"command":"\"\b\f\n\r\t\\"}`, `{"command":"a","x":1}`,
		`{}`, `[]`, ``, `{`, `{"command"}`, `{"command":"a`, `{"command":"a\`, `{"command":"a\x"}`, `{"description":"a"}`, `{,"command":"a"}`,
	} {
		f.Add(input)
	}
	f.Fuzz(func(t *testing.T, input string) {
		got, ok := plainCommand([]byte(input))
		if !ok {
			return
		}
		var in bashIn
		if err := json.Unmarshal([]byte(input), &in); err != nil || in.Command != got {
			t.Errorf("%q: %q; encoding/json: %q, %v", input, got, in.Command, err)
		}
	})
}
