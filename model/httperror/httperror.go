// Package httperror converts error responses of a server to a [model.Error], for authors of models. From its Kind
// callers learn whether to try again, to wait, or to shorten the conversation.
//
//	resp, err := client.Do(req)
//	…
//	if resp.StatusCode != http.StatusOK {
//		return httperror.Of(resp) // closes the body
//	}
package httperror

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/model"
)

const (
	maxErrorBody = 64 << 10 // bytes of a response that are read
	maxMessage   = 4 << 10  // bytes of a server's message that are kept
)

// Of converts a response whose status is not a success, and closes the body. The kind is derived from the
// body, if that has one of the forms in which servers report errors, and from the status. Of reads at most 64 KiB of
// the body and keeps 4 KiB of the server's message, in which it replaces credentials from the header of resp.Request.
// A message about an image gives [model.KindBadImage], even if the request had no image.
func Of(resp *http.Response) *model.Error {
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // after an error, what was read is still useful
	redactor := newRedactor(resp.Request)
	body = []byte(redactor.Replace(string(body))) // first, since a quotation may end within a key
	e := InBody(resp.StatusCode, body)
	if e == nil {
		text := quote(body)
		e = &model.Error{Status: resp.StatusCode, Kind: imageKind(statusKind(resp.StatusCode), text), Message: text}
	}
	if e.Message == "" {
		e.Message = http.StatusText(resp.StatusCode)
	}
	e.Message = redactor.Replace(e.Message) // again, since a key may have been escaped in the body's JSON
	e.RetryAfter = retryAfter(resp.Header)
	return e
}

// HideKeys replaces the credentials from the header of a request, which may be nil, in the message of an error that was
// not made by [Of], such as one in an answer with status 200.
func HideKeys(e *model.Error, req *http.Request) { e.Message = newRedactor(req).Replace(e.Message) }

// isSecretName reports whether the name of a header suggests that the value is a key.
func isSecretName(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"auth", "key", "token", "secret", "cookie"}, func(word string) bool { return strings.Contains(name, word) })
}

// newRedactor returns a Replacer for the keys in the header of a request.
func newRedactor(req *http.Request) *strings.Replacer {
	var pairs []string
	if req != nil {
		for _, name := range slices.Sorted(maps.Keys(req.Header)) { // of keys that begin alike the Replacer takes the first
			for _, value := range req.Header[name] {
				if _, key, ok := strings.Cut(value, " "); ok { // after a scheme such as Bearer
					value = key
				}
				if isSecretName(name) && len(value) >= 4 { // a shorter key is a placeholder, and may be part of a word
					pairs = append(pairs, value, "[redacted]")
				}
			}
		}
	}
	return strings.NewReplacer(pairs...)
}

// A fault is the error in a body. Code and Type are identifiers, which differ between servers; a Code that is a number
// is an HTTP status.
type fault struct {
	Message, Code, Type string
}

// InBody converts a body, or an event of a stream, that has one of the forms in which servers report errors. For any
// other body it returns nil. status is the response's HTTP status, 0 for a success or if it is unknown.
func InBody(status int, body []byte) *model.Error {
	f, ok := parseFault(body, 0)
	if !ok {
		return nil
	}
	e := &model.Error{Status: status, Message: short(f.Message, maxMessage)}
	if e.Message == "" {
		e.Message = quote(body)
	}
	if status == 0 { // to classify f: vLLM and Google use the HTTP status as the code
		status, _ = strconv.Atoi(f.Code)
	}
	e.Kind = imageKind(faultKind(status, f), f.Code+" "+f.Type+" "+e.Message)
	return e
}

// BadAnswer returns the Error for an answer that violates the server's protocol. Its message is problem and a quotation
// of the beginning of data, if data is not empty.
func BadAnswer(problem string, data []byte) *model.Error {
	if len(data) > 0 {
		problem += ": " + quote(data)
	}
	return &model.Error{Kind: model.KindUpstream, Message: problem}
}

// parseFault finds the fault in {"error":{…}}, {"error":"…"}, [{"error":…}], {"detail":…}, {"message":…} and
// {"errors":[…]}: the first is OpenAI's, the list Google's, detail FastAPI's. Of nested faults it returns the innermost,
// which a gateway has received from the model's server. Every level parses all deeper ones, so the depth is limited.
func parseFault(body []byte, depth int) (fault, bool) {
	if depth > 8 {
		return fault{}, false
	}
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		return parseFault(list[0], depth+1)
	}
	var text string
	if json.Unmarshal(body, &text) == nil && text != "" {
		return fault{Message: text}, true
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) != nil {
		return fault{}, false
	}
	for _, name := range []string{"error", "detail", "errors"} {
		f, ok := parseFault(object[name], depth+1)
		if !ok {
			continue
		}
		f.Code = cmp.Or(f.Code, textOf(object["code"]))
		f.Message = cmp.Or(f.Message, textOf(object["message"]))
		return f, true
	}
	f := fault{
		Message: cmp.Or(textOf(object["message"]), textOf(object["msg"])),
		Code:    textOf(object["code"]),
		Type:    cmp.Or(textOf(object["type"]), textOf(object["status"])), // Google's status: RESOURCE_EXHAUSTED
	}
	return f, f.Message != "" || f.Code != ""
}

