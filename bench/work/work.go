// Package work defines the tasks of the comparison, and measures them.
//
// A peer is a program that fills in a [Peer] and calls [Main]. Its process runs one scenario, checks that it is
// complete, and prints one [Result] as JSON. CPU is the time of that process only, without the server that
// plays the model.
//
// To make ratios comparable, every peer follows these rules: the framework is used as its own documentation
// shows; requests go through Setup.Client, with the given model name, because it is the server's script; the
// tools are those of [Setup.Names], with [In] and [Out], and call [Do]; each run is a new conversation;
// streamed text is passed on as it arrives.
package work

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
)

// The texts for the model, the same for every peer.
const (
	System      = "You are a careful assistant. Use the tools where they help, then answer."
	Prompt      = "Add the pairs of numbers that you are given, one after the other, and report."
	Description = "Adds two integers. The numbers may be of any size; the sum is returned. Use it for every addition."
)

// In and Out are the types of every tool.
type In struct {
	A int `json:"a" jsonschema:"description=the first number" jsonschema_description:"the first number"`
	B int `json:"b" jsonschema:"description=the second number" jsonschema_description:"the second number"`
}

// Out is a tool's result.
type Out struct {
	Sum int `json:"sum"`
}

// slowTime is how long the tool takes in the scenario with parallel calls.
const slowTime = 5 * time.Millisecond

var (
	slow  bool // set once, before the first call
	calls atomic.Int64
)

// Do is the implementation of the tools.
func Do(in In) Out {
	calls.Add(1)
	if slow {
		time.Sleep(slowTime)
	}
	return Out{in.A + in.B}
}

// A Setup contains what a peer needs to create an agent.
type Setup struct {
	URL      string // of the API, ending in /v1
	Model    string
	Client   *http.Client
	Tools    int  // number of tools; the model calls the first
	Steps    int  // an upper bound of the model calls of a run
	Parallel bool // calls of one answer must run in parallel
	Whole    bool // answers must not be streamed; then onText need not be called
	Traced   bool // with all hooks; the hooks do nothing

	Responses bool // use the Responses API; only for peers that the scenario names
}

// Names returns the names of the tools, beginning with the one that is called.
func (s *Setup) Names() []string {
	names := []string{"add"}
	for i := 1; i < s.Tools; i++ {
		names = append(names, fmt.Sprintf("add_%04d", i))
	}
	return names
}

// Key is the API key, which the server ignores.
const Key = "none"

// A Run performs one whole run in a new conversation, passes each piece of streamed text to onText, and returns
// the answer. It is safe for concurrent use.
type Run func(ctx context.Context, onText func(string)) (string, error)

// A Peer is a framework.
type Peer struct {
	Name   string
	Module string // its version is reported

	// Agent creates an agent and returns the function that runs it.
	Agent func(context.Context, Setup) (Run, error)

	// Session returns a function that creates a conversation of the given messages, alternately from a user and a
	// model, ready to be continued. If own, each conversation has its own agent and tools; otherwise all share
	// them. The returned value is kept in memory.
	Session func(ctx context.Context, s Setup, own bool) (func(texts []string) (any, error), error)

	// Alone contains the scenarios that only this peer has, by name. Each returns the function to repeat, which fails if
	// its result is wrong.
	Alone map[string]func(context.Context, Setup) (func() error, error)
}

// version returns the version of the framework in this program.
func (p Peer) version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == p.Module {
			return strings.TrimPrefix(m.Version, "v0.0.0")
		}
	}
	return ""
}

// Main runs the scenario in the command line and prints its Result. Without a scenario it does nothing, which
// measures the start of the program.
func Main(p Peer) {
	server := flag.String("server", "", "address of the mock server")
	name := flag.String("scenario", "", "scenario to run")
	least := flag.Duration("least", 300*time.Millisecond, "minimum time of a measurement")
	profile := flag.String("profile", "", "file for a CPU profile")
	flag.Parse()
	if *name == "" {
		return
	}
	res, err := measure(p, *server, *name, *least, *profile)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(res)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s: %v\n", p.Name, *name, err)
		os.Exit(1)
	}
}
