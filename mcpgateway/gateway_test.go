package mcpgateway_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestGroups checks that tools are in the groups of the configuration or in their server's group, and that
// opening a group starts the servers whose tools it contains.
func TestGroups(t *testing.T) {
	github := behind(t, "github", named("list_issues"), named("get_issue"), named("list_repos"))
	jira := behind(t, "ji.ra", named("issue_find"), named("board"))
	files := behind(t, "files", named("read"))
	g := newGateway(t, mcpgateway.Config{
		Servers: []mcpclient.Server{github.Server, jira.Server, files.Server},
		Groups: []mcpgateway.Group{
			{Name: "issues", Description: "Bugs.", Tools: []string{"github__*issue*", "ji_ra__issue_*"}, Instructions: "Search first."},
			{Name: "reading", Description: "To look.", Tools: []string{"github__get_*", "files__*"}},
			{Name: "github", Description: "Code."},
		},
	})
	c := newHost(t, g)
	list(t, c, "reset_tools")
	if n := github.starts.Load() + jira.starts.Load() + files.starts.Load(); n != 0 {
		t.Errorf("%d servers were started before a group was opened", n)
	}
	var groups []string
	for _, gr := range g.Toolkit.Groups(nil) {
		groups = append(groups, gr.Name+": "+gr.Description)
	}
	if got, want := strings.Join(groups, " "), `issues: Bugs. reading: To look. github: Code. ji.ra: The tools of the MCP server "ji.ra".`; got != want {
		t.Errorf("groups: %s\nwant    %s", got, want)
	}
	for _, row := range []struct {
		open, list string
		starts     [3]int32
	}{
		{"ji.ra", "ji_ra__board reset_tools", [3]int32{0, 1, 0}},
		{"issues", "github__get_issue github__list_issues ji_ra__issue_find reset_tools", [3]int32{1, 1, 0}},
		{"reading", "files__read github__get_issue reset_tools", [3]int32{1, 1, 1}},
		{"github", "github__list_repos reset_tools", [3]int32{1, 1, 1}},
	} {
		res := call(t, c, "reset_tools", `{"`+row.open+`":true}`)
		if res.Outcome != message.OutcomeSuccess {
			t.Fatalf("%s: %s", row.open, res.Text())
		}
		list(t, c, row.list)
		if got := [3]int32{github.starts.Load(), jira.starts.Load(), files.starts.Load()}; got != row.starts {
			t.Errorf("after %s the servers were started %v times, want %v", row.open, got, row.starts)
		}
	}
	if res := call(t, c, "github__list_repos", `{}`); res.Text() != "list_repos" {
		t.Errorf("called: %s", res.Text())
	}
}

// TestLabels checks a server's own groups, and that they are updated when the server changes them.
func TestLabels(t *testing.T) {
	tk, err := toolkit.New(toolkit.Config{
		Control: new(toolkit.Control), Preset: toolkit.MCP(),
		Basic: toolkit.Group{Tools: []tool.Tool{named("loose")}},
		Groups: []toolkit.Group{
			{Name: "animals", Description: "All\u202e of them.", Tools: []tool.Tool{named("cow")}},
			{Name: "wild ones", Description: "Lions.", Parents: []string{"animals"}, Tools: []tool.Tool{named("lion"), named("bear")}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	zoo := behindToolkit(t, "zoo", tk)
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{zoo.Server, behind(t, "x", echo()).Server}, Labels: []string{"zoo"},
		Groups: []mcpgateway.Group{{Name: "mine", Description: "Bears.", Tools: []string{"zoo__bear"}}}})
	groups := func() string {
		var out []string
		for _, gr := range g.Toolkit.Groups(nil) {
			out = append(out, gr.Name+" "+strings.Join(gr.Parents, ",")+": "+gr.Description)
		}
		return strings.Join(out, "; ")
	}
	want := `mine : Bears.; zoo.animals : All of them.; zoo.wild_ones zoo.animals: Lions.; zoo : The tools of the MCP server "zoo" that are in no other group.; x : The tools of the MCP server "x".`
	if got := groups(); got != want {
		t.Fatalf("groups: %s\nwant    %s", got, want)
	}
	c := newHost(t, g)
	call(t, c, "reset_tools", `{"zoo.animals":true,"zoo.wild_ones":true}`)
	list(t, c, "reset_tools zoo__cow zoo__lion")
	if err := tk.AddGroup(toolkit.Group{Name: "birds", Description: "Owls.", Tools: []tool.Tool{named("owl")}}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); !strings.Contains(groups(), "zoo.birds : Owls."); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("groups: %s", groups())
		}
	}
	call(t, c, "reset_tools", `{"zoo.birds":true}`)
	list(t, c, "reset_tools zoo__owl")
}

