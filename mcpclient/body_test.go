package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/message"
)

// TestEventBody checks that no line break within an event lets it exceed the limit, that a stream of small
// events has no limit, and what is passed on.
func TestEventBody(t *testing.T) {
	for _, row := range []struct{ why, body, want string }{
		{"small events", strings.Repeat("data: 123\n\n", 100), strings.Repeat("data: 123\n\n", 100)},
		{"other line ends", strings.Repeat("data:123\r\n\r\n", 100), strings.Repeat("data: 123\n\n", 100)},
		{"signs of life", strings.Repeat(":\n\n", 100), strings.Repeat(":\n\n", 100)},
		{"an event of some lines", "id: 7\ndata: {\ndata: }\nevent: message\n\n", "id: 7\nevent: message\ndata: {\ndata: }\n\n"},
		{"no empty line at the end", "data: 1\n", "data: 1\n"},
		{"half a line at the end", "data: 1\ndata: 2", "data: 1\n"},
		{"two members of one name", "id: 1\ndata: {\"method\":1,\"method\":2}\n\ndata: 2\n\n", "id: 1\n\ndata: 2\n\n"},
		{"an event of many lines", strings.Repeat("data: 123\n", 100), "too large"},
		{"a head of many lines", strings.Repeat("id: 123\n", 100), "too large"},
		{"one long line", "data: " + strings.Repeat("x", 100), "too large"},
	} {
		for _, read := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.DataErrReader} {
			b := newEventBody(io.NopCloser(read(strings.NewReader(row.body))), filter{maxBytes: 50})
			if got, err := io.ReadAll(b); (err == nil) != (string(got) == row.want) || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s: %v after %q", row.why, err, got)
			}
		}
	}
}

// TestWrongAnswers checks that an answer that does not belong to the request never becomes its result: over
// HTTP as JSON and as a stream, and over lines.
func TestWrongAnswers(t *testing.T) {
	const right = `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"right"}]}}`
	const wrong = `{"jsonrpc":"2.0","id":"kb-999","result":{"content":[{"type":"text","text":"wrong"}]}}`
	answers := map[string]struct {
		say       []string
		one, many string // part of the error or the result, for an answer of one message and for a stream
	}{
		"right":           {[]string{right}, "right", "right"},
		"foreign":         {[]string{wrong}, `the id "kb-999"`, `the id "kb-999"`},
		"number":          {[]string{strings.Replace(wrong, `"kb-999"`, "1", 1)}, "the id 1", "the id 1"},
		"foreign_first":   {[]string{wrong, "garbage", `{"jsonrpc":"2.0","id":17,"error":{"code":1,"message":"no"}}`, right}, "", "right"},
		"two_ids":         {[]string{strings.Replace(right, `"id":ID`, `"id":"x","id":ID`, 1)}, `"id" occurs twice`, `"id" occurs twice`},
		"folded":          {[]string{strings.Replace(right, `"result"`, `"result":{},"Result"`, 1)}, `must be written "result"`, `must be written "result"`},
		"folded_content":  {[]string{strings.Replace(right, `"content"`, `"content":[],"Content"`, 1)}, `must be written "content"`, `must be written "content"`},
		"deep":            {[]string{strings.Replace(right, `"text":"right"`, `"text":"wrong","text":"right"`, 1)}, `"text" occurs twice`, `"text" occurs twice`},
		"half":            {[]string{right[:len(right)-3]}, "cannot be read", "cannot be read"},
		"no_result":       {[]string{`{"jsonrpc":"2.0","id":ID}`}, "neither a result nor an error", "neither a result nor an error"},
		"error_number":    {[]string{`{"jsonrpc":"2.0","id":ID,"error":7}`}, "cannot be read", "cannot be read"},
		"error_code":      {[]string{`{"jsonrpc":"2.0","id":ID,"error":{"code":"E1","message":"no"}}`}, "cannot be read", "cannot be read"},
		"error_message":   {[]string{`{"jsonrpc":"2.0","id":ID,"error":{"code":1,"message":["no"]}}`}, "cannot be read", "cannot be read"},
		"version":         {[]string{strings.Replace(right, `"2.0"`, `2.0`, 1)}, "cannot be read", "cannot be read"},
		"method":          {[]string{`{"jsonrpc":"2.0","id":ID,"method":7}`}, "cannot be read", "cannot be read"},
		"folded_is_error": {[]string{strings.Replace(right, `"content"`, `"isError":false,"IsError":true,"content"`, 1)}, `must be written "isError"`, `must be written "isError"`},
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		list = append(list, `{"name":"`+name+`"}`)
	}
	tools := "[" + strings.Join(list, ",") + "]"
	script := func(msg request, reply func(string)) {
		if handleStandard(msg, reply, tools) || msg.Method != "tools/call" {
			return
		}
		for _, a := range answers[msg.name()].say {
			reply(strings.ReplaceAll(a, "ID", string(msg.ID)))
		}
	}
	jsonURL := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var msg request
		if json.NewDecoder(r.Body).Decode(&msg) != nil || msg.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		script(msg, func(line string) { _, _ = io.WriteString(w, line) })
	})).URL
	for way, cfg := range map[string]Server{"json": {Transport: HTTP{URL: jsonURL}}, "events": {Transport: HTTP{URL: eventStreams(t, script)}},
		"sse": {Transport: HTTP{URL: sseServer(t, script), SSE: true}}, "lines": {Transport: Dial(inMemory(script))}} {
		cfg.Name, cfg.Options.PingInterval, cfg.Options.Protocol = "srv", -1, "2025-06-18"
		c := connect(t, cfg)
		for name, a := range answers {
			want := a.many
			if way == "json" {
				want = a.one
			}
			if want == "" || (way == "lines" || way == "sse") && (name == "foreign" || name == "number") { // there such an answer is for another request
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // much less than Timeout
			res, err := run(ctx, find(t, c, name), `{}`)
			cancel()
			if err != nil {
				t.Errorf("%s, %s: %v", way, name, err)
				continue
			}
			if !strings.Contains(res.Text(), want) || (want == "right") != (res.Outcome == message.OutcomeSuccess) {
				t.Errorf("%s, %s: %s %s, want %q", way, name, res.Outcome, res.Text(), want)
			}
		}
	}
}

