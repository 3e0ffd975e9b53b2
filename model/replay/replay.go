// Package replay records the HTTP traffic of a model client to a file and plays
// it back, so that a test uses what a real model said without asking it again.
//
//	var record = flag.Bool("record", false, "ask the real model")
//
//	func TestWeather(t *testing.T) {
//		client := replay.Test(t, "testdata/weather.json", *record)
//		m, err := openai.New(openai.Config{Model: "gpt-5", Key: key, HTTPClient: client})
//		…
//	}
//
// [Test] is made of a [Recorder] and a [Player], which are both an
// http.RoundTripper and work with any HTTP client.
//
// # The file
//
// The file is for people to read: requests as JSON with sorted members,
// responses as the lines that came, byte for byte, so that a streamed answer
// is parsed again as it was then. A stream that broke off breaks off again.
//
// A request is answered by the first recorded exchange that has its method, its
// path and its body, and has not been played. Bodies that are JSON are compared
// as values: neither spaces nor the order of members count. Host, query and
// headers do not count either. A request that was not recorded is an error that
// says how it differs from the nearest one that was; it is a [*model.Error]
// that is not worth a retry.
//
// # Secrets
//
// No header of a request is kept, nor its host and query, and of a response
// only the headers that tell of its type and of when to try again. Where a key
// from the request's headers or URL stands in a path or a body, it is replaced
// by REDACTED. What else is secret in what was said, [Config.Rewrite] must take
// out: look at a file before you publish it.
package replay

import (
	"fmt"
	"net/http"
)

// A Config says how to record and play. The zero value works.
type Config struct {
	// Next sends requests while recording; nil is [http.DefaultTransport].
	Next http.RoundTripper

	// Rewrite, if not nil, returns the body to keep, and to compare, in place
	// of each body of a request or a response. It takes out what is secret and
	// what is different each time. The client itself sees the response as it
	// came. It is called on several goroutines if requests are made on several.
	Rewrite func(body []byte) []byte
}

// rewrite returns what is kept of a body.
func (c *Config) rewrite(body []byte) []byte {
	if c.Rewrite == nil {
		return body
	}
	return c.Rewrite(body)
}

// request returns what is kept, and compared, of a request.
func (c *Config) request(req *http.Request, body []byte) *request {
	s := secretsOf(req)
	return &request{Method: req.Method, Path: string(s.clean([]byte(req.URL.Path))),
		Body: valueContent(s.clean(c.rewrite(body)))}
}

// A T is the part of *testing.T that [Test] uses.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Test returns a client that plays the file at path or, if record is set,
// records it. A test that does not make every request that was recorded fails, and one
// whose file cannot be read or written. The file is written at the end of the test.
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
			t.Errorf("replay %s: %d requests were recorded and not made: %q", path, len(left), left)
		}
	})
	return &http.Client{Transport: p}
}

// describe names an exchange in an error.
func describe(i int, r *request) string {
	return fmt.Sprintf("request %d, %s %s", i+1, r.Method, r.Path)
}