// TestLabelsTaken checks that no server can have a group with a name in the configuration or with the name of
// another server's group.
func TestLabelsTaken(t *testing.T) {
	tk, err := toolkit.New(toolkit.Config{Control: new(toolkit.Control), Preset: toolkit.MCP(), Groups: []toolkit.Group{
		{Name: "mine", Description: "Not yours.", Tools: []tool.Tool{named("steal")}},
		{Name: "b", Description: "Of another.", Tools: []tool.Tool{named("grab")}},
		{Name: "x y", Description: "1.", Tools: []tool.Tool{named("one")}}, {Name: "x_y", Description: "2.", Tools: []tool.Tool{named("two")}},
		{Name: "child", Description: "Of those that got other names.", Parents: []string{"b", "x_y", "mine"}, Tools: []tool.Tool{named("three")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{behindToolkit(t, "a", tk).Server, behind(t, "a.b", named("get")).Server}, Labels: []string{"a"},
		Groups: []mcpgateway.Group{{Name: "a.mine", Description: "Mine.", Tools: []string{"a_b__*et"}}},
		Serve:  mcpgateway.ServeOptions{Credentials: []mcpserver.Credential{{Name: "anna", Token: "0123456789abcdef", Ceiling: toolkit.Only("a.mine", "a.b")}}}})
	var groups []string
	for _, gr := range g.Toolkit.Groups(nil) {
		groups = append(groups, strings.Join(append([]string{gr.Name}, gr.Parents...), "<"))
	}
	if got := strings.Join(groups, " "); got != "a.mine a.b_ a.child<a.b_<a.mine_<a.x_y_ a.mine_ a.x_y a.x_y_ a.b" {
		t.Errorf("groups: %s", got)
	}
	s := new(toolkit.Scope)
	s.SetCeiling(toolkit.Only("a.mine", "a.b"))
	if _, err := g.Toolkit.Set(t.Context(), s, "a.mine", "a.b"); err != nil {
		t.Fatal(err)
	}
	v, err := g.Toolkit.View(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range v.Tools() {
		if strings.HasPrefix(i.Name, "a__") {
			t.Errorf("the ceiling grants %s", i.Name)
		}
	}
}

// TestInstructions checks that the instructions of a server are given when a group with its tools is opened,
// unless the configuration has instructions for that group.
func TestInstructions(t *testing.T) {
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: []tool.Tool{named("get"), named("put")}, Instructions: "Be\u202e quick.\x1b"}})
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{behindToolkit(t, "a", tk).Server, behind(t, "b", named("x")).Server},
		Groups: []mcpgateway.Group{{Name: "mine", Description: "M.", Instructions: "Take your time.", Tools: []string{"a__get"}}}})
	w := newWire(t, g)
	for _, row := range []struct{ group, want, not string }{
		{"a", "Instructions of the MCP server \"a\" for its tools:\nBe quick.", "Take your time"},
		{"mine", "Take your time.", "Be quick"},
		{"b", "b__x", "Instructions of"},
	} {
		if got, _ := w.tool("reset_tools", map[string]bool{row.group: true}); !strings.Contains(got, row.want) || strings.Contains(got, row.not) {
			t.Errorf("%s: %s", row.group, got)
		}
	}
}

