package distributed

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agui"
)

// serve serves the sessions to frontends that speak AG-UI until ctx ends, and prints its address. Any number of these
// processes can run, since they have no state. A real one must authenticate its users.
func (h *host) serve(ctx context.Context, out io.Writer) error {
	handler, err := agui.New(agui.Config{Store: h.store, Engine: h.Engine})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "http://%s\n", ln.Addr())
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// startWeb starts two web fronts.
func (c *cluster) startWeb() error {
	for range 2 {
		w, err := c.newProcess(workerConfig{Web: true})
		if err != nil {
			return err
		}
		out, err := w.cmd.StdoutPipe()
		if err == nil {
			err = w.cmd.Start()
		}
		if err != nil {
			return err
		}
		c.fronts = append(c.fronts, w)
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			return fmt.Errorf("start the web front: %w", err)
		}
		c.urls = append(c.urls, strings.TrimSpace(line))
	}
	return nil
}

// browse sends the only input of a session and reads events to the end of the run, as a browser does. After errors and
// after seven events it reconnects to the other front.
func (c *cluster) browse(ctx context.Context, id string) error {
	b := &browser{id: id, seen: map[string]bool{}}
	for n := 0; !b.ended && ctx.Err() == nil; n++ {
		if err := b.connect(ctx, c.urls[n%len(c.urls)]); err != nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.web.runs++
	c.web.deltas += b.deltas
	if b.text != farewell || b.results != steps-1 || b.twice > 0 {
		c.web.wrong++
	}
	return ctx.Err()
}

// A browser is a client of AG-UI, with what it has seen of a run.
type browser struct {
	id             string // of the session
	last           string // id of the last event
	seen           map[string]bool
	text           string
	results, twice int
	deltas         int // pieces of text
	ended          bool
}

// connect begins the run, or continues its stream, and reads some events.
func (b *browser) connect(ctx context.Context, to string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to+"?threadId="+url.QueryEscape(b.id), nil)
	if err != nil {
		return err
	}
	if b.last == "" {
		body := fmt.Sprintf(`{"threadId":%q,"runId":"run","messages":[{"id":"input","role":"user","content":"Book five seats."}]}`, b.id)
		req.Method, req.Body = http.MethodPost, io.NopCloser(strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Last-Event-ID", b.last)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	id := ""
	for lines, n := bufio.NewScanner(res.Body), 0; n < 7 && lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			id = value
		case "data":
			n++
			if err := b.show(id, value); err != nil || b.ended {
				return err
			}
		}
	}
	return nil
}

// show processes an event. Events without an id are sent again after a reconnect.
func (b *browser) show(id, data string) error {
	var ev struct {
		Type  string
		Delta any // a string if it is text
	}
	if err := json.Unmarshal([]byte(data), &ev); err != nil {
		return err
	}
	if id != "" {
		if b.seen[id] {
			b.twice++
		}
		b.seen[id], b.last = true, id
	}
	switch ev.Type {
	case "TEXT_MESSAGE_CONTENT":
		text, _ := ev.Delta.(string)
		b.text += text
		b.deltas++
	case "TOOL_CALL_RESULT":
		b.results++
	case "RUN_FINISHED", "RUN_ERROR":
		b.ended = true
	}
	return nil
}
