package mcpserver_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/toolkit"
)

// library has a skill that everyone sees and one in the group "docs", and also configured prompts and resources.
func library() mcpserver.Config {
	folder := func(name string) skill.Loader {
		return skill.FS(fstest.MapFS{
			name + "/SKILL.md":            {Data: []byte("---\nname: " + name + "\ndescription: About " + name + ".\n---\n\nRead on.\n")},
			name + "/references/a b?.md":  {Data: []byte("black ink")},
			name + "/assets/dot.png":      {Data: []byte("\x89PNG\r\n\x1a\n")},
			name + "/.git/config":         {Data: []byte("secret")},
			name + "/references/plain":    {Data: []byte("plain")},
			name + "/assets/palette.json": {Data: []byte("{}")},
			"outside.md":                  {Data: []byte("secret")},
		})
	}
	tk, err := toolkit.New(toolkit.Config{
		Basic: toolkit.Group{Skills: []skill.Loader{folder("start"), skill.Memory(&skill.Skill{Name: "memo", Description: "In \"memory\".", Body: "Remember."})}},
		Groups: []toolkit.Group{
			{Name: "docs", Description: "Documents.", Skills: []skill.Loader{folder("pdf")}},
			{Name: "other", Description: "Empty."},
		},
	})
	if err != nil {
		panic(err)
	}
	hello := func(_ context.Context, args map[string]string) ([]*message.Message, error) {
		if args["name"] == "nobody" {
			return nil, errors.New("no greeting for nobody")
		}
		return []*message.Message{message.User("Greet " + args["name"]), message.Assistant(&message.Text{Text: "Hello!"})}, nil
	}
	names := func(_ context.Context, typed string, others map[string]string) ([]string, error) {
		var out []string
		for i := range 150 {
			out = append(out, fmt.Sprint(typed, others["lang"], i))
		}
		return out, nil
	}
	row := func(_ context.Context, uri string, vars map[string]string) ([]byte, error) {
		if vars["id"] == "0" {
			return nil, fmt.Errorf("row 0: %w", fs.ErrNotExist)
		}
		return json.Marshal([]string{uri, vars["id"]})
	}
	return mcpserver.Config{Toolkit: tk, Policy: open,
		Prompts: []mcpserver.Prompt{
			{Name: "hello", Title: "Hello", Description: "Greets.", Arguments: []mcpserver.Argument{{Name: "name", Required: true, Complete: names}, {Name: "lang"}}, Get: hello},
			{Name: "review", Description: "Of documents.", Groups: []string{"docs"}, Get: hello},
		},
		Resources: []mcpserver.Resource{
			{URI: "db://rows/{id}", Name: "rows", MediaType: "application/json", Read: row},
			{URI: "db://rows/first", Name: "first", Read: func(context.Context, string, map[string]string) ([]byte, error) { return []byte("the first"), nil }},
			{URI: "db://docs", Groups: []string{"docs"}, Read: row},
		}}
}

// rpc sends a request in the wire's session, and returns the messages of the response.
func (w *wire) rpc(method, params string) []string {
	w.t.Helper()
	_, got := w.post(w.t.Context(), `{"jsonrpc":"2.0","id":3,"method":"`+method+`","params":`+params+`}`)
	return got
}

// list returns the values of a member of the entries that a request lists, and its cursor.
func (w *wire) list(method, key, member, cursor string) (values []string, next string) {
	w.t.Helper()
	got := w.rpc(method, `{"cursor":"`+cursor+`"}`)
	var m struct{ Result map[string]json.RawMessage }
	var items []map[string]any
	if err := json.Unmarshal([]byte(got[len(got)-1]), &m); err != nil || json.Unmarshal(m.Result[key], &items) != nil {
		w.t.Fatalf("%s: %q", method, got)
	}
	for _, it := range items {
		values = append(values, fmt.Sprint(it[member]))
	}
	_ = json.Unmarshal(m.Result["nextCursor"], &next)
	return values, next
}

