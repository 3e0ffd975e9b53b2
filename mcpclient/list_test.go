package mcpclient

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
)

// eachRow decodes the lines of a JSON Lines file.
func eachRow[T any](t *testing.T, file string, fn func(t *testing.T, row T)) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var head struct {
			Why string `json:"why"`
		}
		var row T
		if err := json.Unmarshal(in.Bytes(), &head); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(in.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		t.Run(head.Why, func(t *testing.T) { fn(t, row) })
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
}

// unconnected returns a client without a server.
func unconnected(t testing.TB) *Client {
	t.Helper()
	c, err := New("srv", Command{Path: "none"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestToolLists(t *testing.T) {
	type row struct {
		Raw     []json.RawMessage
		Names   []string
		Schemas []json.RawMessage
		Skipped []string
	}
	eachRow(t, "tools.jsonl", func(t *testing.T, row row) {
		s := newSnapshot(unconnected(t).cat, row.Raw, nil, nil, false)
		var names, skipped []string
		for _, tl := range s.tools {
			names = append(names, tl.Info().Name)
		}
		for _, k := range s.skipped {
			skipped = append(skipped, k.Name)
			if k.Reason == "" {
				t.Errorf("%s is skipped without a reason", k.Name)
			}
		}
		if !slices.Equal(names, row.Names) {
			t.Errorf("names %q, want %q", names, row.Names)
		}
		if !slices.Equal(skipped, row.Skipped) {
			t.Errorf("skipped %q, want %q (%v)", skipped, row.Skipped, s.skipped)
		}
		for i, want := range row.Schemas {
			if got, want := s.tools[i].Info().Input, withoutDialect(want); !bytes.Equal(got, want) {
				t.Errorf("schema %s, want %s", got, want)
			}
		}
	})
}

func TestResults(t *testing.T) {
	type row struct {
		Result     json.RawMessage
		Blocks     message.Blocks
		Structured json.RawMessage
		Failed     bool
	}
	eachRow(t, "content.jsonl", func(t *testing.T, row row) {
		res, err := decodeResult("tools/call", row.Result)
		if err != nil {
			t.Fatal(err)
		}
		col := tool.NewCollector(tool.Call{})
		for _, ch := range res.chunks() {
			col.Add(ch)
		}
		got := col.Result()
		if !reflect.DeepEqual(got.Blocks, row.Blocks) {
			a, _ := json.Marshal(got.Blocks)
			b, _ := json.Marshal(row.Blocks)
			t.Errorf("blocks %s\nwant   %s", a, b)
		}
		if !bytes.Equal(got.Structured, row.Structured) || (got.Outcome == message.OutcomeError) != row.Failed {
			t.Errorf("structured %s, outcome %s", got.Structured, got.Outcome)
		}
	})
}

// TestRealLists decodes the lists of real servers.
func TestRealLists(t *testing.T) {
	files, err := filepath.Glob("../testdata/mcp_tools/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no lists: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Tools []json.RawMessage `json:"tools"`
		}
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatal(err)
		}
		s := newSnapshot(unconnected(t).cat, list.Tools, nil, nil, false)
		if len(s.tools) != len(list.Tools) || len(s.skipped) > 0 {
			t.Errorf("%s: %d of %d tools, skipped %v", file, len(s.tools), len(list.Tools), s.skipped)
		}
		schemas := map[string]json.RawMessage{}
		for _, raw := range list.Tools {
			var r struct {
				Name   string          `json:"name"`
				Schema json.RawMessage `json:"inputSchema"`
			}
			if err := json.Unmarshal(raw, &r); err != nil {
				t.Fatal(err)
			}
			schemas[r.Name] = r.Schema
		}
		for _, tl := range s.remotes {
			if got, want := canonical(t, tl.info.Input), canonical(t, withoutDialect(schemas[tl.remoteName])); got != want {
				t.Errorf("%s: %s:\n got %s\nwant %s", file, tl.remoteName, got, want)
			}
			if tl.info.Name != "mcp__srv__"+tl.remoteName {
				t.Errorf("%s: the name became %s", file, tl.info.Name)
			}
		}
	}
}

func canonical(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestNamesAreDistinctLegalAndStable(t *testing.T) {
	ok := regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.StringMatching(`mcp__[a-z._]{1,70}__`).Draw(t, "prefix")
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[ab._]{1,6}|[ab.]{50,80}`), 1, 30, rapid.ID).Draw(t, "names")
		got := toolNames(prefix, names)
		seen := map[string]string{}
		for _, n := range names {
			if !ok.MatchString(got[n]) {
				t.Errorf("%q became %q", n, got[n])
			}
			if other, dup := seen[got[n]]; dup {
				t.Errorf("%q and %q both became %q", n, other, got[n])
			}
			seen[got[n]] = n
		}
		shuffled := rapid.Permutation(names).Draw(t, "shuffled")
		if again := toolNames(prefix, shuffled); !reflect.DeepEqual(got, again) {
			t.Errorf("the order matters: %v, %v", got, again)
		}
	})
}

func TestGroups(t *testing.T) {
	raws := []json.RawMessage{
		json.RawMessage(`{"name":"a","_meta":{"io.modelcontextprotocol/groups":["files","read"]}}`),
		json.RawMessage(`{"name":"e","_meta":{"io.modelcontextprotocol/groups":["deep"]}}`),
		json.RawMessage(`{"name":"b","_meta":{"io.modelcontextprotocol/groups":["files","files"]}}`),
		json.RawMessage(`{"name":"c","_meta":{"io.modelcontextprotocol/groups":"not a list"}}`),
		json.RawMessage(`{"name":"d"}`),
	}
	groups := []json.RawMessage{
		json.RawMessage(`{"name":"files","title":"Files","description":"All about files."}`),
		json.RawMessage(`{"name":"empty","_meta":{"io.modelcontextprotocol/groups":["files","void","none"]}}`),
		json.RawMessage(`{"name":"void","_meta":{"io.modelcontextprotocol/groups":["empty","read"]}}`),
		json.RawMessage(`{"name":"deep","_meta":{"io.modelcontextprotocol/groups":["empty","deep"]}}`),
		json.RawMessage(`{"title":"no name"}`),
	}
	c := unconnected(t)
	s := newSnapshot(c.cat, raws, groups, textOf("", groups), false)
	c.cat.snap.Store(s)
	got, err := c.Groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, g := range got {
		tools, err := g.Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(tools) != len(g.Members()) {
			t.Errorf("%s: %d tools, %d members", g.Name, len(tools), len(g.Members()))
		}
		lines = append(lines, strings.Join([]string{g.Name, g.Title, g.Description, strings.Join(g.Parents, ","), strings.Join(g.Members(), ",")}, "|"))
	}
	want := []string{
		"srv||||mcp__srv__c,mcp__srv__d",
		"srv/deep|||srv/files,srv/read|mcp__srv__e",
		"srv/files|Files|All about files.||mcp__srv__a,mcp__srv__b",
		"srv/read||||mcp__srv__a",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("groups:\n%s\nwant:\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

func FuzzDecodeTool(f *testing.F) {
	f.Add([]byte(`{"name":"a","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"_meta":{"io.modelcontextprotocol/groups":["g"]}}`))
	f.Add([]byte(`{"name":"a","inputSchema":[]}`))
	f.Add([]byte(`{"name":"a","inputSchema":{"x":{"x":"{\"\\"}}}`))
	c, err := New("srv", Command{Path: "none"}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			return
		}
		s := newSnapshot(c.cat, []json.RawMessage{data}, []json.RawMessage{data}, nil, true)
		if len(s.tools)+len(s.skipped) != 1 {
			t.Fatalf("%d tools, %d skipped", len(s.tools), len(s.skipped))
		}
		for _, tl := range s.tools {
			if in := tl.Info().Input; len(in) == 0 || in[0] != '{' || !json.Valid(in) {
				t.Fatalf("schema %s", in)
			}
		}
		if res, err := decodeResult("tools/call", data); err == nil && len(res.chunks()) == 0 {
			t.Fatal("a result without a chunk")
		}
	})
}

// TestCutListIsAChange checks that a list which is cut, with the same tools as before, is reported as a change.
func TestCutListIsAChange(t *testing.T) {
	var lists atomic.Int64
	c := memoryClient(t, Server{Options: Options{PingInterval: -1, ListTTL: time.Nanosecond}}, func(msg request, reply func(string)) {
		if msg.Method != "tools/list" {
			handleStandard(msg, reply, "")
			return
		}
		switch n := lists.Add(1); n {
		case 1:
			reply(msg.result(`{"tools":[{"name":"a"}]}`))
		case 2:
			reply(msg.result(`{"tools":[{"name":"a"}],"nextCursor":"again"}`))
		default:
			reply(msg.result(`{"tools":[],"nextCursor":"again"}`))
		}
	})
	for want := range 2 {
		if _, err := c.Tools(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := c.Skipped(); len(got) != want {
			t.Errorf("skipped: %v, want %d", got, want)
		}
	}
}

// TestDeepSchemas checks that a schema nested too deep is refused, as input and as output schema.
func TestDeepSchemas(t *testing.T) {
	nested := func(levels int) string {
		return strings.Repeat(`{"a":`, levels-1) + "{}" + strings.Repeat("}", levels-1)
	}
	for _, name := range []string{"inputSchema", "outputSchema"} {
		for levels, want := range map[int]string{maxSchemaDepth: "", maxSchemaDepth + 1: name + " is 65 levels deep; 64 are allowed"} {
			_, err := decodeTool(json.RawMessage(`{"name":"a","`+name+`":`+nested(levels)+`}`), false)
			if got := fmt.Sprint(err); want == "" && err != nil || want != "" && got != want {
				t.Errorf("%d levels: %s, want %q", levels, got, want)
			}
		}
	}
}

// TestWithoutDialect checks that a schema loses the name of its dialect and nothing else.
func TestWithoutDialect(t *testing.T) {
	for _, row := range [][2]string{
		{`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}`, `{"type":"object"}`},
		{`{"type":"object" , "$schema": "x"}`, `{"type":"object"}`},
		{`{"type":"object","$schema":"x","a":1}`, `{"type":"object","a":1}`},
		{`{ "$schema":"x" }`, `{}`},
		{`{"properties":{"$schema":{"type":"string"}}}`, `{"properties":{"$schema":{"type":"string"}}}`},
		{`{"type":"object"}`, `{"type":"object"}`},
		{`["$schema"]`, `["$schema"]`},
		{`{"$schema`, `{"$schema`},
	} {
		if got := string(withoutDialect(json.RawMessage(row[0]))); got != row[1] {
			t.Errorf("%s: %s, want %s", row[0], got, row[1])
		}
	}
}
