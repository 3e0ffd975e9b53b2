package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// maxLogs is how many log messages a client gets in a second. Further ones are dropped and
// counted.
const maxLogs = 100

// A Logger sends log messages to a client: those of a session, or from protocol 2026-07-28 on those
// of a request. It is safe for concurrent use and does not wait for the client; what is not sent
// when the client is gone is lost.
type Logger struct {
	credential string
	level      func() mcp.LoggingLevel
	wake       func() // requests a flush

	mu      sync.Mutex
	hooks   []func()
	pending [][]byte
	since   time.Time // when the second began
	sent    int       // in it
	lost    int
}

type loggerKey struct{}

// LoggerFrom returns the logger of the client that made the call of the context, for an
// upstream server's messages; nil if the call did not come over MCP. It is the same for all calls of a
// session.
func LoggerFrom(ctx context.Context) *Logger {
	l, _ := ctx.Value(loggerKey{}).(*Logger)
	return l
}

// Credential returns the name of the client's credential, empty without one.
func (l *Logger) Credential() string { return l.credential }

// Level returns the least severe level that the client wants; empty if it wants no messages.
func (l *Logger) Level() string { return string(l.level()) }

// OnLevel has fn called when the client sets another level.
func (l *Logger) OnLevel(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks = append(l.hooks, fn)
}

func (l *Logger) leveled() {
	l.mu.Lock()
	hooks := slices.Clone(l.hooks)
	l.mu.Unlock()
	for _, fn := range hooks {
		fn()
	}
}

// Log sends a message if the client wants its level. A message with an unknown level is dropped.
func (l *Logger) Log(level, logger string, data json.RawMessage) {
	if !reaches(mcp.LoggingLevel(level), l.level()) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.since) >= time.Second {
		l.since, l.sent = time.Now(), 0
	}
	if l.sent >= maxLogs || len(l.pending) >= 2*maxLogs { // the latter if the client does not read
		l.lost++
		return
	}
	if l.lost > 0 {
		l.put(level, logger, fmt.Sprintf("%d log messages before this one were left out", l.lost))
		l.lost = 0
	}
	l.put(level, logger, data)
	l.wake()
}

// put queues a message. l.mu is held.
func (l *Logger) put(level, logger string, data any) {
	params := object{"level": level, "data": data}
	if logger != "" {
		params["logger"] = logger
	}
	l.sent++
	l.pending = append(l.pending, notification(string(mcp.MethodNotificationMessage), params))
}

// flush sends the queued messages.
func (l *Logger) flush(out responder) (err error) {
	if !out.streams() {
		return nil
	}
	l.mu.Lock()
	pending := l.pending
	l.pending = nil
	l.mu.Unlock()
	for _, m := range pending {
		if err == nil {
			err = out.send(m)
		}
	}
	return err
}

// levels are the levels of log messages, the least severe first (RFC 5424).
var levels = []mcp.LoggingLevel{mcp.LoggingLevelDebug, mcp.LoggingLevelInfo, mcp.LoggingLevelNotice, mcp.LoggingLevelWarning,
	mcp.LoggingLevelError, mcp.LoggingLevelCritical, mcp.LoggingLevelAlert, mcp.LoggingLevelEmergency}

// reaches reports whether a message of a level is sent to a client that wants those from another
// level on, or none.
func reaches(level, from mcp.LoggingLevel) bool {
	at := slices.Index(levels, from)
	return at >= 0 && slices.Index(levels, level) >= at
}

// logLevel is the level that the session's client has set.
func (c *session) logLevel() mcp.LoggingLevel {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.level
}

// wakeUp wakes pump.
func (c *session) wakeUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakeLocked()
}

// logs reports whether the client wants messages of the level. It sets that for a session or, from
// 2026-07-28 on, in each request.
func (r *request) logs(level mcp.LoggingLevel) bool {
	from := r.meta.Level
	if !r.sessionless {
		from = r.logLevel()
	}
	return reaches(level, from)
}

// setLevel sets the level of log messages of this session. Without it there are none.
func (r *request) setLevel() (any, *rpcError) {
	var p struct {
		Level mcp.LoggingLevel `json:"level"`
	}
	if err := decode(r.msg, &p); err != nil {
		return nil, err
	}
	if !slices.Contains(levels, p.Level) {
		names, _ := json.Marshal(levels)
		return nil, rpcErrorf(mcp.INVALID_PARAMS, "logging/setLevel: level %q is not one of %s", p.Level, names)
	}
	r.mu.Lock()
	r.level = p.Level
	r.mu.Unlock()
	r.log.leveled()
	return object{}, nil
}

// logging runs a request with a logger, and sends the log messages before the result.
func (r *request) logging(ctx context.Context, run func(*request, context.Context) (any, *rpcError)) (any, *rpcError) {
	l := r.session.log
	if r.sessionless {
		l = &Logger{credential: l.credential, level: func() mcp.LoggingLevel { return r.meta.Level }, wake: func() {}}
	}
	result, err := run(r, context.WithValue(ctx, loggerKey{}, l))
	_ = l.flush(r.out) // an error shows when the result is written
	return result, err
}
