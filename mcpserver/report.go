package mcpserver

import (
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// maxReports is how often a call may report progress or log, maxReport the largest text of a
// report, in bytes.
const (
	maxReports = 1000
	maxReport  = 4 << 10
)

// reporter returns the function that sends progress to the client if it wants that: as progress,
// or else, if it is for the user, as a log message.
func (r *request) reporter(name string) func(*tool.Chunk) error {
	if !r.out.streams() {
		return func(*tool.Chunk) error { return nil }
	}
	sent := 0
	done := 0.0 // has to grow
	return func(chunk *tool.Chunk) error {
		text, _ := chunk.Block.(*message.Text)
		if text == nil {
			if text = new(message.Text); chunk.Progress == nil {
				return nil
			}
		}
		if sent == maxReports {
			return nil
		}
		said := cut(strings.TrimRight(text.Text, "\n"), maxReport)
		// Not both, or the user would read it twice.
		if token := r.progress(); token != nil {
			o := object{"progressToken": token, "message": said}
			if p := chunk.Progress; p != nil {
				if p.Done <= done {
					return nil
				}
				if done = p.Done; p.Total > 0 {
					o["total"] = p.Total
				}
				if o["message"] = p.Message; p.Message == "" {
					delete(o, "message")
				}
			} else {
				done++
			}
			o["progress"] = done
			sent++
			return r.out.send(notification(string(mcp.MethodNotificationProgress), o))
		}
		if chunk.ForUser && said != "" && r.logs(mcp.LoggingLevelInfo) {
			sent++
			return r.out.send(notification(string(mcp.MethodNotificationMessage), object{
				"level": mcp.LoggingLevelInfo, "logger": name, "data": said,
			}))
		}
		return nil
	}
}