const (
	startFiles = "skill://start/SKILL.md skill://start/assets/dot.png skill://start/assets/palette.json skill://start/references/a%20b%3F.md skill://start/references/plain"
	pdfFiles   = "skill://pdf/SKILL.md skill://pdf/assets/dot.png skill://pdf/assets/palette.json skill://pdf/references/a%20b%3F.md skill://pdf/references/plain"
)

// TestPromptsAndResources checks that a session can get exactly the prompts and resources that it sees, and
// that it is notified once, before the result, when they change.
func TestPromptsAndResources(t *testing.T) {
	w := newWire(t, listen(t, serve(t, library())))
	w.initialize(`{}`)
	for _, step := range []struct {
		open               string
		notified           []string
		prompts, resources string
	}{
		{`{}`, nil, "hello", "db://rows/first " + startFiles + " skill://memo/SKILL.md"},
		{`{"other":true}`, nil, "hello", "db://rows/first " + startFiles + " skill://memo/SKILL.md"},
		{`{"docs":true}`, []string{"prompts", "resources"}, "hello review", "db://rows/first db://docs " + startFiles + " skill://memo/SKILL.md " + pdfFiles},
		{`{"docs":true,"other":true}`, nil, "hello review", "db://rows/first db://docs " + startFiles + " skill://memo/SKILL.md " + pdfFiles},
		{`{}`, []string{"prompts", "resources"}, "hello", "db://rows/first " + startFiles + " skill://memo/SKILL.md"},
	} {
		got := w.rpc("tools/call", `{"name":"reset_tools","arguments":`+step.open+`}`)
		var notified []string
		for _, m := range got[:len(got)-1] {
			notified = append(notified, strings.TrimSuffix(strings.TrimPrefix(m, `{"jsonrpc":"2.0","method":"notifications/`), `/list_changed"}`))
		}
		notified = slices.DeleteFunc(notified, func(s string) bool { return s == "tools" })
		if !slices.Equal(notified, step.notified) {
			t.Errorf("%s: notified of %q, want %q", step.open, notified, step.notified)
		}
		prompts, _ := w.list("prompts/list", "prompts", "name", "")
		resources, _ := w.list("resources/list", "resources", "uri", "")
		if p, r := strings.Join(prompts, " "), strings.Join(resources, " "); p != step.prompts || r != step.resources {
			t.Errorf("%s: prompts %s\nresources %s\nwant %s\n%s", step.open, p, r, step.prompts, step.resources)
		}
		for uri := range strings.FieldsSeq(step.resources + " " + pdfFiles + " db://docs") {
			got := w.rpc("resources/read", `{"uri":"`+uri+`"}`)
			if sees := strings.Contains(step.resources, uri); strings.Contains(got[0], `"contents"`) != sees {
				t.Errorf("%s: %s: want visible=%v, got %s", step.open, uri, sees, got[0])
			}
		}
		for _, name := range []string{"pdf", "review"} {
			got := w.rpc("prompts/get", `{"name":"`+name+`"}`)
			if sees := slices.Contains(prompts, name); strings.Contains(got[0], `"messages"`) != sees {
				t.Errorf("%s: %s: want visible=%v, got %s", step.open, name, sees, got[0])
			}
		}
	}
}

