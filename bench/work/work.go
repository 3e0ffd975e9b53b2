// Package work is what every framework of the comparison is made to do, and how
// that is measured.
//
// A peer is a program that fills in a [Peer] and calls [Main]. The process it
// becomes does one scenario, checks that nothing was left out, and prints one
// [Result] as JSON. CPU is that process's own: the server that plays the model is
// another one.
//
// So that ratios mean something, every peer keeps these rules: the framework is
// used as its own documentation shows it; requests go through Setup.Client, with
// the model name as given, since that is the server's script; the tools are those
// of [Setup.Names], with [In] and [Out], and call [Do]; each run is a new
// conversation; streamed text is handed on as it comes.
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

// What the model gets. Every peer sends the same.
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

// slowTime is how long the tool works in the scenarios with parallel calls, and
// firstTime how long in the first call of an answer whose calls come one by one.
const (
	slowTime  = 5 * time.Millisecond
	firstTime = 30 * time.Millisecond
)

var (
	slow, uneven bool // set once, before the first call
	calls        atomic.Int64
)

// Do is what the tools do.
func Do(in In) Out {
	calls.Add(1)
	switch {
	case uneven && in.B == 0: // the number of the call
		time.Sleep(firstTime)
	case slow:
		time.Sleep(slowTime)
	}
	return Out{in.A + in.B}
}

// A Setup is what an agent is made from.
type Setup struct {
	URL      string // of the API, ending in /v1
	Model    string
	Client   *http.Client
	Tools    int  // how many; the model calls the first
	Steps    int  // more model calls than a run needs
	Parallel bool // calls of one answer are to run together
	Eager    bool // they may start while the answer still comes, if the framework can do that
	Whole    bool // answers are not to be streamed; then onText need not be called
	Traced   bool // with a hook at every place where one may be, none of which does anything
}

// Names returns the names of the tools, the one that is called first.
func (s *Setup) Names() []string {
	names := []string{"add"}
	for i := 1; i < s.Tools; i++ {
		names = append(names, fmt.Sprintf("add_%04d", i))
	}
	return names
}

// Key is the API key, which the server does not look at.
const Key = "none"

// A Run makes one whole run in a new conversation, gives each piece of streamed
// text to onText, and returns the answer. It is safe for concurrent use.
type Run func(ctx context.Context, onText func(string)) (string, error)

// A Peer is a framework.
type Peer struct {
	Name   string
	Module string // whose version is reported

	// Agent makes an agent and returns how it is run.
	Agent func(context.Context, Setup) (Run, error)

	// Session returns a function that makes a conversation of the given
	// messages, from a user and a model in turn, ready to be continued. If own,
	// each has an agent and tools of its own; otherwise all share them. What it
	// returns is kept alive.
	Session func(ctx context.Context, s Setup, own bool) (func(texts []string) (any, error), error)

	// Alone are scenarios that only this peer does, by name. Each returns what is
	// done again and again, and checks itself that it was.
	Alone map[string]func(context.Context, Setup) (func() error, error)
}

// version is that of the framework in this program.
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

// Main does the scenario that the command line names and prints its Result.
// Without one it does nothing: that is what starting costs.
func Main(p Peer) {
	server := flag.String("server", "", "where the mock server is")
	name := flag.String("scenario", "", "what to do")
	least := flag.Duration("least", 300*time.Millisecond, "how long to measure, at least")
	profile := flag.String("profile", "", "a file for a CPU profile")
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
