package mcpserver_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/toolkit"
)

// gated has prompts and resources in groups that contain nothing else, and skills in a group that only contains
// skills.
func gated() mcpserver.Config {
	get := func(context.Context, map[string]string) ([]*message.Message, error) { return nil, nil }
	read := func(context.Context, string, map[string]string) ([]byte, error) { return nil, nil }
	remember := func(name string) []skill.Loader {
		return []skill.Loader{skill.Memory(&skill.Skill{Name: name, Description: "D.", Body: "B."})}
	}
	tk, err := toolkit.New(toolkit.Config{Control: toolkit.EnableDisable(), Basic: toolkit.Group{Skills: remember("memo")},
		Groups: []toolkit.Group{{Name: "prompts", Description: "P."}, {Name: "resources", Description: "R."}, {Name: "too", Description: "T."},
			{Name: "empty", Description: "E."}, {Name: "skills", Description: "S.", Skills: remember("pdf")}}})
	if err != nil {
		panic(err)
	}
	return mcpserver.Config{Toolkit: tk, Policy: open,
		Prompts:   []mcpserver.Prompt{{Name: "p", Groups: []string{"prompts", "too"}, Get: get}, {Name: "always", Get: get}},
		Resources: []mcpserver.Resource{{URI: "db://r", Groups: []string{"resources"}, Read: read}, {URI: "of://{who}", Read: read}}}
}

// unread is a policy that does not allow reading skills.
var unread = &permission.Policy{Mode: permission.ModeBypass, Rules: []permission.Rule{{Tool: "Skill", Behavior: permission.Deny}}}

// changedList returns which list a message says has changed; it returns "" for any other message.
func changedList(message string) string {
	_, of, _ := strings.Cut(message, `"method":"notifications/`)
	of, _, ok := strings.Cut(of, `/list_changed"`)
	if !ok {
		return ""
	}
	return of
}

// TestListNotifications checks that a session is notified of the lists that have changed and of no others: also
// by groups without tools or skills, and not if nothing new is visible.
func TestListNotifications(t *testing.T) {
	wires := map[*permission.Policy]*wire{}
	for _, p := range []*permission.Policy{open, unread} {
		cfg := gated()
		cfg.Policy = p
		wires[p] = newWire(t, listen(t, serve(t, cfg)))
		wires[p].initialize(`{}`)
		wires[p].post(t.Context(), listBody)
	}
	for _, row := range []struct {
		policy       *permission.Policy
		tool, groups string
		want         string
	}{
		{open, "enable_tools", `["prompts"]`, "prompts"},
		{open, "enable_tools", `["prompts"]`, ""},  // already open
		{open, "enable_tools", `["too"]`, ""},      // its prompts are visible already
		{open, "disable_tools", `["prompts"]`, ""}, // its prompts stay visible through the second group
		{open, "disable_tools", `["too"]`, "prompts"},
		{open, "enable_tools", `["resources"]`, "resources"},
		{open, "disable_tools", `["resources"]`, "resources"},
		{open, "enable_tools", `["empty"]`, ""},
		{open, "enable_tools", `["skills"]`, "resources"},
		{open, "disable_tools", `["skills"]`, "resources"},
		{unread, "enable_tools", `["skills"]`, ""},
		{unread, "enable_tools", `["prompts"]`, "prompts"},
	} {
		sent := wires[row.policy].rpc("tools/call", `{"name":"`+row.tool+`","arguments":{"groups":`+row.groups+`}}`)
		var notified []string
		for _, m := range sent[:len(sent)-1] {
			notified = append(notified, changedList(m))
		}
		notified = slices.DeleteFunc(notified, func(l string) bool { return l == "tools" }) // the control tools show which groups are open
		if got := strings.Join(notified, " "); got != row.want || strings.Contains(sent[len(sent)-1], `"isError"`) {
			t.Errorf("%s %s: notified of %q, want %q; %q", row.tool, row.groups, got, row.want, sent)
		}
	}
}