// textOf returns a JSON string or number as text, empty for anything else.
func textOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String()
	}
	return ""
}

// faultKind classifies a fault. Code, type and message take precedence over the status, because gateways
// pass on an upstream's error with a status of their own. But 429 is always a rate limit: with this status, a
// message such as "reduce the length of the messages" is about tokens a minute.
func faultKind(status int, f fault) model.ErrorKind {
	codes := strings.ToLower(f.Code + " " + f.Type)
	has := func(s string) bool { return strings.Contains(codes, s) }
	switch {
	case status != http.StatusTooManyRequests && !has("rate_limit") && isTooLong(codes, strings.ToLower(f.Message)):
		return model.KindContextTooLong
	case has("rate_limit"), has("insufficient_quota"), has("resource_exhausted"), has("throttl"):
		return model.KindRateLimit
	case status != 0:
		return statusKind(status)
	case has("authentication"), has("invalid_api_key"), has("unauthenticated"):
		return model.KindAuthentication
	case has("permission"):
		return model.KindPermission
	case has("invalid_request"), has("invalid_argument"), has("invalid_prompt"):
		return model.KindInvalidRequest
	}
	return model.KindUpstream
}

// isTooLong recognizes the codes and messages with which servers say that the conversation is too long. A max_tokens
// that is too large is different: a shorter conversation does not help.
func isTooLong(codes, message string) bool {
	if strings.Contains(message, "max_tokens") && strings.Contains(message, "too large") {
		return false
	}
	for _, s := range []string{"context_length", "context_window", "exceed_context_size", "context_too_long", "request_too_large"} {
		if strings.Contains(codes, s) {
			return true
		}
	}
	for _, s := range []string{
		"maximum context length", "context length", "context window", "context size", "context_length_exceeded",
		"prompt is too long", "prompt too long", "input is too long", "too many tokens in", "input token count",
		"reduce the length of the messages", "exceeds the maximum number of tokens", "exceed max message tokens",
		"input length and", "maximum prompt length",
	} {
		if strings.Contains(message, s) {
			return true
		}
	}
	return false
}

// imageKind returns KindBadImage for an error whose text is about an image, and otherwise kind. Whether the request has
// an image is for the caller to check. Ollama and llama.cpp report an image that they cannot decode with status 500.
func imageKind(kind model.ErrorKind, text string) model.ErrorKind {
	text = strings.ToLower(text)
	has := func(s string) bool { return strings.Contains(text, s) }
	switch {
	case kind == model.KindInvalidRequest && has("image"),
		kind == model.KindUpstream && (has("image: unknown format") || has("failed to decode image") || has("failed to load image")):
		return model.KindBadImage
	}
	return kind
}

// statusKind classifies a status. 402 means no credit, 413 a proxy's limit on the size, 529 overload. After 408, 409 and
// 425 the same request may succeed later, as after a failure of the server.
func statusKind(status int) model.ErrorKind {
	switch {
	case status == http.StatusUnauthorized:
		return model.KindAuthentication
	case status == http.StatusForbidden:
		return model.KindPermission
	case status == http.StatusTooManyRequests, status == http.StatusPaymentRequired:
		return model.KindRateLimit
	case status == http.StatusRequestEntityTooLarge:
		return model.KindContextTooLong
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooEarly, status >= 500:
		return model.KindUpstream
	case status >= 400:
		return model.KindInvalidRequest
	}
	return model.KindUnknown
}

// retryAfter returns the wait in Retry-After, in seconds or as a date (RFC 9110, section 10.2.3), or in
// the more exact Retry-After-Ms, which Azure sends. It is 0 if there is none.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return seconds(ms / 1000)
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 { // not NaN either
		return seconds(s)
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	now := time.Now()
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent // relative to the server's clock, as ours may differ
	}
	return seconds(at.Sub(now).Seconds())
}

// seconds returns a duration of at most a day: a longer wait could overflow, or stop a program for good.
func seconds(s float64) time.Duration {
	const day = 24 * 60 * 60
	return time.Duration(max(0, min(s, day)) * float64(time.Second))
}

// quote returns the beginning of an unknown body, on one line and without HTML tags.
func quote(body []byte) string {
	const limit = 300 // bytes
	var b strings.Builder
	isHTML := bytes.HasPrefix(bytes.TrimSpace(body), []byte("<"))
	inTag := false
	end := ""
	for _, r := range strings.ToValidUTF8(string(body[:min(len(body), 4*limit)]), "") { // longer than limit, since tags are left out
		if b.Len() >= limit {
			end = "…"
			break
		}
		switch {
		case r == '<' && isHTML:
			inTag = true
		case r == '>' && inTag:
			inTag = false
			b.WriteByte(' ')
		case !inTag:
			b.WriteRune(r)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ") + end
}

// short returns s, or its first limit bytes and "…". It does not split a character.
func short(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}
