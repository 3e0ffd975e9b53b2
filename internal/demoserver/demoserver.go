// Package demoserver is a small MCP server for demonstrations and tests. It uses the real protocol, and its
// answers depend only on the arguments.
//
// Its tools are weather_lookup, echo, add and countdown, which are marked read-only, and note_add, which is not:
// it appends to a list that lives as long as the server. countdown reports progress.
package demoserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

const instructions = `A demonstration server. weather_lookup invents the weather of a city, always the same for the same city;
countdown takes its time and reports progress; note_add remembers a note until the server ends.`

// Serve serves MCP on in and out, one message per line, until in ends or ctx is cancelled. A process may only
// call it once, because mcp-go has one stdio session per process.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	s := server.NewMCPServer("kitbag-demo", "1.0.0",
		server.WithInstructions(instructions), server.WithToolCapabilities(true), server.WithRecovery())
	s.SetTools(tools()...)
	stdio := server.NewStdioServer(s)
	server.WithWorkerPoolSize(16)(stdio)
	server.WithErrorLogger(log.New(io.Discard, "", 0))(stdio)
	if err := stdio.Listen(ctx, in, out); err != nil && ctx.Err() == nil && err != io.EOF {
		return fmt.Errorf("demo MCP server: %w", err)
	}
	return nil
}

func tools() []server.ServerTool {
	notes := &notes{}
	return []server.ServerTool{
		define("weather_lookup", "Weather lookup", "Returns the weather of a city: temperature in °C and the sky.", true,
			`{"type":"object","properties":{"city":{"type":"string","minLength":1,"description":"the city, such as Vienna"}},"required":["city"],"additionalProperties":false}`,
			weather),
		define("echo", "Echo", "Returns the message as it is.", true,
			`{"type":"object","properties":{"message":{"type":"string"}},"required":["message"],"additionalProperties":false}`,
			echo),
		define("add", "Add", "Adds two numbers.", true,
			`{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},"required":["a","b"],"additionalProperties":false}`,
			add),
		define("countdown", "Countdown", "Counts from n down to 1, reporting progress at each step.", true,
			`{"type":"object","properties":{"n":{"type":"integer","minimum":1,"maximum":1000},"step_ms":{"type":"integer","minimum":0,"maximum":10000,"default":100,"description":"milliseconds per step"}},"required":["n"],"additionalProperties":false}`,
			countdown),
		define("note_add", "Add a note", "Remembers a note and returns how many there are.", false,
			`{"type":"object","properties":{"text":{"type":"string","minLength":1}},"required":["text"],"additionalProperties":false}`,
			notes.add),
	}
}

// define returns a tool. It does not use mcp.NewTool, which would add hints.
func define[In any](name, title, description string, readOnly bool, schema string, fn func(context.Context, In, report) (any, error)) server.ServerTool {
	t := mcp.Tool{Name: name, Title: title, Description: description, RawInputSchema: json.RawMessage(schema)}
	t.Annotations.ReadOnlyHint = &readOnly
	return server.ServerTool{Tool: t, Handler: func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in In
		if err := req.BindArguments(&in); err != nil {
			return mcp.NewToolResultError("arguments: " + err.Error()), nil
		}
		sent := false
		send := progress(ctx, req)
		out, err := fn(ctx, in, func(done, total int, message string) {
			sent = true
			send(done, total, message)
		})
		if sent {
			drain(ctx)
		}
		if err != nil {
			return mcp.NewToolResultError(err.Error()), nil
		}
		if s, ok := out.(string); ok {
			return mcp.NewToolResultText(s), nil
		}
		text, err := json.Marshal(out)
		if err != nil {
			return nil, err
		}
		return mcp.NewToolResultStructured(out, string(text)), nil
	}}
}

// A report sends the progress of a call if the client requested it.
type report func(done, total int, message string)

