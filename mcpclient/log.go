package mcpclient

import "encoding/json"

// A LogMessage is a log message of a server.
type LogMessage struct {
	Level  string          // "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
	Logger string          // the part of the server that logs; may be empty
	Data   json.RawMessage // any JSON, as the server wrote it
}

// SetLogLevel makes the server send messages of the level and above to Options.Log. "" means none; a server of a
// revision before 2026-07-28 then still sends emergencies. Until SetLogLevel is called, a server of revision 2026-07-28
// or later sends no messages, and an older server chooses the level. SetLogLevel does not wait for the server.
func (c *Client) SetLogLevel(level string) {
	if old := c.hub.level.Load(); old != nil && *old == level {
		return
	}
	c.hub.level.Store(&level)
	if cn := c.sup.current(); cn != nil {
		cn.goWork(func() { cn.protocol.setLevel(cn.life) })
	}
}

// onLogMessage passes a log message to Options.Log. It runs on the reading goroutine.
func (c *conn) onLogMessage(fields map[string]any) {
	if c.cfg.Log == nil {
		return
	}
	m := LogMessage{}
	m.Level, _ = fields["level"].(string)
	m.Logger, _ = fields["logger"].(string)
	if exact, ok := fields[rawDataKey].(string); ok && json.Valid([]byte(exact)) { // from withRawLogData
		m.Data = json.RawMessage(exact)
	} else {
		m.Data, _ = json.Marshal(fields["data"]) // cannot fail for decoded JSON
	}
	c.cfg.Log(m)
}