// TestKilled kills a server in the middle of a call, as the kernel could: its calls fail, calls of other
// servers do not, and the server runs again for the next call.
func TestKilled(t *testing.T) {
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{process(t, "a"), process(t, "b")}, Initial: []string{"a", "b"}})
	c, other := newHost(t, g), newHost(t, g)
	process := func(server string) int {
		t.Helper()
		res := call(t, c, server+"__pid", `{}`)
		n, err := strconv.Atoi(res.Text())
		if err != nil {
			t.Fatalf("%s: %s", server, res.Text())
		}
		return n
	}
	a, b := process("a"), process("b")
	hanging := func(c *mcpclient.Client, name string) chan error {
		done, began := make(chan error, 1), make(chan struct{})
		go func() { done <- begin(t.Context(), t, c, name, began) }()
		<-began
		return done
	}
	first, second, untouched := hanging(c, "a__hang"), hanging(other, "a__hang"), hanging(other, "b__hang")
	killProcess(t, a)
	for _, done := range []chan error{first, second} {
		if err := <-done; err == nil || !strings.Contains(err.Error(), `MCP server "a"`) || !strings.Contains(err.Error(), "lost") {
			t.Errorf("a call in flight: %v", err)
		}
	}
	if res := call(t, c, "b__echo", `{"message":"still here"}`); res.Text() != "still here" {
		t.Errorf("the other server: %s", res.Text())
	}
	if now := process("a"); now == a {
		t.Error("the server that was killed has the same process")
	}
	if now := process("b"); now != b {
		t.Error("the other server was restarted, too")
	}
	select {
	case err := <-untouched:
		t.Errorf("the other server's call ended: %v", err)
	default:
	}
	if st := g.Status(); st[0].Restarts != 1 || st[1].Restarts != 0 {
		t.Errorf("status: %+v", st)
	}
}

// TestDead checks that a server that cannot be started is reported as an error of its group, in every style.
func TestDead(t *testing.T) {
	dead := mcpclient.Server{Name: "dead", Transport: mcpclient.Command{Path: "/does/not/exist"}}
	for _, style := range mcpgateway.Styles() {
		t.Run(string(style), func(t *testing.T) {
			g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{dead, behind(t, "a", echo()).Server}, Style: style})
			c := newHost(t, g)
			name, input := "a__echo", `{"message":"hi"}`
			opened := func(res *message.ToolResult) {
				if text := res.Text(); !strings.Contains(text, "dead") || strings.Count(text, "/does/not/exist") != 1 {
					t.Errorf("opening its group: %s", text)
				}
			}
			switch style {
			case mcpgateway.StyleReset:
				opened(call(t, c, "reset_tools", `{"dead":true,"a":true}`))
			case mcpgateway.StyleEnable:
				opened(call(t, c, "enable_tools", `{"groups":["dead","a"]}`))
			case mcpgateway.StylePerGroup:
				opened(call(t, c, "dead_activate", `{}`))
				call(t, c, "a_activate", `{}`)
			case mcpgateway.StyleDiscover:
				name, input = "call_tool", `{"name":"a__echo","arguments":{"message":"hi"}}`
				if res := call(t, c, name, `{"name":"dead__x"}`); !strings.Contains(res.Text(), `MCP server "dead"`) {
					t.Errorf("a tool of the dead server: %s", res.Text())
				}
			}
			if res := call(t, c, name, input); res.Text() != "hi" {
				t.Errorf("%s: %s", name, res.Text())
			}
		})
	}
}

// TestCancel checks that a cancellation reaches the upstream server, and ends no other session's call.
func TestCancel(t *testing.T) {
	started, ended := make(chan struct{}, 2), make(chan struct{}, 2)
	g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{behind(t, "a", hang(started, ended)).Server}, Initial: []string{"a"}})
	one, two := newHost(t, g), newHost(t, g)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, second := make(chan error, 1), make(chan error, 1)
	begin := func(ctx context.Context, c *mcpclient.Client, done chan<- error) {
		go func() {
			_, err := tryCall(ctx, c, "a__hang", `{}`)
			done <- err
		}()
		<-started
	}
	begin(ctx, one, first)
	begin(t.Context(), two, second)
	cancel()
	<-ended
	if err := <-first; err == nil {
		t.Error("the cancelled call has a result")
	}
	select {
	case <-ended:
		t.Error("the other session's call was cancelled, too")
	case <-time.After(50 * time.Millisecond):
	}
	_ = two.Close() // its host disconnects
	<-ended
	<-second
}

// TestOAuthWithoutOpenOAuth checks that a gateway whose users could not be checked is not made.
func TestOAuthWithoutOpenOAuth(t *testing.T) {
	cfg := mcpgateway.Config{Servers: []mcpclient.Server{behind(t, "a", echo()).Server}, Serve: mcpgateway.ServeOptions{Version: "1", Policy: open},
		OAuth: &mcpserver.OAuth{Resource: "https://mcp.example.com/", Issuers: []string{"https://login.example.com"}, Grants: []mcpserver.Grant{{Name: "all"}}}}
	if _, err := mcpgateway.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "set OpenOAuth to oauth.New") {
		t.Errorf("New returns %v", err)
	}
}
