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

// An audience passes the log messages of a server on to the sessions that use the server. One process serves all
// sessions and does not say which call a message is about. If sessions of several credentials use the server, a message
// is only passed on if only calls of one credential can have caused it, to the sessions of that credential.
type audience struct {
	client  logSource
	levelMu sync.Mutex // held while the level is computed and set

	mu       sync.Mutex
	sessions map[*mcpserver.Logger]bool
	busy     map[string]int // number of calls in flight, by credential
	level    string         // the level that was set last; empty for no messages

	abandoned map[string]bool // credentials with an abandoned call that the server may still run
	restarts  int             // of the server, when abandoned was last cleared
}

// A logSource is an *mcpclient.Client, except in tests.
type logSource interface {
	Name() string
	Status() mcpclient.Status
	SetLogLevel(level string)
}

// beginCall records that the session of ctx uses the server, until the session ends, and that the session has a call in
// flight, until done is called.
func (a *audience) beginCall(ctx context.Context) (done func(abandoned bool)) {
	session := mcpserver.LoggerFrom(ctx)
	if session == nil {
		return func(bool) {}
	}
	credential, restarts := session.Credential(), a.client.Status().Restarts
	a.mu.Lock()
	if a.restarts != restarts {
		a.restarts = restarts
		clear(a.abandoned)
	}
	known := a.sessions[session]
	a.sessions[session] = true
	a.busy[credential]++
	a.mu.Unlock()
	if !known {
		session.OnLevel(a.updateLevel)
		go func() {
			<-mcpserver.SessionDone(ctx)
			a.mu.Lock()
			delete(a.sessions, session)
			a.mu.Unlock()
			a.updateLevel()
		}()
		a.updateLevel()
	}
	return func(abandoned bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if abandoned {
			a.abandoned[credential] = true
		}
		if a.busy[credential]--; a.busy[credential] == 0 {
			delete(a.busy, credential)
		}
	}
}

// updateLevel sets the server's level to the least severe level that a session wants.
func (a *audience) updateLevel() {
	a.levelMu.Lock()
	defer a.levelMu.Unlock()
	a.mu.Lock()
	wanted := map[string]bool{}
	for session := range a.sessions {
		wanted[session.Level()] = true
	}
	level := ""
	if i := slices.IndexFunc(logLevels, func(l string) bool { return wanted[l] }); i >= 0 {
		level = logLevels[i]
	}
	changed := level != a.level
	a.level = level
	a.mu.Unlock()
	if changed {
		a.client.SetLogLevel(level)
	}
}

// onLogMessage passes a message of the server on to the sessions of a credential if only its calls can have caused the
// message.
func (a *audience) onLogMessage(m mcpclient.LogMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	using, calling := map[string]bool{}, maps.Clone(a.abandoned) // credentials
	for session := range a.sessions {
		using[session.Credential()] = true
	}
	for credential := range a.busy {
		calling[credential] = true
	}
	for session := range a.sessions {
		// All sessions have this credential, and no session that has ended left a call; or all calls in flight have it.
		if len(using) == 1 && len(a.abandoned) == 0 || len(calling) == 1 && calling[session.Credential()] {
			sendLog(session, a.client.Name(), m)
		}
	}
}

// sendLog sends a message to a session, with clean texts.
func sendLog(session *mcpserver.Logger, server string, m mcpclient.LogMessage) {
	name := server
	if m.Logger != "" {
		name += "/" + m.Logger
	}
	session.Log(m.Level, clean(name, maxLine), cleanLog(m.Data))
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