// TestNotUTF8 checks that invalid UTF-8 reaches neither the model nor a program that passes results on: a
// request that contains it would not be JSON.
func TestNotUTF8(t *testing.T) {
	script := func(msg request, reply func(string)) {
		if msg.Method == "tools/call" && msg.name() == "fails" {
			reply(strings.Replace(msg.fail(7, "bad"), `"why":"test"`, "\"why\":\"\xff\"", 1))
			return
		}
		if msg.Method == "tools/call" {
			reply(msg.result("{\"content\":[{\"type\":\"text\",\"text\":\"t\xff\"}],\"structuredContent\":{\"s\":\"\xff\"},\"_meta\":{\"m\":\"\xff\"}}"))
			return
		}
		handleStandard(msg, reply, "[{\"name\":\"t\",\"description\":\"d\xff\",\"inputSchema\":{\"properties\":{\"p\xff\":{\"enum\":[\"\xed\xa0\x80\"]}}}},{\"name\":\"fails\"}]")
	}
	jsonURL := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var msg request
		if json.NewDecoder(r.Body).Decode(&msg) != nil || msg.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if msg.name() == "fails" {
			w.WriteHeader(http.StatusBadRequest)
		}
		script(msg, func(line string) { _, _ = io.WriteString(w, line) })
	})).URL
	for way, transport := range map[string]Transport{"json": HTTP{URL: jsonURL}, "events": HTTP{URL: eventStreams(t, script)},
		"sse": HTTP{URL: sseServer(t, script), SSE: true}, "lines": Dial(inMemory(script))} {
		c := connect(t, Server{Name: "srv", Transport: transport, Options: Options{PingInterval: -1, Protocol: "2025-06-18"}})
		tl := find(t, c, "t")
		res := mustRun(t, tl, `{}`)
		ce, ok := errors.AsType[*CallError](callError(t, find(t, c, "fails")))
		if !ok {
			t.Fatalf("%s: not a CallError", way)
		}
		for _, data := range [][]byte{tl.Info().Input, []byte(tl.Info().Description), []byte(res.Text()), res.Structured, res.Meta["m"], ce.Data} {
			if len(data) == 0 || !utf8.Valid(data) {
				t.Errorf("%s: %q", way, data)
			}
		}
	}
}

// sseServer serves a scripted server over the SSE transport of 2024-11-05, and returns its URL.
func sseServer(t *testing.T, s script) (url string) {
	t.Helper()
	lines := make(chan string, 100)
	return serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			var msg request
			if json.NewDecoder(r.Body).Decode(&msg) == nil {
				w.WriteHeader(http.StatusAccepted)
				s(msg, func(line string) { lines <- line })
			}
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "event: endpoint\ndata: /post\n\n")
		for {
			w.(http.Flusher).Flush()
			select {
			case line := <-lines:
				fmt.Fprintf(w, "event: message\ndata: %s\n\n", line)
			case <-r.Context().Done():
				return
			}
		}
	})).URL
}
