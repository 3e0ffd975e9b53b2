package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
)

// maxLogs is how many log messages a client can get in a second. More messages are dropped and counted.
const maxLogs = 100

// A Logger sends log messages to a client: the client of a session or, from protocol 2026-07-28 on, of a
// request. It is safe for concurrent use and does not wait for the client; messages that are not sent before
// the client disconnects are lost.
type Logger struct {
	credential string
	level      func() mcp.LoggingLevel
	wake       func() // requests a flush

	mu      sync.Mutex
	hooks   []func()  // of OnLevel
	pending [][]byte  // messages that wait for a flush
	second  time.Time // the start of the second in which sent counts
	sent    int       // messages in this second
	dropped int       // messages since the last message that was queued
}

type loggerKey struct{}

// LoggerFrom returns the logger of the client that made the call of the context, for the messages of an upstream
// server. It is nil if the call was not received over MCP. All calls of a session have the same logger.
func LoggerFrom(ctx context.Context) *Logger {
	l, _ := ctx.Value(loggerKey{}).(*Logger)
	return l
}

// Credential returns the name of the client's credential; empty if it has none.
func (l *Logger) Credential() string { return l.credential }

// Level returns the least severe level that the client wants; empty if it wants no messages.
func (l *Logger) Level() string { return string(l.level()) }

// OnLevel registers fn to be called when the client changes the level.
func (l *Logger) OnLevel(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks = append(l.hooks, fn)
}

func (l *Logger) levelChanged() {
	l.mu.Lock()
	hooks := slices.Clone(l.hooks)
	l.mu.Unlock()
	for _, fn := range hooks {
		fn()
	}
}

// Log sends a message if the client wants messages of its level. A message with an unknown level is dropped.
func (l *Logger) Log(level, logger string, data json.RawMessage) {
	if !wanted(mcp.LoggingLevel(level), l.level()) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.second) >= time.Second {
		l.second, l.sent = time.Now(), 0
	}
	if l.sent >= maxLogs || len(l.pending) >= 2*maxLogs { // pending grows while the client does not read
		l.dropped++
		return
	}
	if l.dropped > 0 {
		l.queue(level, logger, fmt.Sprintf("%d log messages before this one were dropped", l.dropped))
		l.dropped = 0
	}
	l.queue(level, logger, data)
	l.wake()
}

// queue queues a message. The caller holds l.mu.
func (l *Logger) queue(level, logger string, data any) {
	params := object{"level": level, "data": data}
	if logger != "" {
		params["logger"] = logger
	}
	l.sent++
	l.pending = append(l.pending, rpc.Notification(string(mcp.MethodNotificationMessage), params))
}

// flush sends the queued messages.
func (l *Logger) flush(out wire.Responder) error {
	if !out.Streams() {
		return nil
	}
	l.mu.Lock()
	pending := l.pending
	l.pending = nil
	l.mu.Unlock()
	for _, m := range pending {
		if err := out.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// levels are the levels of log messages, starting with the least severe (RFC 5424).
var levels = []mcp.LoggingLevel{mcp.LoggingLevelDebug, mcp.LoggingLevelInfo, mcp.LoggingLevelNotice, mcp.LoggingLevelWarning,
	mcp.LoggingLevelError, mcp.LoggingLevelCritical, mcp.LoggingLevelAlert, mcp.LoggingLevelEmergency}

// wanted reports whether a message of the level is sent to a client that has set the level least. A client whose least is
// empty wants no messages.
func wanted(level, least mcp.LoggingLevel) bool {
	i := slices.Index(levels, least)
	return i >= 0 && slices.Index(levels, level) >= i
}

// wantsLog reports whether the client wants messages of the level. A client sets its level for the session or, from
// 2026-07-28 on, in each request.
func (r *request) wantsLog(level mcp.LoggingLevel) bool { return wanted(level, r.log.level()) }

// withLogger runs do with the logger of the request, and sends the log messages of do before the result.
func (r *request) withLogger(ctx context.Context, do handler) (any, *rpc.Error) {
	result, err := do(r, context.WithValue(ctx, loggerKey{}, r.log))
	_ = r.log.flush(r.out) // if it fails, writing the result fails too
	return result, err
}
