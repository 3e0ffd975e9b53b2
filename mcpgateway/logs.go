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

// logLevels are MCP's levels, starting with the least severe.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// maxLog is the largest log message, in bytes.
const maxLog = 16 << 10

// An audience is the sessions that use a server, and get the log messages of the level that they want. One
// process serves all sessions and does not say which call a message is about. With several credentials a
// message is therefore only passed on if it can only be about one of them.
type audience struct {
	client  logSource
	levelMu sync.Mutex // held while the level is computed and set

	mu       sync.Mutex
	sessions map[*mcpserver.Logger]bool
	busy     map[string]int // calls in flight, by credential
	level    string         // the level that was set last

	abandoned map[string]bool // credentials with an abandoned call that the server may still run
	restarts  int             // of the server, when abandoned was last reset
}

// A logSource is the client of a server that logs.
type logSource interface {
	Name() string
	Status() mcpclient.Status
	SetLogLevel(level string)
}

// begin records that the session of ctx uses the server, until the session ends, and that it has a call in
// flight, until done is called. gaveUp says that the call was abandoned.
func (a *audience) begin(ctx context.Context) (done func(gaveUp bool)) {
	l := mcpserver.LoggerFrom(ctx)
	if l == nil {
		return func(bool) {}
	}
	cred, restarts := l.Credential(), a.client.Status().Restarts
	a.mu.Lock()
	if a.restarts != restarts {
		a.restarts = restarts
		clear(a.abandoned)
	}
	known := a.sessions[l]
	a.sessions[l] = true
	a.busy[cred]++
	a.mu.Unlock()
	if !known {
		l.OnLevel(a.updateLevel)
		go func() {
			<-mcpserver.SessionDone(ctx)
			a.mu.Lock()
			delete(a.sessions, l)
			a.mu.Unlock()
			a.updateLevel()
		}()
		a.updateLevel()
	}
	return func(gaveUp bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if gaveUp {
			a.abandoned[cred] = true
		}
		if a.busy[cred]--; a.busy[cred] == 0 {
			delete(a.busy, cred)
		}
	}
}

// updateLevel sets the server's level to the lowest level that a session wants.
func (a *audience) updateLevel() {
	a.levelMu.Lock()
	defer a.levelMu.Unlock()
	a.mu.Lock()
	lowest := len(logLevels)
	for l := range a.sessions {
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

// onLogMessage passes on a message of the server to the sessions that it may be about.
func (a *audience) onLogMessage(m mcpclient.LogMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	creds, calling := map[string]bool{}, maps.Clone(a.abandoned)
	for l := range a.sessions {
		creds[l.Credential()] = true
	}
	for cred := range a.busy {
		calling[cred] = true
	}
	for l := range a.sessions {
		// With one credential, or only one that may have a call running, the message is not about another.
		if len(creds) == 1 && len(a.abandoned) == 0 || len(calling) == 1 && calling[l.Credential()] {
			sendLog(l, a.client.Name(), m)
		}
	}
}

// sendLog sends a message to a session, with clean texts.
func sendLog(l *mcpserver.Logger, server string, m mcpclient.LogMessage) {
	name := server
	if m.Logger != "" {
		name += "/" + m.Logger
	}
	l.Log(m.Level, clean(name, maxLine), cleanLog(m.Data))
}

// cleanLog returns the data of a log message with clean text, cut to maxLog bytes.
func cleanLog(data json.RawMessage) json.RawMessage {
	var text string
	switch {
	case json.Unmarshal(data, &text) == nil:
	case len(data) > maxLog:
		text = string(data)
	default:
		return data
	}
	return jsonString(clean(text, maxLog))
}