// TestGetAndRead checks requests and their answers.
func TestGetAndRead(t *testing.T) {
	w := newWire(t, listen(t, serve(t, library())))
	w.initialize(`{}`)
	for _, row := range []struct{ method, params, want string }{
		{"prompts/get", `{"name":"hello","arguments":{"name":"Ada"}}`, `"messages":[{"content":{"text":"Greet Ada","type":"text"},"role":"user"},{"content":{"text":"Hello!","type":"text"},"role":"assistant"}]`},
		{"prompts/get", `{"name":"hello"}`, `needs the argument \"name\"`},
		{"prompts/get", `{"name":"hello","arguments":{"name":7}}`, `-32602`},
		{"prompts/get", `{"name":"hello","arguments":{"name":"nobody"}}`, `no greeting for nobody`},
		{"prompts/get", `{"name":"start"}`, `unknown prompt`},
		{"skills/get", `{"uri":"skill://memo/SKILL.md"}`, `{"skill":{"frontmatter":{"description":"In \"memory\".","name":"memo"},"resources":[{"digest":"` + skill.Digest([]byte("---\nname: \"memo\"\ndescription: \"In \\\"memory\\\".\"\n---\n\nRemember.")) + `","size":61,"uri":"skill://memo/SKILL.md"}],"uri":"skill://memo/SKILL.md"}}`},
		{"skills/get", `{"uri":"skill://start/references/a%20b%3F.md"}`, `-32602`},
		{"skills/get", `{"uri":"skill://pdf/SKILL.md"}`, `-32602`},
		{"skills/get", `{}`, `uri is missing`},
		{"skills/list", `{"cursor":"x"}`, `-32602`},
		{"resources/read", `{"uri":"skill://memo/SKILL.md"}`, `"mimeType":"text/markdown","text":"---\nname: \"memo\"\ndescription: \"In \\\"memory\\\".\"\n---\n\nRemember."`},
		{"resources/read", `{"uri":"skill://start/SKILL.md"}`, `"text":"---\nname: start\n`},
		{"resources/read", `{"uri":"skill://start/assets/dot.png"}`, `"blob":"iVBORw0KGgo=","mimeType":"image/png"`},
		{"resources/read", `{"uri":"skill://start/references/plain"}`, `"mimeType":"text/plain","text":"plain"`},
		{"resources/read", `{"uri":"db://rows/first"}`, `"text":"the first"`}, // a fixed URI takes precedence over a template
		{"resources/read", `{"uri":"db://rows/7"}`, `"text":"[\"db://rows/7\",\"7\"]"`},
		{"resources/read", `{"uri":"db://rows/0"}`, `"code":-32002`},
		{"resources/read", `{"uri":"db://rows/a/b"}`, `"code":-32002`},
		{"resources/read", `{}`, "uri is missing"},
		// Paths that leave the folder, and files that are in it but not listed.
		{"resources/read", `{"uri":"skill://start/../outside.md"}`, `"data":{"uri":"skill://start/../outside.md"}`},
		{"resources/read", `{"uri":"skill://start/%2e%2e/outside.md"}`, "-32002"},
		{"resources/read", `{"uri":"skill://start/.git/config"}`, "-32002"},
		{"resources/read", `{"uri":"skill://start/assets/../SKILL.md"}`, "-32002"},
		{"resources/read", `{"uri":"skill://start/"}`, "-32002"},
		{"resources/read", `{"uri":"skill:start/SKILL.md"}`, "-32002"},
		{"resources/read", `{"uri":"file:///etc/hostname"}`, "-32002"},
		{"resources/templates/list", `{}`, `"resourceTemplates":[{"description":"","mimeType":"application/json","name":"rows","uriTemplate":"db://rows/{id}"}]`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"hello"},"argument":{"name":"name","value":"A"},"context":{"arguments":{"lang":"-de-"}}}`, `"hasMore":true,"total":150,"values":["A-de-0","A-de-1",`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"hello"},"argument":{"name":"lang","value":"A"}}`, `"hasMore":false,"total":0,"values":[]`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"pdf"},"argument":{"name":"x","value":""}}`, `unknown prompt \"pdf\"`},
		{"completion/complete", `{"ref":{"type":"ref/resource","uri":"db://rows/{id}"},"argument":{"name":"id","value":""}}`, `"values":[]`},
		{"logging/setLevel", `{"level":"loud"}`, `; it is \"loud\"`},
		{"logging/setLevel", `{"level":"info"}`, `"result":{}`},
	} {
		if got := w.rpc(row.method, row.params); len(got) != 1 || !strings.Contains(got[0], row.want) {
			t.Errorf("%s %s: %q, want %s", row.method, row.params, got, row.want)
		}
	}
}

