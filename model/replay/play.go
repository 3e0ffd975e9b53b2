package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/model"
)

// A Player answers requests from a recording. It is safe for concurrent use;
// equal requests are answered in the order of the recording.
type Player struct {
	path string
	cfg  Config

	mu     sync.Mutex
	rec    *recording
	played []bool // for each exchange in rec
}

// Play reads the recording at path. It fails if the file does not exist or is not a recording of the current version.
func Play(path string, cfg Config) (*Player, error) {
	rec, err := load(path)
	if err != nil {
		return nil, err
	}
	return &Player{path: path, cfg: cfg, rec: rec, played: make([]bool, len(rec.Exchanges))}, nil
}

// Unplayed returns descriptions of the recorded requests that the client has not made, in the order of the recording.
func (p *Player) Unplayed() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var left []string
	for i, ex := range p.rec.Exchanges {
		if !p.played[i] {
			left = append(left, describe(i, &ex.Request))
		}
	}
	return left
}

// RoundTrip answers req from the recording; nothing is sent. It fails with the recorded error, with the error of the
// request's context, and with a [*model.Error] for a request that was not recorded or was already made as often as
// recorded.
func (p *Player) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := readBody(req)
	if err == nil {
		err = req.Context().Err()
	}
	if err != nil {
		return nil, err
	}
	ex, err := p.next(p.cfg.request(req, body))
	if err != nil {
		return nil, err
	}
	if ex.Error != "" {
		return nil, errors.New(ex.Error)
	}
	return ex.Response.replay(req), nil
}

// next returns the exchange that answers a request, and marks it as played.
func (p *Player) next(r *request) (*exchange, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	timesPlayed := 0
	for i, ex := range p.rec.Exchanges {
		if !r.equals(&ex.Request) {
			continue
		}
		if !p.played[i] {
			p.played[i] = true
			return ex, nil
		}
		timesPlayed++
	}
	var why string
	switch {
	case timesPlayed > 0:
		why = fmt.Sprintf("it was recorded %d times, and was already made as often", timesPlayed)
	case len(p.rec.Exchanges) == 0:
		why = "the recording is empty"
	default:
		why = "it was not recorded; " + p.nearest(r)
	}
	return nil, &model.Error{Kind: model.KindInvalidRequest,
		Message: fmt.Sprintf("replay %s: %s %s: %s. If the new request is intended, record again.", p.path, r.Method, r.Path, why)}
}

// equals reports whether a recorded request is answered like r.
func (r *request) equals(other *request) bool {
	return r.Method == other.Method && r.Path == other.Path && bytes.Equal(r.Body.bytes(), other.Body.bytes())
}

// nearest describes how a request differs from the most similar recorded request that was not played, or if all were
// played, from the most similar of all.
func (p *Player) nearest(r *request) string {
	allPlayed := !slices.Contains(p.played, false)
	best, smallest := -1, differences{} // smallest is the differences from exchange best
	for i, ex := range p.rec.Exchanges {
		if p.played[i] && !allPlayed {
			continue
		}
		if d := r.differences(&ex.Request); best < 0 || d.size < smallest.size {
			best, smallest = i, d
		}
	}
	const maxLines = 5
	lines := smallest.lines
	if n := len(lines); n > maxLines {
		lines = append(lines[:maxLines], fmt.Sprintf("and %d more", n-maxLines))
	}
	return fmt.Sprintf("the nearest, %s, differs:\n\t%s", describe(best, &p.rec.Exchanges[best].Request), strings.Join(lines, "\n\t"))
}

// replay returns the response to req. If the recorded body is incomplete, reading ends with an error, so that the body
// does not look complete.
func (r *response) replay(req *http.Request) *http.Response {
	data := r.Body.bytes()
	resp := &http.Response{
		Status: fmt.Sprintf("%d %s", r.Status, http.StatusText(r.Status)), StatusCode: r.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: r.Header.Clone(), ContentLength: int64(len(data)), Request: req,
	}
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	var body io.Reader = bytes.NewReader(data)
	if err := r.bodyErr(); err != nil {
		resp.ContentLength = -1 // unknown
		body = io.MultiReader(body, errReader{err})
	}
	resp.Body = io.NopCloser(body)
	return resp
}

// bodyErr returns the error with which the body ends, nil if the body is complete.
func (r *response) bodyErr() error {
	switch {
	case r.Broken == io.ErrUnexpectedEOF.Error():
		return io.ErrUnexpectedEOF
	case r.Broken != "":
		return errors.New(r.Broken)
	case r.Closed:
		return errors.New("replay: the recorded client closed the response here; record again to get the rest")
	}
	return nil
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }
