package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/visible"
)

// A progress is a step of a request, from notifications/progress.
type progress struct {
	done, total float64
	message     string
}

// onNotification handles a notification. It runs on the reading goroutine and must not block.
func (c *conn) onNotification(n mcp.JSONRPCNotification) {
	fields := n.Params.AdditionalFields
	agreed, _ := fields["notifications"].(map[string]any)
	switch {
	case n.Method == "notifications/progress":
		c.onProgress(fields)
	case n.Method == "notifications/message":
		c.onLogMessage(fields)
	case n.Method == "notifications/cancelled":
		c.onCancelled(fields["requestId"])
	case n.Method == mcp.MethodNotificationSubscriptionsAcknowledged && agreed["resourceSubscriptions"] != nil:
		signal(c.subscribed)
	default:
		c.onNotify(n.Method, fields)
	}
}

func (c *conn) onProgress(fields map[string]any) {
	token, _ := fields["progressToken"].(string)
	if report := c.progressFuncs.get(token); report != nil {
		p := progress{}
		p.done, _ = fields["progress"].(float64)
		p.total, _ = fields["total"].(float64)
		p.message, _ = fields["message"].(string)
		p.message = visible.Text(p.message)
		report(p)
	}
}

// onRequest answers a request of the server. It returns nil, so that mcp-go sends no answer: mcp-go would wait for a user's
// answer for only 30 s, and would not limit unread answers.
func (c *conn) onRequest(ctx context.Context, req transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	if c.out != nil { // bypasses mcp-go, which would queue the answer where outbox does not count it
		line, _ := json.Marshal(c.reply(c.life, req))
		_, _ = c.out.Write(append(line, '\n')) // an error ends the connection
		return nil, nil
	}
	if c.answersInFlight.Add(1) > maxWaiting {
		c.answersInFlight.Add(-1)
		c.fail(fmt.Errorf("the server does not read the answers to its requests: %d are waiting", maxWaiting))
		return nil, nil
	}
	c.goWork(func() {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // ctx may end when onRequest returns
		defer cancel()
		defer context.AfterFunc(c.life, cancel)()
		c.postAnswer(c.reply(ctx, req))
		c.answersInFlight.Add(-1)
	})
	return nil, nil
}

// postAnswer sends the answer to a request of the server as an HTTP request. It repeats a failed request for a minute,
// because the server cannot continue without the answer. A server ignores an answer that it already has.
func (c *conn) postAnswer(answer *transport.JSONRPCResponse) {
	ctx, cancel := context.WithTimeout(c.life, time.Minute)
	defer cancel()
	body, _ := json.Marshal(answer) // see reply
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.cfg.http.URL, bytes.NewReader(body))
	if err != nil { // cannot happen: New has parsed the URL
		return
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if version := c.headerVersion.Load(); version != nil && *version != "" {
		req.Header.Set(transport.HeaderKeyProtocolVersion, *version)
	}
	if id := c.tr.GetSessionId(); id != "" {
		req.Header.Set(transport.HeaderKeySessionID, id)
	}
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		req.Body = io.NopCloser(bytes.NewReader(body))
		res, err := c.http.Do(req)
		if err == nil {
			res.Body.Close()
			if res.StatusCode < http.StatusInternalServerError {
				return
			}
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// onCancelled ends a request that the server cancels.
func (c *conn) onCancelled(id any) {
	key, _ := json.Marshal(id) // id was decoded from JSON
	if cancel := c.serverRequests.get(string(key)); cancel != nil {
		cancel()
	}
}

// reply makes the answer to a request of the server. Encoding the answer cannot fail.
func (c *conn) reply(ctx context.Context, req transport.JSONRPCRequest) *transport.JSONRPCResponse {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	key, _ := json.Marshal(req.ID) // req was decoded from JSON
	defer c.serverRequests.add(string(key), cancel)()
	params, _ := json.Marshal(req.Params)
	answer, err := c.answerRequest(ctx, req.Method, params)
	var result json.RawMessage
	if err == nil {
		result, err = json.Marshal(answer)
	}
	if e, ok := errors.AsType[*CallError](err); ok {
		return transport.NewJSONRPCErrorResponse(req.ID, e.Code, e.Message, nil)
	}
	if err != nil {
		return transport.NewJSONRPCErrorResponse(req.ID, codeInternal, err.Error(), nil)
	}
	return transport.NewJSONRPCResultResponse(req.ID, result)
}
