package tool_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/tool"
	"pgregory.net/rapid"
)

// bare is a tool of which only the schema is known, such as one of an MCP server.
type bare struct{ schema string }

func (b bare) Info() tool.Info {
	return tool.Info{Name: "bare", Description: "Does nothing.", Input: json.RawMessage(b.schema)}
}

func (b bare) Call(context.Context, tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) { yield(tool.Text("ok"), nil) }
}

// A repairRow is a line of testdata/repair.jsonl: the text of a model and the wanted result.
type repairRow struct {
	Family    string          `json:"family"`
	In        string          `json:"in"`
	Schema    json.RawMessage `json:"schema"` // any object, if empty
	Want      json.RawMessage `json:"want"`
	Truncated bool            `json:"truncated"` // must be refused as cut off
	Error     bool            `json:"error"`     // must be refused
}

// repairRows reads the corpus.
func repairRows(tb testing.TB) []repairRow {
	tb.Helper()
	f, err := os.Open("testdata/repair.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	var rows []repairRow
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var r repairRow
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			tb.Fatal(err)
		}
		rows = append(rows, r)
	}
	return rows
}

func (r repairRow) tool() tool.Tool {
	if r.Schema == nil {
		return bare{`{"type":"object"}`}
	}
	return bare{string(r.Schema)}
}

// wrong returns what is wrong with the result of a row, or "".
func (r repairRow) wrong() string {
	args, err := tool.Arguments(r.tool(), json.RawMessage(r.In))
	if r.Truncated || r.Error {
		e, ok := errors.AsType[*tool.ArgumentError](err)
		switch {
		case !ok:
			return "accepted: " + string(args.JSON)
		case r.Truncated && !e.Truncated:
			return "refused, but not as cut off: " + e.Text
		}
		return ""
	}
	if err != nil {
		return err.Error()
	}
	if got, want := decodeExact(args.JSON), decodeExact(r.Want); !reflect.DeepEqual(got, want) {
		return "got " + string(args.JSON) + ", want " + string(r.Want)
	}
	if len(args.Repaired) == 0 {
		return "nothing said of the repair"
	}
	return ""
}

// decodeExact decodes JSON so that numbers of the same value are equal, as far as a float64
// can tell, and longer ones are compared as they are written.
func decodeExact(b []byte) (v any) {
	var num func(any) any
	num = func(v any) any {
		switch v := v.(type) {
		case json.Number:
			if f, err := v.Float64(); err == nil && len(v) < 16 {
				return f
			}
		case map[string]any:
			for k := range v {
				v[k] = num(v[k])
			}
		case []any:
			for i := range v {
				v[i] = num(v[i])
			}
		}
		return v
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return nil
	}
	return num(v)
}

// TestRepairCorpus checks that of at least 300 rows, 95 % are repaired correctly; some texts
// are ambiguous. No text that must be refused is accepted.
func TestRepairCorpus(t *testing.T) {
	rows := repairRows(t)
	right := 0
	for _, r := range rows {
		wrong := r.wrong()
		switch {
		case wrong == "":
			right++
		case r.Truncated || r.Error:
			t.Errorf("%s: %s: %s", r.Family, r.In, wrong)
		default:
			t.Logf("%s: %s: %s", r.Family, r.In, wrong)
		}
	}
	t.Logf("%d of %d right", right, len(rows))
	if len(rows) < 300 || right*100 < 95*len(rows) {
		t.Errorf("%d of %d rows right", right, len(rows))
	}
}

// TestCutArgumentsNeverRun cuts every intended object at every byte.
func TestCutArgumentsNeverRun(t *testing.T) {
	done := map[string]bool{}
	for _, r := range repairRows(t) {
		if done[string(r.Want)] {
			continue
		}
		done[string(r.Want)] = true
		for n := 1; n < len(r.Want); n++ {
			cut := strings.TrimSpace(string(r.Want[:n]))
			for _, text := range []string{cut, "```json\n" + cut, "Here: " + cut} {
				args, err := tool.Arguments(r.tool(), json.RawMessage(text))
				if e, ok := errors.AsType[*tool.ArgumentError](err); !ok || !e.Truncated {
					t.Fatalf("%q of %s: %s, %v", text, r.Want, args.JSON, err)
				}
			}
		}
	}
}

