// Command confclient is the client for the public MCP conformance suite: it connects to the URL in its last
// argument, does what the scenario in the environment requires, and exits.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	if err := run(ctx, os.Args[len(os.Args)-1], os.Getenv("MCP_CONFORMANCE_SCENARIO")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// scenario is the context that the suite passes along with the scenario's name.
type scenario struct {
	ToolCalls []struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"toolCalls"`
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
}

// login logs in as a user who agrees to everything, by following the redirect of the authorization server.
func (sc *scenario) login(name string) *mcpclient.OAuth {
	if !strings.HasPrefix(name, "auth/") {
		return nil
	}
	o := &mcpclient.OAuth{
		RedirectURL: "http://localhost:3000/callback", ClientID: sc.ClientID, ClientSecret: sc.ClientSecret,
		Authorize: func(ctx context.Context, page string) (url.Values, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
			if err != nil {
				return nil, err
			}
			client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
			res, err := client.Do(req)
			if err != nil {
				return nil, err
			}
			res.Body.Close()
			redirect, err := res.Location()
			if err != nil {
				return nil, err
			}
			return redirect.Query(), nil
		},
	}
	if name == "auth/basic-cimd" {
		o.ClientMetadataURL = "https://conformance-test.local/client-metadata.json"
	}
	return o
}

func run(ctx context.Context, server, name string) error {
	var sc scenario
	if raw := os.Getenv("MCP_CONFORMANCE_CONTEXT"); raw != "" {
		if err := json.Unmarshal([]byte(raw), &sc); err != nil {
			return fmt.Errorf("MCP_CONFORMANCE_CONTEXT: %w", err)
		}
	}
	c, err := mcpclient.New("conformance", mcpclient.HTTP{URL: server, OAuth: sc.login(name)}, &mcpclient.Options{
		Protocol: os.Getenv("MCP_CONFORMANCE_PROTOCOL_VERSION"),
		Elicitation: func(context.Context, host.Elicitation) (host.Answer, error) {
			content := map[string]any{}
			if strings.HasPrefix(name, "sep-2322") {
				content["confirmed"] = true
			}
			return host.Answer{Action: host.ActionAccept, Content: content}, nil
		},
		Sampling: func(context.Context, host.SampleRequest) (host.Sample, error) {
			return host.Sample{Model: "none", Text: "hi"}, nil
		},
		PingInterval: -1,
	})
	if err != nil {
		return err
	}
	defer c.Close()
	tools, err := c.Tools(ctx)
	if err != nil {
		return err
	}
	return callTools(ctx, name, sc, tools)
}

// callTools makes the scenario's calls.
func callTools(ctx context.Context, name string, sc scenario, tools []tool.Tool) error {
	byName := map[string]tool.Tool{}
	for _, t := range tools {
		if _, remote, ok := mcpclient.Origin(t); ok {
			byName[remote] = t
		}
	}
	switch {
	case len(sc.ToolCalls) > 0:
		for _, tc := range sc.ToolCalls {
			if t := byName[tc.Name]; t != nil {
				report(tc.Name, call(ctx, t, tc.Arguments))
			}
		}
		return nil
	case name == "json-schema-2020-12-preservation":
		args, err := json.Marshal(map[string]any{"schema": byName["json_schema_2020_12_tool"].Info().Input})
		if err != nil {
			return err
		}
		return call(ctx, byName["json_schema_echo"], args)
	case name == "json-schema-ref-no-deref":
		return nil // the client must not fetch anything when it lists the tool
	case name == "sep-2322-client-request-state":
		for _, n := range []string{"test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type"} {
			if err := call(ctx, byName[n], json.RawMessage(`{}`)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, t := range tools {
		report(t.Info().Name, call(ctx, t, example(t)))
	}
	return nil
}

// example returns arguments for the tools of the suite.
func example(t tool.Tool) json.RawMessage {
	if strings.Contains(string(t.Info().Input), `"a"`) {
		return json.RawMessage(`{"a":2,"b":3}`)
	}
	return json.RawMessage(`{}`)
}

func call(ctx context.Context, t tool.Tool, args json.RawMessage) error {
	for _, err := range t.Call(ctx, tool.Call{ID: "1", Name: t.Info().Name, Input: args}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// report prints the error of a call that the suite may expect to fail.
func report(name string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "call %s: %v\n", name, err)
	}
}
