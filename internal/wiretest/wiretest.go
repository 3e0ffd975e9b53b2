// Package wiretest has what the fake servers of several vendors share: how they answer, and how they read requests.
package wiretest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kitbag-go/kitbag/internal/strictjson"
)

// An Answer is an answer of a server.
type Answer struct {
	Status int
	Header http.Header
	Parts  []string      // of the body
	Cut    int           // bytes after which the connection is cut; negative for never
	Hang   bool          // keep the connection open and silent: after Cut bytes, or, if Cut is negative, without any answer
	Pause  time.Duration // between the parts
}

// Raw returns an answer with a verbatim body. header is a name, its value, the next name, and so on.
func Raw(status int, body string, header ...string) Answer {
	a := Answer{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Parts: []string{body}, Cut: -1}
	for i := 0; i+1 < len(header); i += 2 {
		a.Header.Set(header[i], header[i+1])
	}
	return a
}

// Serve writes the answer, until it ends or the client or the server closes the connection.
func (a *Answer) Serve(w http.ResponseWriter, r *http.Request, closed <-chan struct{}) {
	wait := func(until <-chan time.Time) (connected bool) {
		select {
		case <-until:
			return true
		case <-r.Context().Done():
		case <-closed:
		}
		return false
	}
	if a.Hang && a.Cut < 0 {
		wait(nil)
		return
	}
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.Status)
	left := a.Cut
	for _, part := range a.Parts {
		if left >= 0 && len(part) >= left {
			_, _ = w.Write([]byte(part[:left]))
			_ = http.NewResponseController(w).Flush()
			if a.Hang {
				wait(nil)
			}
			panic(http.ErrAbortHandler) // net/http then closes the connection
		}
		left -= len(part) // stays negative if the answer is not cut
		if _, err := w.Write([]byte(part)); err != nil {
			return
		}
		if a.Pause > 0 {
			_ = http.NewResponseController(w).Flush()
			if !wait(time.After(a.Pause)) {
				return
			}
		}
	}
}

// Pieces splits s into pieces of a few bytes, between runes.
func Pieces(s string) (out []string) {
	for s != "" {
		n := min(5, len(s))
		for n < len(s) && !utf8.RuneStart(s[n]) {
			n++
		}
		out = append(out, s[:n])
		s = s[n:]
	}
	return out
}

// Marshal encodes a value that can be encoded; members are sorted.
func Marshal(v any) string {
	data, err := strictjson.Encode(v)
	if err != nil {
		panic(err) // the fakes make all values
	}
	return string(data)
}

// DecodeObject returns the members of an object. The error continues a sentence: "… is not a JSON object".
func DecodeObject(raw json.RawMessage) (map[string]json.RawMessage, error) {
	var o map[string]json.RawMessage
	if err := json.Unmarshal(raw, &o); err != nil || o == nil {
		return nil, fmt.Errorf("is not a JSON object: %.60s", raw)
	}
	return o, nil
}

// DecodeList returns the items of an array that must not be empty.
func DecodeList(raw json.RawMessage) ([]json.RawMessage, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 {
		return nil, fmt.Errorf("not an array with items: %.60s", raw)
	}
	return list, nil
}

// DecodeString returns a string; null is an error.
func DecodeString(raw json.RawMessage) (string, error) {
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", err
	}
	if s == nil {
		return "", errors.New("is null")
	}
	return *s, nil
}

// CompileSchema returns an error for an invalid JSON Schema.
func CompileSchema(raw json.RawMessage) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource("schema:", doc); err != nil {
		return err
	}
	_, err = c.Compile("schema:")
	return err
}
