package mcpserver_test

import (
	"bufio"
	"context"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// steps is a tool that reports a number for each value received from more, and ends when more is closed.
type steps struct {
	more  chan struct{} // closed to end
	ended chan error
	tool  tool.Tool
}

func newSteps() *steps {
	s := &steps{more: make(chan struct{}), ended: make(chan error, 100)}
	s.tool = tool.Must(tool.NewStream("steps", "Counts.", func(ctx context.Context, _ none) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			for n := 1; ; n++ {
				select {
				case _, ok := <-s.more:
					if !ok {
						yield(tool.Text("end"), nil)
						s.ended <- ctx.Err()
						return
					}
				case <-ctx.Done():
					s.ended <- ctx.Err()
					return
				}
				c := tool.Text(fmt.Sprint(n))
				c.ForUser = true
				if !yield(c, nil) {
					return
				}
			}
		}
	}))
	return s
}

// A connection reads server-sent events.
type connection struct {
	status int
	events *bufio.Reader
	drop   func()
}

// next returns the id and the data of the next event; both are empty at the end.
func (c *connection) next() (id, data string) {
	for {
		line, err := c.events.ReadString('\n')
		if err != nil || line == "\n" && (id != "" || data != "") {
			return id, data
		}
		if v, ok := strings.CutPrefix(line, "id: "); ok {
			id = strings.TrimSpace(v)
		}
		if v, ok := strings.CutPrefix(line, "data: "); ok {
			data = strings.TrimSpace(v)
		}
	}
}

// rest returns the data of all remaining events.
func (c *connection) rest() (all []string) {
	for {
		id, data := c.next()
		if id == "" && data == "" {
			return all
		}
		all = append(all, data)
	}
}

func (w *wire) open(req *http.Request) *connection {
	w.t.Helper()
	ctx, drop := context.WithCancel(req.Context())
	w.t.Cleanup(drop)
	res, err := w.client.Do(req.WithContext(ctx))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = res.Body.Close() })
	return &connection{res.StatusCode, bufio.NewReader(res.Body), drop}
}

// count calls steps, with progress.
func (w *wire) count(id int) *connection {
	return w.open(w.request(w.t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"steps","_meta":{"progressToken":"p"}}}`, id)))
}

// back is the GET of a client that has lost a connection. Without an id it opens the standalone stream.
func (w *wire) back(id string) *connection {
	req := w.request(w.t.Context(), "")
	req.Method, req.Body, req.ContentLength = http.MethodGet, nil, 0
	if id != "" {
		req.Header.Set("Last-Event-ID", id)
	}
	return w.open(req)
}

// delete ends the session.
func (w *wire) delete() {
	w.t.Helper()
	req := w.request(w.t.Context(), "")
	req.Method = http.MethodDelete
	res, err := w.client.Do(req)
	if err != nil || res.StatusCode != http.StatusNoContent {
		w.t.Fatal(res, err)
	}
	_ = res.Body.Close()
}

// as initializes a session with a revision.
func (w *wire) as(version string) {
	w.t.Helper()
	if status, got := w.post(w.t.Context(), `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":{}}}`); status != 200 {
		w.t.Fatalf("%d %q", status, got)
	}
}

// short shortens messages to the parts in which they differ.
func short(messages []string) string {
	var out []string
	for _, m := range messages {
		switch {
		case m == "":
			out = append(out, "primed")
		case strings.Contains(m, `"result"`):
			out = append(out, "result")
		default:
			_, m, _ = strings.Cut(m, `"message":"`)
			n, _, _ := strings.Cut(m, `"`)
			out = append(out, n)
		}
	}
	return strings.Join(out, " ")
}

