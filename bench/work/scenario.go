package work

import (
	"fmt"
	"net/http"
	"strings"
)

// A Scenario is one task of the comparison.
type Scenario struct {
	Name   string
	Steps  int  // answers with tool calls before the last answer
	Calls  int  // tool calls in each of these answers
	Tokens int  // length of the last answer
	Pause  int  // pause after its first token, in milliseconds
	Tools  int  // number of tools in each request
	Slow   bool // the tool takes a while
	Whole  bool // answers are not streamed

	Together int  // number of concurrent runs; 0 means one after the other
	Sessions int  // create this many conversations instead, and keep them
	Own      bool // each conversation has its own agent and tools

	Responses bool // by the Responses API in place of chat completions

	Start  bool   // only start the program
	Traced bool   // alternate runs with all hooks and without
	Only   string // the only peers that can run it, separated by commas; empty means all can
}

// Scenarios are all scenarios, in the order of the table.
var Scenarios = []Scenario{
	{Name: "start", Start: true},
	{Name: "step", Steps: 20, Calls: 1, Tokens: 10, Tools: 1},
	{Name: "whole", Steps: 20, Calls: 1, Tokens: 10, Tools: 1, Whole: true},
	{Name: "responses", Steps: 20, Calls: 1, Tokens: 10, Tools: 1, Responses: true, Only: "kitbag,floor"},
	{Name: "traced", Steps: 20, Calls: 1, Tokens: 10, Tools: 1, Traced: true, Only: "kitbag"},
	{Name: "tools100", Steps: 20, Calls: 1, Tokens: 10, Tools: 100},
	{Name: "tools1000", Steps: 20, Calls: 1, Tokens: 10, Tools: 1000},
	{Name: "steps100", Steps: 100, Calls: 1, Tokens: 10, Tools: 1},
	{Name: "steps200", Steps: 200, Calls: 1, Tokens: 10, Tools: 1},
	{Name: "tokens", Tokens: 5000, Tools: 1},
	{Name: "first", Tokens: 100, Pause: 40, Tools: 1},
	{Name: "parallel", Steps: 20, Calls: 8, Tokens: 10, Tools: 1, Slow: true},
	{Name: "together", Steps: 5, Calls: 1, Tokens: 50, Tools: 1, Together: 200},
	{Name: "own", Sessions: 2_000, Tools: 20, Own: true}, // some frameworks need 5 ms and 300 KiB for each
	{Name: "shared", Sessions: 10_000, Tools: 20},
	{Name: "open", Tools: 1000, Only: "kitbag"},
	{Name: "judge", Tools: 1, Only: "kitbag"},
	{Name: "compact", Tokens: 10, Tools: 1, Only: "kitbag"},
}

// Find returns the scenario of that name, or nil.
func Find(name string) *Scenario {
	for i := range Scenarios {
		if Scenarios[i].Name == name {
			return &Scenarios[i]
		}
	}
	return nil
}

// token is the text of each token that the server sends.
const token = " tok"

func (s *Scenario) answer() string { return strings.Repeat(token, s.Tokens) }

// script returns the model's name, which tells the server what to send. See package mock.
func (s *Scenario) script() string {
	return fmt.Sprintf("bench.r%d.c%d.t%d.p%d", s.Steps, max(s.Calls, 1), s.Tokens, s.Pause)
}

func (s *Scenario) setup(server string) Setup {
	return Setup{
		URL: server + "/v1", Model: s.script(), Client: client(), Tools: s.Tools,
		Steps: s.Steps + 5, Parallel: s.Calls > 1, Whole: s.Whole, Responses: s.Responses,
	}
}

// client returns a client that keeps enough connections for the scenario with many concurrent runs.
func client() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConns: 1000, MaxIdleConnsPerHost: 1000}}
}
