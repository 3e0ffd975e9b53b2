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

// fileVersion is incremented when the format changes. Files of older versions are not converted: recording again is
// easier, and tests against current servers.
const fileVersion = 1

// A recording is the content of a file: exchanges in the order of their requests.
type recording struct {
	Version   int         `json:"kitbag_replay"`
	Exchanges []*exchange `json:"exchanges"`
}

// An exchange is a request and either its response or an error.
type exchange struct {
	Request  request   `json:"request"`
	Response *response `json:"response,omitempty"`
	Error    string    `json:"error,omitempty"` // why there is no response
}

// A request is the part of a request that is recorded and compared, without host, query and header.
type request struct {
	Method string  `json:"method"`
	Path   string  `json:"path"`
	Body   content `json:"body,omitzero"`
}

// A response is the recorded part of a response. At most one of Broken and Closed is set; if both are unset, the whole
// body was read.
type response struct {
	Status int         `json:"status"`
	Header http.Header `json:"header,omitempty"`
	Body   content     `json:"body,omitzero"`
	Broken string      `json:"broken,omitempty"` // the error with which reading the body ended
	Closed bool        `json:"closed,omitempty"` // the client closed the body before its end
}

// A content is a body in one of three forms; an empty body has none.
type content struct {
	JSON   json.RawMessage `json:"json,omitempty"`   // in canonical form
	Lines  []string        `json:"lines,omitempty"`  // of UTF-8
	Base64 []byte          `json:"base64,omitempty"` // any other body
}

// exactContent returns the content for a body that is replayed byte for byte.
func exactContent(body []byte) content {
	switch {
	case len(body) == 0:
		return content{}
	case utf8.Valid(body):
		return content{Lines: strings.Split(string(body), "\n")}
	}
	return content{Base64: body}
}

// comparableContent returns the content for a body that is compared: JSON in canonical form, so that spaces and the order
// of members do not matter.
func comparableContent(body []byte) content {
	if c := strictjson.Canonical(body); c != nil {
		return content{JSON: c}
	}
	return exactContent(body)
}

// bytes returns the body, JSON in canonical form.
func (c *content) bytes() []byte {
	switch {
	case c.JSON != nil:
		return c.JSON
	case c.Lines != nil:
		return []byte(strings.Join(c.Lines, "\n"))
	}
	return c.Base64
}

// decode decodes a body that is one JSON value, numbers as json.Number.
func decode(body []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("data after the JSON value")
	}
	return v, nil
}

// load reads and checks a file.
func load(path string) (*recording, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("replay: %w; record it first", err)
	}
	var head struct {
		Version int `json:"kitbag_replay"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("replay %s: %w", path, err)
	}
	if head.Version != fileVersion { // the rest of the file may have another format
		return nil, fmt.Errorf(`replay %s: "kitbag_replay" is %d, but this program reads version %d; record it again`, path, head.Version, fileVersion)
	}
	var rec recording
	if err := json.Unmarshal(data, &rec); err != nil {
		return nil, fmt.Errorf("replay %s: %w", path, err)
	}
	for i, ex := range rec.Exchanges {
		if ex == nil || (ex.Response == nil) == (ex.Error == "") {
			return nil, fmt.Errorf("replay %s: exchange %d must have either a response or an error; record it again", path, i+1)
		}
		ex.Request.Body = comparableContent(ex.Request.Body.bytes()) // the file may have been edited
	}
	return &rec, nil
}

// save replaces the file at path.
func (rec *recording) save(path string) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // <, > and & stay readable
	enc.SetIndent("", "  ")
	if err := enc.Encode(rec); err != nil {
		return err
	}
	return replacefile.Write(path, buf.Bytes(), 0o644)
}