// TestResume checks that a client that reconnects gets the messages after the event that it names, each one
// once, both while the call runs and after it has ended (2025-11-25, basic/transports, Resumability and
// Redelivery).
func TestResume(t *testing.T) {
	for _, row := range []struct {
		version string
		got     int    // events before the connection is lost
		want    string // messages after it is lost, with two more steps
	}{
		{"2025-11-25", 1, "1 2 3 result"}, // the first event has no data
		{"2025-11-25", 2, "2 3 result"},
		{"2025-06-18", 1, "2 3 result"},
		{"2025-03-26", 1, "2 3 result"},
	} {
		for _, ended := range []bool{false, true} {
			t.Run(fmt.Sprint(row.version, row.got, ended), func(t *testing.T) {
				s := newSteps()
				w := newWire(t, listen(t, serve(t, mcpserver.Config{Toolkit: toolkit.Of(s.tool), Policy: open})))
				w.as(row.version)
				// Send the step before waiting for the answer, because the headers are sent with the first event.
				go func() { s.more <- struct{}{} }()
				lost := w.count(1)
				var id string
				for range row.got {
					id, _ = lost.next()
				}
				lost.drop()
				s.more <- struct{}{}
				var again *connection
				if !ended {
					again = w.back(id)
				}
				s.more <- struct{}{}
				close(s.more)
				if err := <-s.ended; err != nil {
					t.Errorf("the call was cancelled: %v", err)
				}
				if ended {
					again = w.back(id)
				}
				if got := short(again.rest()); again.status != 200 || got != row.want {
					t.Errorf("%d %q, want %q", again.status, got, row.want)
				}
				// The answer is kept for a while, because it may not have arrived even if it was sent.
				if got := short(w.back(id).rest()); got != row.want {
					t.Errorf("resumed again: %q, want %q", got, row.want)
				}
			})
		}
	}
}

// TestResumeTwice checks that the later connection has the stream, even while the server considers the earlier
// one alive.
func TestResumeTwice(t *testing.T) {
	s := newSteps()
	w := newWire(t, listen(t, serve(t, mcpserver.Config{Toolkit: toolkit.Of(s.tool), Policy: open})))
	w.as("2025-11-25")
	go func() { s.more <- struct{}{} }()
	first := w.count(1)
	id, _ := first.next()
	second := w.back(id)
	if _, data := second.next(); !strings.Contains(data, `"message":"1"`) {
		t.Errorf("the second begins with %q", data)
	}
	third := w.back(id)
	if got := second.rest(); len(got) > 0 {
		t.Errorf("the second still gets %q", got)
	}
	close(s.more)
	if got := short(third.rest()); got != "1 result" {
		t.Errorf("the third got %q", got)
	}
	if got := short(first.rest()); strings.Contains(got, "result") {
		t.Errorf("the first got %q", got)
	}
}

// TestResumeAttacks checks that an event id can only be used in the session that it belongs to, by the owner of
// that session.
func TestResumeAttacks(t *testing.T) {
	s := newSteps()
	url := listen(t, serve(t, mcpserver.Config{Toolkit: toolkit.Of(s.tool), Policy: open,
		Credentials: []mcpserver.Credential{{Name: "anna", Token: tokenA}, {Name: "otto", Token: tokenB}}}))
	anna, same, otto := newWire(t, url), newWire(t, url), newWire(t, url)
	anna.token, same.token, otto.token = tokenA, tokenA, tokenB
	for _, w := range []*wire{anna, same, otto} {
		w.as("2025-11-25")
	}
	go func() { s.more <- struct{}{} }()
	id, _ := anna.count(1).next()
	tag, _, _ := strings.Cut(id, "-")
	thief := newWire(t, url)
	thief.token, thief.session = tokenB, anna.session
	for _, row := range []struct {
		what   string
		w      *wire
		id     string
		status int
	}{
		{"another session of the same credential", same, id, 400},
		{"another credential", otto, id, 400},
		{"another credential with the session's id", thief, id, 404},
		{"an event that was not sent yet", anna, tag + "-99", 400},
		{"an event before the first", anna, tag + "--1", 400},
		{"no number", anna, tag, 400},
		{"too large a number", anna, tag + "-99999999999999999999", 400},
		{"a made-up stream", anna, "AAAAAAAAAAAAAAAAAAAAAAAAAA-1", 400},
		{"an empty tag", anna, "-1", 400},
		{"too long", anna, strings.Repeat("A", 100_000), 400},
		{"the right one", anna, id, 200},
	} {
		if got := row.w.back(row.id).status; got != row.status {
			t.Errorf("%s: %d, want %d", row.what, got, row.status)
		}
	}
	close(s.more)
	<-s.ended
}

