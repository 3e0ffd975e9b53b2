// Package replay records the HTTP traffic of a model client to a file and plays
// it back, so that a test uses a real model's answers without calling it again.
//
//	var record = flag.Bool("record", false, "call the real model")
//
//	func TestWeather(t *testing.T) {
//		client := replay.Test(t, "testdata/weather.json", *record)
//		m, err := openai.New(openai.Config{Model: "gpt-5", Key: key, HTTPClient: client})
//		…
//	}
//
// [Test] uses a [Recorder] and a [Player], which are both an http.RoundTripper and work with any HTTP client.
//
// # The file
//
// The file is readable: requests are JSON with sorted members, responses are the received lines, byte for byte, so
// that a streamed answer is parsed again. A stream that ended early ends early again.
//
// A request is answered by the first recorded exchange that has the same method, path and body, and has not been
// played. JSON bodies are compared as values: spaces and the order of members are ignored. Host, query and headers
// are ignored too. For a request that was not recorded the error says how it differs from the most similar recorded
// one; it is a [*model.Error] that is not retried.
//
// # Secrets
//
// The headers, host and query of a request are not recorded. Of a response's headers, those for its type, date and
// retries are. A key from the request's headers or URL is replaced with REDACTED in paths and bodies. Other secrets
// must be removed by [Config.Rewrite]: review a file before you publish it.
package replay

import (
	"fmt"
	"net/http"
)

// A Config configures a Recorder or a Player. The zero value is ready to use.
type Config struct {
	// Next sends requests while recording; nil means [http.DefaultTransport].
	Next http.RoundTripper

	// Rewrite, if not nil, returns the body to record and compare instead of each body of a request or a response. It
	// removes secrets and values that differ each time. The client gets the original response. Rewrite must be safe
	// for concurrent use if requests are made concurrently.
	Rewrite func(body []byte) []byte
}

// rewrite returns the body to record.
func (c *Config) rewrite(body []byte) []byte {
	if c.Rewrite == nil {
		return body
	}
	return c.Rewrite(body)
}

// request returns the part of a request that is recorded and compared.
func (c *Config) request(req *http.Request, body []byte) *request {
	s := secretsOf(req)
	return &request{Method: req.Method, Path: string(s.clean([]byte(req.URL.Path))),
		Body: comparableContent(s.clean(c.rewrite(body)))}
}

// A T is the part of *testing.T that [Test] uses.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Test returns a client that plays the file at path or, if record is set, records it, writing the file at the end of
// the test. The test fails if it does not make every recorded request, or if the file cannot be read or written.
func Test(t T, path string, record bool) *http.Client {
	t.Helper()
	if record {
		r := Record(path, Config{})
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Errorf("%v", err)
			}
		})
		return &http.Client{Transport: r}
	}
	p, err := Play(path, Config{})
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if left := p.Unplayed(); len(left) > 0 {
			t.Errorf("replay %s: the test did not make %d of the recorded requests: %q; if that is intended, record again", path, len(left), left)
		}
	})
	return &http.Client{Transport: p}
}

// describe describes an exchange for an error.
func describe(i int, r *request) string {
	return fmt.Sprintf("request %d, %s %s", i+1, r.Method, r.Path)
}
