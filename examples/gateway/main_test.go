package main

import (
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// TestMain lets the gateway start this program as the servers behind it.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && !strings.HasPrefix(os.Args[1], "-") {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	ci   = "0123456789abcdef"
	team = "abcdef0123456789"
)

func TestGateway(t *testing.T) {
	g, err := newGateway(t.Context(), os.Args[0], ci, team)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	h := httptest.NewServer(g.Server.Handler())
	t.Cleanup(h.Close) // after the clients

	// A client of the newest protocol, whose list must not change, searches instead of opening groups.
	if got := names(t, connect(t, h.URL, team, "")); !slices.Equal(got, []string{"call_tool", "describe_tools", "search_tools"}) {
		t.Errorf("a client of the newest protocol sees %q", got)
	}

	c := connect(t, h.URL, team, "2025-11-25") // the last protocol with reset_tools
	if got := names(t, c); !slices.Equal(got, []string{"reset_tools"}) {
		t.Errorf("before a group is open the team sees %q", got)
	}
	if got := call(t, c, "reset_tools", `{"reports": true, "changes": true}`); got.Outcome != message.OutcomeSuccess {
		t.Fatalf("reset_tools: %+v", got)
	}
	if got := names(t, c); !slices.Equal(got, []string{"deploy__log", "deploy__start", "reset_tools", "tickets__add", "tickets__list"}) {
		t.Errorf("the team sees %q", got)
	}
	if got := call(t, c, "deploy__log", `{}`); strings.Contains(got.Text(), "ghp_") || !strings.Contains(got.Text(), "all is well") {
		t.Errorf("the log is %q", got.Text())
	}
	// This client cannot ask its user, so calls that no rule allows are refused.
	if got := call(t, c, "deploy__start", `{}`); got.Outcome == message.OutcomeSuccess {
		t.Errorf("a deployment started without a question: %q", got.Text())
	}

	c = connect(t, h.URL, ci, "2025-11-25")
	if got := call(t, c, "reset_tools", `{"changes": true}`); got.Outcome == message.OutcomeSuccess {
		t.Errorf("CI opens the group changes: %q", got.Text())
	}
	if got := call(t, c, "reset_tools", `{"reports": true}`); got.Outcome != message.OutcomeSuccess {
		t.Errorf("CI opens the group reports: %q", got.Text())
	}
	if got := call(t, c, "tickets__list", `{}`); !strings.Contains(got.Text(), "The lamp is dark.") {
		t.Errorf("the tickets are %q", got.Text())
	}
}

func connect(t *testing.T, url, token, protocol string) *mcpclient.Client {
	t.Helper()
	c, err := mcpclient.New("office", mcpclient.HTTP{URL: url, Headers: map[string]string{"Authorization": "Bearer " + token}},
		&mcpclient.Options{Prefix: "-", Protocol: protocol})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func names(t *testing.T, c *mcpclient.Client) []string {
	t.Helper()
	tools, err := c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, t := range tools {
		list = append(list, strings.TrimPrefix(t.Info().Name, "-"))
	}
	return list
}

func call(t *testing.T, c *mcpclient.Client, name, input string) *message.ToolResult {
	t.Helper()
	tools, err := c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range tools {
		if strings.TrimPrefix(one.Info().Name, "-") != name {
			continue
		}
		made := tool.Call{ID: "1", Name: name, Input: []byte(input)}
		result := tool.NewCollector(made)
		for chunk, err := range tool.Run(t.Context(), one, made) {
			if err != nil {
				t.Fatal(err)
			}
			result.Add(chunk)
		}
		return result.Result()
	}
	t.Fatalf("there is no tool %s in %q", name, names(t, c))
	return nil
}
