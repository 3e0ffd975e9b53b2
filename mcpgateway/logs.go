package mcpgateway

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
)

// logLevels are those of MCP, the least severe first.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// maxLog is how long what a server logs at a time may be, in bytes.
const maxLog = 16 << 10

// An audience are the sessions that use a server, and hear what it logs if they want to.
// One process serves them all, and does not say whose call a message is about: of several
// credentials it must be certain which one, or nobody is told.
type audience struct {
	client leveled
	tuning sync.Mutex // is held from the look at what is wanted until the server was told

	mu    sync.Mutex
	users map[*mcpserver.Logger]bool
	busy  map[string]int // calls in flight, by credential
	level string         // that the server was told last

	strays   map[string]bool // credentials with a call that was given up: the server may still be at it
	restarts int             // of the server, when strays were noted
}

// A leveled is the client of a server that logs.
type leveled interface {
	Name() string
	Status() mcpclient.Status
	SetLogLevel(level string)
}

// use notes that the context's session uses the server, until it ends, and has a call in
// flight, until done is called, which is told whether it was given up.
func (a *audience) use(ctx context.Context) (done func(gaveUp bool)) {
	l := mcpserver.LoggerFrom(ctx)
	if l == nil {
		return func(bool) {}
	}
	who, restarts := l.Credential(), a.client.Status().Restarts
	a.mu.Lock()
	if a.restarts != restarts {
		a.restarts = restarts
		clear(a.strays)
	}
	known := a.users[l]
	a.users[l] = true
	a.busy[who]++
	a.mu.Unlock()
	if !known {
		l.OnLevel(a.tune)
		context.AfterFunc(mcpserver.Session(ctx), func() {
			a.mu.Lock()
			delete(a.users, l)
			a.mu.Unlock()
			a.tune()
		})
		a.tune()
	}
	return func(gaveUp bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if gaveUp {
			a.strays[who] = true
		}
		if a.busy[who]--; a.busy[who] == 0 {
			delete(a.busy, who)
		}
	}
}

// tune has the server log what any of its users wants.
func (a *audience) tune() {
	a.tuning.Lock()
	defer a.tuning.Unlock()
	a.mu.Lock()
	lowest := len(logLevels)
	for l := range a.users {
		if at := slices.Index(logLevels, l.Level()); at >= 0 {
			lowest = min(lowest, at)
		}
	}
	level := ""
	if lowest < len(logLevels) {
		level = logLevels[lowest]
	}
	changed := level != a.level
	a.level = level
	a.mu.Unlock()
	if changed {
		a.client.SetLogLevel(level)
	}
}

// hear takes a message of the server.
func (a *audience) hear(m mcpclient.LogMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	everybody, about := map[string]bool{}, maps.Clone(a.strays)
	for l := range a.users {
		everybody[l.Credential()] = true
	}
	for who := range a.busy {
		about[who] = true
	}
	for l := range a.users {
		if len(everybody) == 1 && len(a.strays) == 0 || len(about) == 1 && about[l.Credential()] {
			tell(l, a.client.Name(), m)
		}
	}
}

// tell passes on a message in words that show all that they say.
func tell(l *mcpserver.Logger, server string, m mcpclient.LogMessage) {
	name := server
	if m.Logger != "" {
		name += "/" + m.Logger
	}
	l.Log(m.Level, clean(name, maxLine), cleanLog(m.Data))
}

// cleanLog returns what a server logs, a text clean, and what is too long cut.
func cleanLog(data json.RawMessage) json.RawMessage {
	var text string
	switch {
	case json.Unmarshal(data, &text) == nil:
	case len(data) > maxLog:
		text = string(data)
	default:
		return data
	}
	return quoted(clean(text, maxLog))
}