// TestPromptAndResourceAccess checks that ceilings and rules apply to prompts and resources as they do to tools,
// in revisions with and without sessions.
func TestPromptAndResourceAccess(t *testing.T) {
	cfg := library()
	cfg.Credentials = []mcpserver.Credential{
		{Name: "anna", Token: tokenA, Ceiling: toolkit.Only("docs")},
		{Name: "otto", Token: tokenB, Policy: &permission.Policy{Mode: permission.ModeBypass, Rules: []permission.Rule{{Tool: "Skill", Behavior: permission.Deny}}}},
	}
	url := listen(t, serve(t, cfg))
	for _, row := range []struct{ token, uri, prompt, withSession, sessionless string }{
		{tokenA, "skill://start/SKILL.md", "", "no", "no"},
		{tokenA, "skill://pdf/SKILL.md", "", "no", "yes"}, // only a session must open the group first
		{tokenA, "db://rows/first", "hello", "no", "no"},
		{tokenA, "db://docs", "review", "no", "yes"},
		{tokenB, "skill://start/SKILL.md", "", "no", "no"},
		{tokenB, "skill://memo/SKILL.md", "", "no", "no"},
		{tokenB, "db://docs", "review", "no", "yes"},
		{tokenB, "db://rows/first", "hello", "yes", "yes"},
	} {
		inSession, sessionless := newWire(t, url), newModern(t, url, row.token, `{}`)
		inSession.token = row.token
		inSession.initialize(`{}`)
		const args = `,"arguments":{"name":"x"}`
		_, resource := sessionless.send(t.Context(), "resources/read", row.uri, "")
		method, params, sign, other := "prompts/get", `{"name":"`+row.prompt+`"`+args+`}`, `"messages"`, row.prompt
		if row.prompt == "" {
			method, params, sign, other = "skills/get", `{"uri":"`+row.uri+`"}`, `"digest"`, row.uri
		}
		_, prompt := sessionless.send(t.Context(), method, other, args)
		for what, got := range map[string]struct{ answer, sign, want string }{
			"the resource":                     {resource, `"contents"`, row.sessionless},
			"the prompt or skill":              {prompt, sign, row.sessionless},
			"the resource in a session":        {inSession.rpc("resources/read", `{"uri":"`+row.uri+`"}`)[0], `"contents"`, row.withSession},
			"the prompt or skill in a session": {inSession.rpc(method, params)[0], sign, row.withSession},
		} {
			if strings.Contains(got.answer, got.sign) != (got.want == "yes") {
				t.Errorf("%s, %s of row %s: %s", what, row.uri, row.prompt, got.answer)
			}
		}
	}
}

// TestPages checks that lists are sent in pages and contain every item once.
func TestPages(t *testing.T) {
	cfg := library()
	cfg.PageSize = 2
	w := newWire(t, listen(t, serve(t, cfg)))
	w.initialize(`{}`)
	for method, want := range map[string]int{"prompts": 1, "resources": 7, "skills": 2} {
		var all []string
		for cursor, pages := "", 0; ; pages++ {
			part, next := w.list(method+"/list", method, cmp.Or(map[string]string{"skills": "uri"}[method], "name"), cursor)
			all = append(all, part...)
			if len(part) > 2 || pages > want {
				t.Fatalf("%s: page %d has %q", method, pages, part)
			}
			if cursor = next; next == "" {
				break
			}
		}
		if len(slices.Compact(slices.Sorted(slices.Values(all)))) != want {
			t.Errorf("%s: %q, want %d", method, all, want)
		}
	}
	if got := w.rpc("prompts/list", `{"cursor":"x"}`); !strings.Contains(got[0], "-32602") {
		t.Errorf("an invalid cursor: %q", got)
	}
}