// TestNotifiedByHost checks that after a change of the catalogue clients are notified of the lists that have
// changed; clients without sessions only of those they have subscribed to.
func TestNotifiedByHost(t *testing.T) {
	cfg := gated()
	s := serve(t, cfg)
	url := listen(t, s)
	old, _ := dialOld(t, url, "", nil)
	old.send(oldInitialize)
	old.send(listBody)
	old.send(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"of://old"}}`)
	for m := old.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"enable_tools","arguments":{"groups":["prompts"]}}}`); !strings.Contains(m, `"id":2`); {
		_, m = old.next()
	}
	listening := func(uri, filter string) func() (string, string) {
		m := newModern(t, url, "", `{}`)
		m.header = map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
		next := m.stream(t.Context(), `{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{"notifications":{"groupsListChanged":true,`+filter+`"resourceSubscriptions":["`+uri+`"]},
			"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
		next() // the acknowledgement
		return next
	}
	all, few := listening("of://all", `"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,`), listening("of://few", `"promptsListChanged":true,`)
	update := func(change func(*toolkit.Config)) {
		if err := cfg.Toolkit.Update(func(c *toolkit.Config) error { change(c); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	// Every row also adds a group, which control tools and their list show. The notification of pending changes
	// includes it, and precedes an update of a resource that comes afterwards.
	notified := func(next func() (string, string), uri string) string {
		var lists []string
		for {
			_, m := next()
			if m == "" || strings.Contains(m, "resources/updated") {
				lists = slices.Compact(slices.Sorted(slices.Values(lists)))
				return strings.Join(slices.DeleteFunc(lists, func(l string) bool { return l == "groups" }), " ")
			}
			lists = append(lists, changedList(m))
			if !slices.Contains(lists[:len(lists)-1], "groups") && changedList(m) == "groups" {
				s.ResourceUpdated(uri)
			}
		}
	}
	for _, row := range []struct {
		what          string
		change        func(*toolkit.Config)
		old, all, few string
	}{
		{"a tool", func(c *toolkit.Config) { c.Basic.Tools = append(c.Basic.Tools, named("owl")) }, "tools", "tools", ""},
		{"other skills", func(c *toolkit.Config) { c.Basic.Skills = append(c.Basic.Skills, skill.Memory()) }, "resources tools", "resources tools", ""},
		{"the group of a resource is gone", func(c *toolkit.Config) { c.Groups = slices.Delete(c.Groups, 1, 2) }, "tools", "resources tools", ""},
		{"one group of two of a prompt is gone", func(c *toolkit.Config) { c.Groups = slices.Delete(c.Groups, 0, 1) }, "prompts tools", "tools", ""},
	} {
		update(func(c *toolkit.Config) { // all at once, because a second notification would be attributed to the next row
			row.change(c)
			c.Groups = append(c.Groups, toolkit.Group{Name: row.what, Description: "New."})
		})
		for _, client := range []struct {
			uri  string
			next func() (string, string)
			want string
		}{{"of://old", old.next, row.old}, {"of://all", all, row.all}, {"of://few", few, row.few}} {
			if got := notified(client.next, client.uri); got != client.want {
				t.Errorf("%s: the client of %s was notified of %q, want %q", row.what, client.uri, got, client.want)
			}
		}
	}
}

// TestSubscriptionLimit checks that a client is notified of an update once, and can subscribe to at most 1000
// resources, in revisions with and without sessions.
func TestSubscriptionLimit(t *testing.T) {
	s := serve(t, gated())
	url := listen(t, s)
	old, _ := dialOld(t, url, "", nil)
	old.send(oldInitialize)
	uris := make([]string, 1001)
	for i := range uris {
		uris[i] = fmt.Sprintf("of://%d", i)
		got := old.send(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"` + uris[i] + `"}}`)
		if refused := strings.Contains(got, "subscribed to too many resources"); refused != (i == 1000) {
			t.Fatalf("subscription %d: %s", i, got)
		}
	}
	for _, uri := range uris[:2] {
		s.ResourceUpdated(uri)
		if _, got := old.next(); !strings.Contains(got, `"uri":"`+uri+`"`) {
			t.Errorf("%s was updated; received %s", uri, got)
		}
	}
	m := newModern(t, url, "", `{}`)
	m.header = map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
	_, ack := m.stream(t.Context(), `{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["`+strings.Join(uris, `","`)+`"]},
		"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)()
	if !strings.Contains(ack, `"of://999"`) || strings.Contains(ack, `"of://1000"`) {
		t.Errorf("acknowledged: %s", ack)
	}
}

// TestSubscribedAgain checks that a client that subscribes again is still notified of an update for which no
// notification was sent yet.
func TestSubscribedAgain(t *testing.T) {
	s := serve(t, gated())
	w := newWire(t, listen(t, s))
	w.as("2025-06-18")
	subscribe := func() { w.rpc("resources/subscribe", `{"uri":"of://1"}`) }
	subscribe()
	s.ResourceUpdated("of://1")
	subscribe()
	notified := make(chan string, 1)
	standing := w.back("")
	go func() {
		_, m := nextEvent(standing.events)
		for m == "" { // comments
			_, m = nextEvent(standing.events)
		}
		notified <- m
	}()
	select {
	case m := <-notified:
		if !strings.Contains(m, "of://1") {
			t.Errorf("received %s", m)
		}
	case <-time.After(10 * time.Second):
		t.Error("the client was not notified")
		standing.drop()
	}
}

// TestNotifiedLater checks that if a call without a stream changes a list, the client is notified when the call
// has ended, on the standalone stream.
func TestNotifiedLater(t *testing.T) {
	s := serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open})
	w := newWire(t, listen(t, s))
	w.as("2025-06-18") // gets no events without data
	w.post(t.Context(), listBody)
	standing := w.back("")
	notified := make(chan string, 1)
	go func() {
		_, m := nextEvent(standing.events)
		for m == "" { // comments
			_, m = nextEvent(standing.events)
		}
		notified <- m
	}()
	w.header = map[string]string{"Accept": "application/json"}
	got := w.rpc("tools/call", `{"name":"reset_tools","arguments":{"zoo":true}}`)
	if len(got) != 1 || !strings.Contains(got[0], "Open now: zoo") {
		t.Fatalf("%q", got)
	}
	select {
	case m := <-notified:
		if changedList(m) != "tools" {
			t.Errorf("received %s", m)
		}
	case <-time.After(10 * time.Second):
		t.Error("the client was not notified")
		standing.drop()
	}
}
