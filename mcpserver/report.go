package mcpserver

import (
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// maxReports is how often a call may report progress or log. maxReport is the largest text of a report, in bytes.
const (
	maxReports = 1000
	maxReport  = 4 << 10
)

// reporter returns a function that reports a chunk to the client: as progress if the call has a progress token,
// and otherwise as a log message if the chunk is for the user.
func (r *request) reporter(name string) func(*tool.Chunk) error {
	if !r.out.Streams() {
		return func(*tool.Chunk) error { return nil }
	}
	sent := 0
	done := 0.0 // MCP requires that it increases
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
		line := cut(strings.TrimRight(text.Text, "\n"), maxReport)
		// Send only one of them, or the user would see the text twice.
		if token := r.progress(); token != nil {
			o := object{"progressToken": token, "message": line}
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
			return r.out.Send(rpc.Notification(string(mcp.MethodNotificationProgress), o))
		}
		if chunk.ForUser && line != "" && r.logs(mcp.LoggingLevelInfo) {
			sent++
			return r.out.Send(rpc.Notification(string(mcp.MethodNotificationMessage), object{
				"level": mcp.LoggingLevelInfo, "logger": name, "data": line,
			}))
		}
		return nil
	}
}