// TestUpdates checks that subscribed clients are notified of updates, in revisions with and without sessions.
func TestUpdates(t *testing.T) {
	s := serve(t, library())
	url := listen(t, s)
	o, _ := dialOld(t, url, "", nil)
	o.send(oldInitialize)
	for _, row := range []struct{ method, uri, want string }{
		{"resources/subscribe", "db://rows/1", `"result":{}`},
		{"resources/subscribe", "skill://start/SKILL.md", `"result":{}`},
		{"resources/subscribe", "db://docs", "unknown resource"},
		{"resources/subscribe", "db://rows/2", `"result":{}`},
		{"resources/unsubscribe", "db://rows/2", `"result":{}`},
	} {
		if got := o.send(`{"jsonrpc":"2.0","id":1,"method":"` + row.method + `","params":{"uri":"` + row.uri + `"}}`); !strings.Contains(got, row.want) {
			t.Errorf("%s %s: %s", row.method, row.uri, got)
		}
	}
	for _, uri := range []string{"db://rows/2", "db://docs", "db://rows/1"} {
		s.ResourceUpdated(uri)
	}
	if _, got := o.next(); got != `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"db://rows/1"}}` {
		t.Errorf("received %s", got)
	}

	m := newModern(t, url, "", `{}`)
	m.header = map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	events := m.stream(ctx, `{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{"notifications":{"promptsListChanged":true,
		"resourceSubscriptions":["db://rows/1","made-up",7]},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
	if _, got := events(); !strings.Contains(got, `"notifications":{"promptsListChanged":true,"resourceSubscriptions":["db://rows/1"]}`) {
		t.Fatalf("acknowledged: %s", got)
	}
	s.ResourceUpdated("db://rows/1")
	if _, got := events(); !strings.Contains(got, `"method":"notifications/resources/updated","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"},"uri":"db://rows/1"}`) {
		t.Errorf("a client without sessions received %s", got)
	}
}

// TestSubscribeAtTheLimit checks that a client at the limit can subscribe again to one of its resources, and to
// another one after it has unsubscribed from one.
func TestSubscribeAtTheLimit(t *testing.T) {
	h := serve(t, library()).Handler()
	session := local(h, "", initializeBody).Header().Get("Mcp-Session-Id")
	ask := func(method string, row int) string {
		return local(h, session, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/%s","params":{"uri":"db://rows/%d"}}`, method, row)).Body.String()
	}
	const limit = 1000
	for i := range limit {
		if got := ask("subscribe", i); !strings.Contains(got, `"result":{}`) {
			t.Fatalf("%d: %s", i, got)
		}
	}
	for _, step := range []struct {
		method string
		row    int
		want   string
	}{
		{"subscribe", limit, "subscribed to too many"}, {"subscribe", 7, `"result":{}`}, {"subscribe", limit, "subscribed to too many"},
		{"unsubscribe", 7, `"result":{}`}, {"subscribe", limit, `"result":{}`}, {"subscribe", 7, "subscribed to too many"},
	} {
		if got := ask(step.method, step.row); !strings.Contains(got, step.want) {
			t.Errorf("%s %d: %s, want %s", step.method, step.row, got, step.want)
		}
	}
}

// TestPromptConfig checks configurations that New rejects.
func TestPromptConfig(t *testing.T) {
	get := func(context.Context, map[string]string) ([]*message.Message, error) { return nil, nil }
	read := func(context.Context, string, map[string]string) ([]byte, error) { return nil, nil }
	for _, row := range []struct {
		prompts   []mcpserver.Prompt
		resources []mcpserver.Resource
		want      string
	}{
		{[]mcpserver.Prompt{{Get: get}}, nil, "has no name"},
		{[]mcpserver.Prompt{{Name: "a"}}, nil, `"a" has no Get`},
		{[]mcpserver.Prompt{{Name: "a", Get: get}, {Name: "a", Get: get}}, nil, `duplicate prompt "a"`},
		{[]mcpserver.Prompt{{Name: "a", Get: get, Arguments: []mcpserver.Argument{{Name: "x"}, {Name: "x"}}}}, nil, `argument 1 has the name "x"`},
		{nil, []mcpserver.Resource{{URI: "rows", Read: read}}, "must have a scheme"},
		{nil, []mcpserver.Resource{{URI: "skill://a/SKILL.md", Read: read}}, `other than "skill"`},
		{nil, []mcpserver.Resource{{URI: "db://a"}}, "has no Read"},
		{nil, []mcpserver.Resource{{URI: "db://{", Read: read}}, `resource "db://{"`},
		{nil, []mcpserver.Resource{{URI: "db://a", Read: read}, {URI: "db://a", Read: read}}, `duplicate resource "db://a"`},
	} {
		_, err := mcpserver.New(mcpserver.Config{Toolkit: toolkit.Of(named("x")), Name: "n", Version: "1", Prompts: row.prompts, Resources: row.resources})
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v, want %q", err, row.want)
		}
	}
}
