package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/internal/replacefile"
	"github.com/kitbag-go/kitbag/internal/strictjson"
)

// fileVersion is incremented when the format changes. Older files are not converted: recording
// again is easier, and tests against current servers.
const fileVersion = 1

// A recording is the content of a file: exchanges in the order of their requests.
type recording struct {
	Version   int         `json:"kitbag_replay"`
	Exchanges []*exchange `json:"exchanges"`
}

// An exchange is a request and its response, or the error of the transport.
type exchange struct {
	Request  request   `json:"request"`
	Response *response `json:"response,omitempty"`
	Error    string    `json:"error,omitempty"` // instead of a response
}

// A request is the part of a request that is recorded and compared, without host, query and header.
type request struct {
	Method string  `json:"method"`
	Path   string  `json:"path"`
	Body   content `json:"body,omitzero"`
}

// A response is the recorded part of a response. At most one of Broken and Closed is set;
// neither means that the whole body was read.
type response struct {
	Status int         `json:"status"`
	Header http.Header `json:"header,omitempty"`
	Body   content     `json:"body,omitzero"`
	Broken string      `json:"broken,omitempty"` // the error after the body
	Closed bool        `json:"closed,omitempty"` // the client closed the body before its end
}

// A content is a body in one of three forms.
type content struct {
	JSON   json.RawMessage `json:"json,omitempty"` // in canonical form
	Lines  []string        `json:"lines,omitempty"`
	Base64 []byte          `json:"base64,omitempty"`
}

// textContent returns the content for a body, byte for byte.
func textContent(body []byte) content {
	switch {
	case len(body) == 0:
		return content{}
	case utf8.Valid(body):
		return content{Lines: strings.Split(string(body), "\n")}
	}
	return content{Base64: body}
}

// valueContent returns the content for a body, in canonical form if it is JSON.
func valueContent(body []byte) content {
	if c := strictjson.Canonical(body); c != nil {
		return content{JSON: c}
	}
	return textContent(body)
}

// bytes returns the body. JSON is in canonical form, not as sent.
func (c *content) bytes() []byte {
	switch {
	case c.JSON != nil:
		return c.JSON
	case c.Lines != nil:
		return []byte(strings.Join(c.Lines, "\n"))
	}
	return c.Base64
}

// decode reads one JSON value, its numbers as json.Number; trailing data is an error.
func decode(body []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("more than one value")
	}
	return v, nil
}

// load reads and checks a file. It makes bodies canonical again, since the file may have been edited.
func load(path string) (*recording, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("replay: %w; record it first", err)
	}
	var head struct {
		Version int `json:"kitbag_replay"`
	}
	var rec recording
	switch err := json.Unmarshal(data, &head); {
	case err != nil:
		return nil, fmt.Errorf("replay %s: %w", path, err)
	case head.Version != fileVersion:
		return nil, fmt.Errorf(`replay %s: "kitbag_replay" is %d, but this program reads version %d; record it again`, path, head.Version, fileVersion)
	}
	if err := json.Unmarshal(data, &rec); err != nil {
		return nil, fmt.Errorf("replay %s: %w", path, err)
	}
	for i, ex := range rec.Exchanges {
		if ex == nil || (ex.Response == nil) == (ex.Error == "") {
			return nil, fmt.Errorf("replay %s: exchange %d must have either a response or an error; record it again", path, i+1)
		}
		ex.Request.Body = valueContent(ex.Request.Body.bytes())
	}
	return &rec, nil
}

// save replaces the file at path.
func (rec *recording) save(path string) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // for readers of the file
	enc.SetIndent("", "  ")
	if err := enc.Encode(rec); err != nil {
		return err
	}
	return replacefile.Write(path, buf.Bytes(), 0o644)
}