func progress(ctx context.Context, req mcp.CallToolRequest) report {
	s := server.ServerFromContext(ctx)
	if s == nil || req.Params.Meta == nil || req.Params.Meta.ProgressToken == nil {
		return func(int, int, string) {}
	}
	return func(done, total int, message string) {
		_ = s.SendNotificationToClient(ctx, "notifications/progress", map[string]any{
			"progressToken": req.Params.Meta.ProgressToken,
			"progress":      done, "total": total, "message": message,
		})
	}
}

// drain waits until the session's notifications are written, because mcp-go sends them from another goroutine,
// and progress after the result is useless.
func drain(ctx context.Context) {
	session := server.ClientSessionFromContext(ctx)
	if session == nil {
		return
	}
	for i := 0; len(session.NotificationChannel()) > 0 && i < 1000; i++ {
		time.Sleep(100 * time.Microsecond)
	}
	time.Sleep(time.Millisecond) // the last notification may have left the queue but not be written yet
}

type weatherIn struct {
	City string `json:"city"`
}

type weatherOut struct {
	City        string `json:"city"`
	Temperature int    `json:"temperature_c"`
	Sky         string `json:"sky"`
}

func weather(_ context.Context, in weatherIn, _ report) (any, error) {
	city := strings.TrimSpace(in.City)
	if city == "" {
		return nil, fmt.Errorf("city: empty; give the name of a city")
	}
	h := fnv.New32a()
	h.Write([]byte(strings.ToLower(city)))
	sum := h.Sum32()
	sky := []string{"clear", "cloudy", "rain", "snow", "fog"}
	return weatherOut{City: city, Temperature: int(sum%36) - 5, Sky: sky[sum/36%uint32(len(sky))]}, nil
}

type echoIn struct {
	Message *string `json:"message"` // may be empty but not missing
}

func echo(_ context.Context, in echoIn, _ report) (any, error) {
	if in.Message == nil {
		return nil, errors.New("message: missing; give the text to return")
	}
	return *in.Message, nil
}

type addIn struct {
	A json.Number `json:"a"`
	B json.Number `json:"b"`
}

func add(_ context.Context, in addIn, _ report) (any, error) {
	a, errA := in.A.Float64()
	b, errB := in.B.Float64()
	if errA != nil || errB != nil {
		return nil, fmt.Errorf("a and b must be numbers, got %q and %q", in.A, in.B)
	}
	sum, err := json.Marshal(a + b)
	if err != nil {
		return nil, fmt.Errorf("%s and %s are too large: their sum is over %g", in.A, in.B, math.MaxFloat64)
	}
	return string(sum), nil
}

type countdownIn struct {
	N      int  `json:"n"`
	StepMS *int `json:"step_ms"`
}

// The limits of countdown prevent a call from occupying a server for long.
const (
	maxCount  = 1000
	maxStepMS = 10_000
)

func countdown(ctx context.Context, in countdownIn, report report) (any, error) {
	step := 100
	if in.StepMS != nil {
		step = *in.StepMS
	}
	switch {
	case in.N < 1 || in.N > maxCount:
		return nil, fmt.Errorf("n must be from 1 to %d; it is %d", maxCount, in.N)
	case step < 0 || step > maxStepMS:
		return nil, fmt.Errorf("step_ms must be from 0 to %d; it is %d", maxStepMS, step)
	}
	for left := in.N; left > 0; left-- {
		select {
		case <-time.After(time.Duration(step) * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		report(in.N-left+1, in.N, fmt.Sprintf("%d left", left-1))
	}
	return fmt.Sprintf("counted down from %d", in.N), nil
}

type notes struct {
	mu   sync.Mutex
	list []string
}

type noteIn struct {
	Text string `json:"text"`
}

func (n *notes) add(_ context.Context, in noteIn, _ report) (any, error) {
	if in.Text == "" {
		return nil, errors.New("text: empty; give the note")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, in.Text)
	return fmt.Sprintf("note %d added: %s", len(n.list), in.Text), nil
}