// TestNotResumed checks that a call without a connection is cancelled after a while, and that its kept events
// are dropped.
func TestNotResumed(t *testing.T) {
	s := newSteps()
	w := newWire(t, listen(t, serve(t, mcpserver.Config{Toolkit: toolkit.Of(s.tool), Policy: open, Limits: mcpserver.Limits{Resume: 50 * time.Millisecond}})))
	w.as("2025-11-25")
	go func() { s.more <- struct{}{} }()
	c := w.count(1)
	id, _ := c.next()
	c.drop()
	if err := <-s.ended; err == nil {
		t.Error("the call was not cancelled")
	}
	for w.back(id).status == http.StatusOK { // the call has ended, and its stream will soon
		time.Sleep(time.Millisecond)
	}
	if got := w.back(id).status; got != http.StatusBadRequest {
		t.Errorf("a stream that was not resumed: %d", got)
	}
}

// saysMuch returns a tool that starts a stream and returns a result of the requested size.
func saysMuch() tool.Tool {
	return tool.Must(tool.NewStream("steps", "Says much.", func(_ context.Context, in struct {
		Bytes int `json:"bytes"`
	}) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			_ = yield(tool.Chunk{Block: &message.Text{Text: "."}, ForUser: true}, nil) && yield(tool.Text(strings.Repeat("x", in.Bytes)), nil)
		}
	}))
}

