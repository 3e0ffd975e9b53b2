package mcpclient

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"time"
)

// A LogMessage is something that a server tells the people who watch it.
type LogMessage struct {
	Level  string          // of severity: "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
	Logger string          // which part of the server; may be empty
	Data   json.RawMessage // any JSON, as the server wrote it
}

// SetLogLevel has the server send Options.Log the messages of that level and above; empty
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
	if c.hub.level.Load() == c.tuned.Load() || c.modern() || !c.hello.declares("logging") {
		return
	}
	c.tuning.Lock() // the last that was wanted is the last that is told
	defer c.tuning.Unlock()
	level := c.hub.level.Load()
	if level == c.tuned.Load() {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := c.request(bounded, "logging/setLevel", map[string]any{"level": cmp.Or(*level, "emergency")}, nil)
	if err != nil && ctx.Err() != nil {
		return // for the next who calls: this one has left before the server took it
	}
	c.tuned.Store(level) // a server that does not do it tells what it tells, and is not asked again
}

// logged passes on a message of the server. It runs on the goroutine that reads.
func (c *conn) logged(fields map[string]any) {
	if c.cfg.Log == nil {
		return
	}
	m := LogMessage{}
	m.Level, _ = fields["level"].(string)
	m.Logger, _ = fields["logger"].(string)
	if exact, ok := fields[exactKey].(string); ok && json.Valid([]byte(exact)) {
		m.Data = json.RawMessage(exact)
	} else if data, err := json.Marshal(fields["data"]); err == nil {
		m.Data = data
	}
	c.cfg.Log(m)
}

const exactKey = "kitbag/data"

// exactLog returns a message of the server with the data that it logs, if it does, as a
// string under exactKey: mcp-go reads numbers as floats, which have no room for the ids and
// the times that logs are full of.
func exactLog(line []byte) []byte {
	if !bytes.Contains(line, []byte(`/message"`)) {
		return line
	}
	var msg struct {
		ID     json.RawMessage            `json:"id"`
		Method string                     `json:"method"`
		Params map[string]json.RawMessage `json:"params"`
	}
	if json.Unmarshal(line, &msg) != nil || msg.Method != "notifications/message" || msg.ID != nil || msg.Params["data"] == nil {
		return line
	}
	exact, err := json.Marshal(string(msg.Params["data"]))
	if err != nil {
		return line
	}
	delete(msg.Params, "data")
	msg.Params[exactKey] = exact
	out, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": msg.Method, "params": msg.Params})
	if err != nil {
		return line
	}
	return append(out, '\n')
}
