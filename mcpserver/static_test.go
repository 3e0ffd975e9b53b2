package mcpserver_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// listing returns the names in the list of a client without sessions, and the groups of each.
func (m *modern) listing() (names []string, labels map[string]string) {
	m.t.Helper()
	m.header = map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
	_, got := m.post(m.t.Context(), `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
	var res struct {
		Result struct {
			Tools []struct {
				Name string
				Meta map[string][]string `json:"_meta"`
			}
		}
	}
	if err := json.Unmarshal([]byte(got[0]), &res); err != nil {
		m.t.Fatalf("%s: %v", got, err)
	}
	labels = map[string]string{}
	for _, tl := range res.Result.Tools {
		names = append(names, tl.Name)
		if g := tl.Meta["io.modelcontextprotocol/groups"]; len(g) > 0 {
			labels[tl.Name] = strings.Join(g, ",")
		}
	}
	return names, labels
}

// TestMaxListBytes checks that a list that is short enough is served whole to clients of the new era, according
// to what they may see, and that no list depends on calls.
func TestMaxListBytes(t *testing.T) {
	const basic = "slow stream picture fails weather"
	const found = "search_tools describe_tools call_tool"
	for _, row := range []struct {
		why        string
		budget     int
		anna, otto string // anna may see everything, and otto the group zoo
	}{
		{"by default", 0, basic + " lion ape owl", "lion ape"},
		{"never", -1, found + " " + basic, found},
		{"too small for either", 10, found + " " + basic, found},
		{"enough for otto", 400, found + " " + basic, "lion ape"},
		{"enough for both", 10_000, basic + " lion ape owl", "lion ape"},
	} {
		t.Run(row.why, func(t *testing.T) {
			fx := newFixture(t, func(c *toolkit.Config) { c.Initial, c.Exclusive = []string{"zoo"}, nil })
			url := listen(t, serve(t, mcpserver.Config{Toolkit: fx.tk, Policy: open, MaxListBytes: row.budget, Credentials: []mcpserver.Credential{
				{Name: "anna", Token: tokenA}, {Name: "otto", Token: tokenB, Ceiling: toolkit.Only("zoo")},
			}}))
			anna, otto := newModern(t, url, tokenA, `{}`), newModern(t, url, tokenB, `{}`)
			old := newWire(t, url)
			old.token = tokenA
			old.initialize(`{}`)
			for range 2 {
				a, labels := anna.listing()
				o, _ := otto.listing()
				if got, gotO := strings.Join(a, " "), strings.Join(o, " "); got != row.anna || gotO != row.otto {
					t.Fatalf("lists %q and %q, want %q and %q", got, gotO, row.anna, row.otto)
				}
				if strings.Contains(row.anna, "lion") && (labels["lion"] != "zoo" || labels["owl"] != "aviary") {
					t.Errorf("labels: %v", labels)
				}
				// No call changes a list.
				old.rpc("tools/call", `{"name":"reset_tools","arguments":{"zoo":true,"aviary":true}}`)
				anna.send(t.Context(), "tools/call", "call_tool", `,"arguments":{"name":"owl","arguments":{}}`)
			}
			if strings.Contains(row.otto, "lion") {
				if _, got := otto.send(t.Context(), "tools/call", "lion", ""); !strings.Contains(got, `"text":"lion"`) {
					t.Errorf("lion: %s", got)
				}
				if _, got := otto.send(t.Context(), "tools/call", "owl", ""); strings.Contains(got, `"text":"owl"`) {
					t.Errorf("a tool above the ceiling: %s", got)
				}
			}
		})
	}
}

// countingSource counts how often its tools are requested.
type countingSource struct{ requests atomic.Int64 }

func (s *countingSource) Tools(context.Context) ([]tool.Tool, error) {
	s.requests.Add(1)
	return []tool.Tool{named("late")}, nil
}

// TestListOfSources checks that by default no source is contacted to find out how long a list is.
func TestListOfSources(t *testing.T) {
	for limit, want := range map[int]string{0: "search_tools describe_tools call_tool", 1000: "late"} {
		src := &countingSource{}
		tk, err := toolkit.New(toolkit.Config{Groups: []toolkit.Group{{Name: "g", Description: "G.", Sources: []tool.Source{src}}}})
		if err != nil {
			t.Fatal(err)
		}
		m := newModern(t, listen(t, serve(t, mcpserver.Config{Toolkit: tk, Policy: open, MaxListBytes: limit})), "", `{}`)
		got, _ := m.listing()
		if strings.Join(got, " ") != want || (src.requests.Load() > 0) != (limit > 0) {
			t.Errorf("MaxListBytes %d: %q, source contacted %d times; want %q", limit, got, src.requests.Load(), want)
		}
	}
}

// A gate is a tool whose Info can be made to block.
type gate struct {
	tool.Tool
	shut    atomic.Bool
	waiting chan struct{}
	open    chan struct{}
}

func (g *gate) Info() tool.Info {
	if g.shut.CompareAndSwap(true, false) {
		g.waiting <- struct{}{}
		<-g.open
	}
	return g.Tool.Info()
}

// TestRenewInOrder checks that of two changes in quick succession the later one counts, however long it takes
// to process the first.
func TestRenewInOrder(t *testing.T) {
	g := &gate{Tool: named("gate"), waiting: make(chan struct{}), open: make(chan struct{})}
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: []tool.Tool{named("a")}}})
	if err != nil {
		t.Fatal(err)
	}
	var arm atomic.Bool
	defer tk.OnChange(func(toolkit.Change) { g.shut.Store(arm.Swap(false)) })()
	s := serve(t, mcpserver.Config{Toolkit: tk, Policy: open}) // it is notified of a change after the line above
	m := newModern(t, listen(t, s), "", `{}`)
	set := func(tools ...tool.Tool) {
		t.Helper()
		if err := tk.Update(func(c *toolkit.Config) error { c.Basic.Tools = tools; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	listed := func() string {
		names, _ := m.listing()
		return strings.Join(names[len(names)-1:], "")
	}
	arm.Store(true)
	set(g)
	<-g.waiting // the server processes the first change
	set(named("b"))
	for end := time.Now().Add(200 * time.Millisecond); listed() != "b" && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	close(g.open)
	for end := time.Now().Add(10 * time.Second); listed() != "b" && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond) // time for the first change to be stored, which would be wrong
	if got := listed(); got != "b" {
		t.Errorf("the final list is %s", got)
	}
}