// TestCutTextIsRefusedOrWhole cuts every broken text at every byte: an accepted text
// is the intended object, not a part of it.
func TestCutTextIsRefusedOrWhole(t *testing.T) {
	for _, r := range repairRows(t) {
		if r.Want == nil {
			continue
		}
		for n := 1; n < len(r.In); n++ {
			if json.Valid([]byte(r.In[:n])) {
				continue // 4 of 42 are ambiguous
			}
			args, err := tool.Arguments(r.tool(), json.RawMessage(r.In[:n]))
			if err == nil && !reflect.DeepEqual(decodeExact(args.JSON), decodeExact(r.Want)) {
				t.Errorf("%s: %q became %s, not %s", r.Family, r.In[:n], args.JSON, r.Want)
			}
		}
	}
}

// anyJSON draws JSON text with unusual but valid spelling.
func anyJSON() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		space := func() string { return rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(t, "space") }
		text := func() string {
			return rapid.SampledFrom([]string{`""`, `"a"`, `"\u00e9\n"`, `"it's"`, `"{\"a\": 1}"`, `"// no"`, `"a,b:c}]"`, `"\\"`, `"\""`, `"😀"`, `"True"`, "\"`\""}).Draw(t, "string")
		}
		var value func(depth int) string
		value = func(depth int) string {
			kind := rapid.IntRange(0, 5).Draw(t, "kind")
			if depth > 3 {
				kind = kind % 3
			}
			var parts []string
			switch kind {
			case 0:
				return text()
			case 1:
				return rapid.SampledFrom([]string{"0", "-1", "1.10", "1e5", "12345678901234567890", "-0.0"}).Draw(t, "number")
			case 2:
				return rapid.SampledFrom([]string{"true", "false", "null"}).Draw(t, "literal")
			case 3:
				for range rapid.IntRange(0, 3).Draw(t, "items") {
					parts = append(parts, space()+value(depth+1)+space())
				}
				return "[" + strings.Join(parts, ",") + space() + "]"
			}
			for i := range rapid.IntRange(0, 3).Draw(t, "members") {
				parts = append(parts, space()+`"`+string(rune('a'+i))+`"`+space()+":"+space()+value(depth+1))
			}
			return "{" + strings.Join(parts, ",") + space() + "}"
		}
		return space() + `{"v":` + value(0) + "}" + space()
	})
}

// TestValidJSONIsNeverChanged: arguments that fit the schema are not changed, even if
// their spelling is unusual.
func TestValidJSONIsNeverChanged(t *testing.T) {
	any := bare{`{"type":"object"}`}
	rapid.Check(t, func(t *rapid.T) {
		in := anyJSON().Draw(t, "json")
		args, err := tool.Arguments(any, json.RawMessage(in))
		if err != nil || string(args.JSON) != in || args.Repaired != nil {
			t.Fatalf("%q became %q (%v, %v)", in, args.JSON, args.Repaired, err)
		}
	})
}

// TestHostileTexts has texts for which a repair in more than linear time would exceed the time of a test.
func TestHostileTexts(t *testing.T) {
	any := bare{`{"type":"object"}`}
	for _, unit := range []string{
		`"`, `"a" `, `{`, `[`, `'`, `,`, `"""`, `\`, `{"a":`, `a:`, `/*`, `#`, "```", `"x"y`, `}`, `a,`, `"+"`, `http://`, `(`, `["a":`, `{{`, "\u200b",
	} {
		for _, head := range []string{"", `{"a": "`, `{"a": [`} {
			text := head + strings.Repeat(unit, 1<<16/len(unit))
			if args, err := tool.Arguments(any, json.RawMessage(text)); err == nil && !json.Valid(args.JSON) {
				t.Errorf("%q after %q: %.40s", unit, head, args.JSON)
			}
		}
	}
}

func FuzzArguments(f *testing.F) {
	for _, r := range repairRows(f) {
		f.Add(r.In, string(r.Schema))
	}
	f.Fuzz(func(t *testing.T, in, schema string) {
		args, err := tool.Arguments(bare{schema}, json.RawMessage(in))
		if err != nil {
			if _, ok := errors.AsType[*tool.ArgumentError](err); !ok {
				t.Fatalf("error of type %T: %v", err, err)
			}
			return
		}
		var object map[string]any
		if err := json.Unmarshal(args.JSON, &object); err != nil {
			t.Fatalf("%q became %q: %v", in, args.JSON, err)
		}
		if strings.TrimSpace(in) != "" && len(args.Repaired) == 0 && string(args.JSON) != in {
			t.Fatalf("%q became %q without a report", in, args.JSON)
		}
		again, err := tool.Arguments(bare{schema}, args.JSON)
		if err != nil || !bytes.Equal(again.JSON, args.JSON) {
			t.Fatalf("%q is not stable: %q, %v", args.JSON, again.JSON, err)
		}
	})
}
