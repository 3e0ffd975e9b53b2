package mcpclient

import "encoding/json"

// A LogMessage is a log message of a server.
type LogMessage struct {
	Level  string          // "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
	Logger string          // the part of the server that logs; may be empty
	Data   json.RawMessage // any JSON, as the server wrote it
}

// SetLogLevel makes the server send messages of the level and above to Options.Log. "" means none; before revision
// 2026-07-28 the server then still sends emergencies. Until SetLogLevel is called, a server of revision 2026-07-28 or
// later sends none, and an older one decides itself. SetLogLevel does not wait for the server.
func (c *Client) SetLogLevel(level string) {
	if old := c.hub.level.Swap(&level); old != nil && *old == level {
		c.hub.level.CompareAndSwap(&level, old) // keep the pointer that may have been sent
		return
	}
	if cn := c.sup.current(); cn != nil {
		cn.goWork(func() { cn.protocol.setLevel(cn.life) })
	}
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
