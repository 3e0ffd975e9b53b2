package mcpclient

import (
	"cmp"
	"context"
	"encoding/json"
	"time"
)

// A LogMessage is something that a server tells the people who watch it.
type LogMessage struct {
	Level  string          // of severity: "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
	Logger string          // which part of the server; may be empty
	Data   json.RawMessage // any JSON
}

// SetLogLevel has the server tell Config.Log of messages of that level and above; empty
// of none, as far as a server can be told that. Until it is called the server decides
// by itself, from revision 2026-07-28 on against telling anything. It does not wait for
// the server.
func (c *Client) SetLogLevel(level string) {
	if old := c.hub.level.Swap(&level); old != nil && *old == level {
		c.hub.level.CompareAndSwap(&level, old) // which the server may have been told
		return
	}
	c.mu.Lock()
	cn := c.conn
	c.mu.Unlock()
	if cn != nil {
		cn.work(func() { cn.tune(cn.life) })
	}
}

// tune tells the server the level if it was told another one, or none. The stateless
// revisions tell it with each request; see withMeta.
func (c *conn) tune(ctx context.Context) {
	if c.hub.level.Load() == c.tuned.Load() || c.modern() || !c.hello.offers("logging") {
		return
	}
	c.tuning.Lock() // the last that was wanted is the last that is told
	defer c.tuning.Unlock()
	level := c.hub.level.Load()
	if level == c.tuned.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// A server that does not do it tells what it tells, and is not asked again.
	_, _ = c.request(ctx, "logging/setLevel", map[string]any{"level": cmp.Or(*level, "emergency")}, nil)
	c.tuned.Store(level)
}

// logged passes on a message of the server. It runs on the goroutine that reads.
func (c *conn) logged(fields map[string]any) {
	if c.cfg.Log == nil {
		return
	}
	m := LogMessage{}
	m.Level, _ = fields["level"].(string)
	m.Logger, _ = fields["logger"].(string)
	if data, err := json.Marshal(fields["data"]); err == nil {
		m.Data = data
	}
	c.cfg.Log(m)
}
