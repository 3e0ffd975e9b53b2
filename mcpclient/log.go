package mcpclient

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"
)

// A LogMessage is a log message of a server.
type LogMessage struct {
	Level  string          // "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
	Logger string          // the part of the server; may be empty
	Data   json.RawMessage // any JSON, as the server wrote it
}

// SetLogLevel makes the server send Options.Log the messages of that level and above; empty means none, as far
// as the protocol allows. Until it is called the server decides; from revision 2026-07-28 on it sends none.
// SetLogLevel does not wait for the server.
func (c *Client) SetLogLevel(level string) {
	if old := c.hub.level.Swap(&level); old != nil && *old == level {
		c.hub.level.CompareAndSwap(&level, old) // keep the pointer that may have been sent
		return
	}
	if cn := c.sup.current(); cn != nil {
		cn.goWork(func() { cn.sendLogLevel(cn.life) })
	}
}

// A sentLevel is the log level that was sent last.
type sentLevel struct {
	mu   sync.Mutex // held while one is sent
	last atomic.Pointer[string]
}

// sendLogLevel sends the level unless it was the last one sent. In the revisions without sessions the level is
// part of each request; see withMeta.
func (c *conn) sendLogLevel(ctx context.Context) {
	if c.hub.level.Load() == c.level.last.Load() || c.sessionless() || !c.server.declares("logging") {
		return
	}
	c.level.mu.Lock() // so that the level set last is sent last
	defer c.level.mu.Unlock()
	level := c.hub.level.Load()
	if level == c.level.last.Load() {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := c.request(bounded, "logging/setLevel", map[string]any{"level": cmp.Or(*level, "emergency")}, nil)
	if err != nil && ctx.Err() != nil {
		return // the next call sends it
	}
	c.level.last.Store(level) // even if the server refused
}

// onLogMessage passes on a log message. It runs on the reading goroutine.
func (c *conn) onLogMessage(fields map[string]any) {
	if c.cfg.Log == nil {
		return
	}
	m := LogMessage{}
	m.Level, _ = fields["level"].(string)
	m.Logger, _ = fields["logger"].(string)
	if exact, ok := fields[rawDataKey].(string); ok && json.Valid([]byte(exact)) {
		m.Data = json.RawMessage(exact)
	} else if data, err := json.Marshal(fields["data"]); err == nil {
		m.Data = data
	}
	c.cfg.Log(m)
}
