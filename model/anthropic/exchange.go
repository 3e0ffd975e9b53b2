package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/model/httperror"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

const (
	messagesPath = "/v1/messages"

	// endTime limits the wait for the end of the stream after the end of the answer.
	endTime = 5 * time.Second
	// maxPauses is how many times a paused answer is continued.
	maxPauses = 16
)

// newHeader returns the header that all requests have.
func newHeader(cfg *Config) http.Header {
	h := http.Header{}
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "text/event-stream")
	h.Set("Accept-Encoding", "identity") // a proxy that compresses a stream holds it back
	h.Set("Anthropic-Version", "2023-06-01")
	if cfg.Key != "" {
		h.Set("X-Api-Key", cfg.Key)
	}
	maps.Copy(h, cfg.Header)
	return h
}

// ask sends a request and reads its answer.
func (m *Model) ask(ctx context.Context, b *body, a *answer) error {
	x := new(provider.Exchange)
	x.Start(ctx, provider.Limits{Header: m.cfg.HeaderTimeout, Idle: m.cfg.IdleTimeout})
	defer x.Close()
	err := m.send(x, b)
	if err == nil {
		err = read(x, a)
	}
	if err == nil || errors.Is(err, errStopped) {
		return err
	}
	return x.Explain(err, a.conversation)
}

// send sends a request and waits for the header of its answer.
func (m *Model) send(x *provider.Exchange, b *body) error {
	url := m.cfg.BaseURL + messagesPath
	req, err := http.NewRequestWithContext(x.Ctx, http.MethodPost, url, bytes.NewReader(b.json()))
	if err != nil {
		return err
	}
	req.Header = m.header.Clone() // the client may modify it
	if len(b.betas) > 0 {
		req.Header["Anthropic-Beta"] = slices.Concat(req.Header["Anthropic-Beta"], b.betas)
	}
	resp, err := m.cfg.HTTPClient.Do(req)
	if err != nil {
		return err
	}
	return x.Begin(resp)
}

// read reads an answer to its end; a yields the chunks.
func read(x *provider.Exchange, a *answer) error {
	l := provider.NewLines(x)
	defer l.Release()
	defer x.Drain(l)
	whole, err := provider.ReadUnstreamed(l.Reader)
	switch {
	case err != nil:
		return err
	case whole != nil:
		err = a.unstreamed(whole)
	default:
		err = stream(l, x, a)
	}
	if err != nil {
		return err
	}
	x.Complete = true
	return a.finish()
}

// stream reads server-sent events (HTML Standard, section 9.2) until the end of the answer. Each
// data line that is JSON is an event, since some servers send no blank lines between events. Other
// fields are not needed: the data of an event has its type.
func stream(l *provider.Lines, x *provider.Exchange, a *answer) error {
	var pending []byte // data of an event whose JSON is spread over several lines
	for !a.done {
		line, err := l.Next()
		if err != nil {
			return provider.StreamEnd(err, a.reason != "") // only message_stop may be missing
		}
		data, isData := bytes.CutPrefix(line, []byte("data:"))
		switch {
		case isData && len(pending) == 0 && json.Valid(data):
			err = a.data(data)
		case isData && len(pending)+len(data) > provider.MaxPending:
			err = httperror.BadAnswer("a part of the stream is not valid JSON", data)
		case isData:
			pending = append(append(pending, data...), '\n')
		case len(line) == 0:
			err = a.data(pending)
			pending = pending[:0]
		}
		if err != nil {
			return err
		}
		if a.reason != "" {
			x.EndIdle = endTime // only message_stop may still follow
		}
	}
	return nil
}
