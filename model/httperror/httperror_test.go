package httperror_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/httperror"
)

// A watchedBody records whether it was closed, and how much of it was read.
type watchedBody struct {
	io.Reader
	read   int
	closed bool
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	return n, err
}

func (b *watchedBody) Close() error { b.closed = true; return nil }

func TestHTTPError(t *testing.T) {
	const s = time.Second
	for _, row := range []struct {
		status  int
		header  string // "Name: value", one a line
		body    string
		kind    model.ErrorKind
		message string
		after   time.Duration
	}{
		{400, "", `{"error":{"message":"bad tools","type":"invalid_request_error"}}`, model.KindInvalidRequest, "bad tools", 0},
		{400, "", `{"error":{"message":"This model's maximum context length is 8192 tokens"}}`, model.KindContextTooLong, "This model's maximum context length is 8192 tokens", 0},
		{400, "", `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`, model.KindContextTooLong, "prompt is too long: 210000 tokens > 200000 maximum", 0},
		{400, "", `{"error":{"message":"Could not process image"}}`, model.KindBadImage, "Could not process image", 0},
		{401, "", `{"error":"no key"}`, model.KindAuthentication, "no key", 0},
		{402, "", `{"error":{"message":"no credit"}}`, model.KindRateLimit, "no credit", 0},
		{403, "", ``, model.KindPermission, "Forbidden", 0},
		{404, "", `{"detail":"Not Found"}`, model.KindInvalidRequest, "Not Found", 0},
		{413, "", `<html><body><h1>Too   large</h1></body></html>`, model.KindContextTooLong, "Too large", 0},
		{429, "Retry-After: 7", `{"error":{"message":"slow down","code":"rate_limit_exceeded"}}`, model.KindRateLimit, "slow down", 7 * s},
		{429, "Retry-After: 1.5", ``, model.KindRateLimit, "Too Many Requests", 1500 * time.Millisecond},
		{429, "Retry-After-Ms: 20\nRetry-After: 7", ``, model.KindRateLimit, "Too Many Requests", 20 * time.Millisecond},
		{503, "Date: Sun, 01 Mar 2026 10:00:00 GMT\nRetry-After: Sun, 01 Mar 2026 10:01:00 GMT", `{"message":"later"}`, model.KindUpstream, "later", 60 * s},
		{503, "Retry-After: -3", ``, model.KindUpstream, "Service Unavailable", 0},
		{503, "Retry-After: 1e300", ``, model.KindUpstream, "Service Unavailable", 24 * time.Hour},
		{503, "Date: Sun, 01 Mar 2026 10:00:00 GMT\nRetry-After: Mon, 01 Mar 2027 10:00:00 GMT", ``, model.KindUpstream, "Service Unavailable", 24 * time.Hour},
		{503, "Retry-After: NaN", ``, model.KindUpstream, "Service Unavailable", 0},
		{502, "", strings.Repeat("line\n", 100), model.KindUpstream, strings.Repeat("line ", 59) + "line…", 0},
		{529, "", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, model.KindUpstream, "Overloaded", 0},
		{500, "", `[{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED"}}]`, model.KindRateLimit, "quota", 0},
		{500, "", strings.Repeat("[", 9000) + strings.Repeat("]", 9000), model.KindUpstream, strings.Repeat("[", 300) + "…", 0},
		{302, "", ``, model.KindUnknown, "Found", 0},
		{401, "", `{"error":{"message":"Incorrect API key provided: sk-sec\/ret-1234"}}`, model.KindAuthentication, "Incorrect API key provided: [redacted]", 0},
		{401, "", `wrong header x-key-99`, model.KindAuthentication, "wrong header [redacted]", 0},
		{401, "", strings.Repeat("x", 295) + "sk-sec/ret-1234", model.KindAuthentication, strings.Repeat("x", 295) + "[reda…", 0},
		{500, "", `{"message":"` + strings.Repeat("ä", 3000) + `"}`, model.KindUpstream, strings.Repeat("ä", 2048) + "…", 0},
	} {
		req, err := http.NewRequest(http.MethodPost, "http://model.test/v1", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer sk-sec/ret-1234")
		req.Header.Set("X-Api-Key", "x-key-99")
		body := &watchedBody{Reader: strings.NewReader(row.body)}
		resp := &http.Response{StatusCode: row.status, Header: http.Header{}, Body: body, Request: req}
		for line := range strings.Lines(row.header) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			resp.Header.Set(name, value)
		}
		e := httperror.Of(resp)
		if e.Status != row.status || e.Kind != row.kind || e.Message != row.message || e.RetryAfter != row.after || !body.closed {
			t.Errorf("%d %.60s: %d %s %q, retry after %v, body closed: %v", row.status, row.body, e.Status, e.Kind, e.Message, e.RetryAfter, body.closed)
		}
	}
}

// TestHTTPErrorIsBounded has an error body that never ends.
func TestHTTPErrorIsBounded(t *testing.T) {
	body := &watchedBody{Reader: endless{}}
	e := httperror.Of(&http.Response{StatusCode: 500, Body: body})
	if body.read > 1<<20 || len(e.Message) > 5000 || !body.closed {
		t.Errorf("%d bytes read, a message of %d, body closed: %v", body.read, len(e.Message), body.closed)
	}
	broken := &watchedBody{Reader: io.MultiReader(strings.NewReader(`{"error":"half`), errorReader{})}
	if e := httperror.Of(&http.Response{StatusCode: 502, Body: broken}); e.Kind != model.KindUpstream || e.Message != `{"error":"half` {
		t.Errorf("an incomplete body: %v", e)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errors.New("reset") }

func TestBodyError(t *testing.T) {
	for body, want := range map[string]string{
		`{"choices":[]}`:                       "",
		`{"error":null}`:                       "",
		`null`:                                 "",
		`not JSON`:                             "",
		`{"error":{"message":"gone"}}`:         "model call: upstream: gone",
		`{"error":{"code":401,"message":"k"}}`: "model call: authentication: k",
		`{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}`: "model call: rate_limit: slow",
	} {
		got := ""
		if e := httperror.InBody(0, []byte(body)); e != nil {
			got = e.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	if e := httperror.BadAnswer("it has no end", []byte("  a\n b")); e.Error() != "model call: upstream: it has no end: a b" {
		t.Error(e)
	}
}