// much calls the tool of saysMuch and returns the id of the first event.
func (w *wire) much(id, bytes int) string {
	w.t.Helper()
	c := w.open(w.request(w.t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"steps","arguments":{"bytes":%d},"_meta":{"progressToken":"p"}}}`, id, bytes)))
	first, _ := c.next()
	c.rest()
	return first
}

// TestResumeShare checks that the kept answers of one credential are limited, in all its sessions together,
// including sessions that have ended, so that the others are not affected.
func TestResumeShare(t *testing.T) {
	url := listen(t, serve(t, mcpserver.Config{Toolkit: toolkit.Of(saysMuch()), Policy: open, Credentials: []mcpserver.Credential{
		{Name: "anna", Token: tokenA}, {Name: "otto", Token: tokenB},
	}}))
	session := func(token string) *wire {
		w := newWire(t, url)
		w.token = token
		w.as("2025-11-25")
		return w
	}
	resumable := 0
	for i := range 24 {
		w := session(tokenA)
		id := w.much(1, 900_000)
		if w.back(id).status == http.StatusOK {
			resumable++
		}
		if i%2 == 0 {
			w.delete()
		}
	}
	if resumable < 16 || resumable > 20 { // 16 MiB
		t.Errorf("%d answers of anna are kept, each of 900 kB; want 18", resumable)
	}
	w := session(tokenB)
	if status := w.back(w.much(1, 900_000)).status; status != http.StatusOK {
		t.Errorf("otto's answer: %d", status)
	}
}

// TestResumeFlood checks that the streams and bytes that are kept for a session are limited, and that the
// oldest are dropped first.
func TestResumeFlood(t *testing.T) {
	url := listen(t, serve(t, mcpserver.Config{Toolkit: toolkit.Of(saysMuch()), Policy: open}))
	for _, row := range []struct {
		bytes, calls int
		kept         int // number of the last calls that are kept
	}{
		{10, 100, 64},
		{300_000, 6, 3}, // 1 MiB
		{2_000_000, 1, 0},
	} {
		w := newWire(t, url)
		w.as("2025-11-25")
		var ids []string
		for i := range row.calls {
			ids = append(ids, w.much(i, row.bytes))
		}
		for i, id := range ids {
			want := http.StatusBadRequest
			if i >= row.calls-row.kept {
				want = http.StatusOK
			}
			if got := w.back(id).status; got != want {
				t.Errorf("%d bytes, call %d of %d: %d, want %d", row.bytes, i, row.calls, got, want)
			}
		}
	}
}

// TestResumeStanding checks that the standalone stream is resumed in the same way, and that events that were
// sent before are not lost.
func TestResumeStanding(t *testing.T) {
	fx := newFixture(t)
	w := newWire(t, listen(t, serve(t, mcpserver.Config{Toolkit: fx.tk, Policy: open})))
	w.as("2025-11-25")
	w.post(t.Context(), listBody)
	c := w.back("")
	id, _ := c.next()
	if got := w.back("").status; got != http.StatusConflict {
		t.Errorf("a second stream: %d", got)
	}
	if err := fx.tk.Add("", named("extra")); err != nil {
		t.Fatal(err)
	}
	_, before := c.next()
	again := w.back(id) // while the first connection is still open
	if _, got := again.next(); changedList(got) != "tools" || got != before {
		t.Errorf("again %q, was %q", got, before)
	}
	w.post(t.Context(), listBody)
	if err := fx.tk.Add("", named("more")); err != nil {
		t.Fatal(err)
	}
	if _, got := again.next(); changedList(got) != "tools" {
		t.Errorf("after it was resumed: %q", got)
	}
	if got := c.rest(); len(got) > 0 {
		t.Errorf("the first connection was sent %q as well", got)
	}
}

// TestStandingAnew checks that a client that opens a new standalone stream cannot resume the previous one, so
// that clients that reconnect often do not use up memory.
func TestStandingAnew(t *testing.T) {
	w := newWire(t, listen(t, serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Policy: open})))
	w.as("2025-11-25")
	reopen := func() (id string) {
		for { // the server may not have noticed yet that the previous connection is closed
			c := w.back("")
			if c.status == http.StatusConflict {
				time.Sleep(time.Millisecond)
				continue
			}
			id, _ = c.next()
			c.drop()
			return id
		}
	}
	first, second := reopen(), reopen()
	if got := w.back(first).status; got != http.StatusBadRequest {
		t.Errorf("the first: %d", got)
	}
	if got := w.back(second).status; got != http.StatusOK {
		t.Errorf("the second: %d", got)
	}
}

// TestPrimed checks that a call that takes long starts its stream, so that its client can reconnect.
func TestPrimed(t *testing.T) {
	s := newSteps()
	w := newWire(t, listen(t, serve(t, mcpserver.Config{Toolkit: toolkit.Of(s.tool), Policy: open})))
	w.as("2025-11-25")
	c := w.count(1)
	id, data := c.next()
	if id == "" || data != "" {
		t.Errorf("the first event is %q, %q", id, data)
	}
	c.drop()
	close(s.more)
	if got := short(w.back(id).rest()); got != "result" {
		t.Errorf("after it: %q", got)
	}
}

// TestKeptForAWhile checks that an answer is not kept forever.
func TestKeptForAWhile(t *testing.T) {
	s := newSteps()
	w := newWire(t, listen(t, serve(t, mcpserver.Config{Toolkit: toolkit.Of(s.tool), Policy: open, Limits: mcpserver.Limits{Resume: 50 * time.Millisecond}})))
	w.as("2025-11-25")
	go func() { s.more <- struct{}{}; close(s.more) }()
	c := w.count(1)
	id, _ := c.next()
	c.rest()
	for tries := 0; w.back(id).status == http.StatusOK; tries++ {
		if tries == 1000 {
			t.Fatal("the answer is still kept")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestStandingIsNotIdle checks that a session with an open stream is not ended for new sessions, and that a
// client that has closed its stream can open it again.
func TestStandingIsNotIdle(t *testing.T) {
	url := listen(t, serve(t, mcpserver.Config{Toolkit: newFixture(t).tk, Limits: mcpserver.Limits{Sessions: 1, Idle: time.Nanosecond}}))
	w, other := newWire(t, url), newWire(t, url)
	w.as("2025-11-25")
	c := w.back("")
	const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`
	if status, _ := other.post(t.Context(), initialize); status != http.StatusServiceUnavailable {
		t.Errorf("the session with a stream was dropped: %d", status)
	}
	c.drop()
	for tries := 0; w.back("").status != http.StatusOK; tries++ {
		if tries == 1000 {
			t.Fatal("the stream cannot be opened again")
		}
		time.Sleep(5 * time.Millisecond)
	}
}
