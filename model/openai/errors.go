package openai

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// This file makes a model.Error of whatever a server says in place of an answer. What
// callers branch on is the kind: whether to try again, to wait, or to shorten the
// conversation.

// badAnswer is the error for a server that answered nonsense. Another try may help.
func badAnswer(text string) error {
	return &model.Error{Kind: model.KindUpstream, Message: text}
}

// statusError makes the error of an HTTP answer that is none: what the body says, and, of
// a body that says nothing, what the status does.
func statusError(status int, header http.Header, body []byte) *model.Error {
	e := bodyError(status, body)
	if e == nil {
		text := errorText(body)
		e = &model.Error{Status: status, Kind: imageKind(statusKind(status), text), Message: text}
	}
	if e.Message == "" {
		e.Message = http.StatusText(status)
	}
	e.RetryAfter = retryAfter(header)
	return e
}

// A fault is what servers say about an error. Code and Type are words; where the code is a
// number, it is a status.
type fault struct {
	Message, Code, Type string
}

// bodyError makes an error of a body, or a frame of a stream, that describes
// one; nil if it does not. The status is 0 in a stream.
func bodyError(status int, body []byte) *model.Error {
	f, ok := parseFault(body)
	if !ok {
		return nil
	}
	e := &model.Error{Status: status, Message: f.Message}
	if e.Message == "" {
		e.Message = errorText(body)
	}
	if status == 0 { // vLLM and Google give that of the HTTP answer as the code
		status, _ = strconv.Atoi(f.Code)
	}
	e.Kind = imageKind(faultKind(status, f), f.Code+" "+f.Type+" "+e.Message)
	return e
}

// parseFault finds the fault in {"error":{…}}, {"error":"…"}, [{"error":…}],
// {"detail":…}, {"message":…} and {"errors":[…]}: the first is OpenAI's, the list Google's,
// detail FastAPI's. It looks inside first, where the words of the upstream are.
func parseFault(body []byte) (fault, bool) {
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		return parseFault(list[0])
	}
	var text string
	if json.Unmarshal(body, &text) == nil && text != "" {
		return fault{Message: text}, true
	}
	var o map[string]json.RawMessage
	if json.Unmarshal(body, &o) != nil {
		return fault{}, false
	}
	for _, name := range []string{"error", "detail", "errors"} {
		raw, ok := o[name]
		if !ok || string(raw) == "null" {
			continue
		}
		f, ok := parseFault(raw)
		if !ok {
			continue
		}
		if f.Code == "" {
			f.Code = word(o["code"])
		}
		if f.Message == "" {
			f.Message = word(o["message"])
		}
		return f, true
	}
	f := fault{Message: word(o["message"]), Code: word(o["code"]), Type: word(o["type"])}
	if f.Message == "" {
		f.Message = word(o["msg"])
	}
	if f.Type == "" {
		f.Type = word(o["status"]) // Google's: RESOURCE_EXHAUSTED
	}
	return f, f.Message != "" || f.Code != ""
}

// word returns a string or a number as text, empty for anything else.
func word(raw json.RawMessage) string {
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

// faultKind classifies a fault. Words come before the status, because gateways
// pass on an upstream's words under a status of their own; but 429 always is a
// rate limit: "reduce the length" then means tokens a minute.
func faultKind(status int, f fault) model.ErrorKind {
	words := strings.ToLower(f.Code + " " + f.Type)
	has := func(s string) bool { return strings.Contains(words, s) }
	switch {
	case status != http.StatusTooManyRequests && !has("rate_limit") && isTooLong(words, strings.ToLower(f.Message)):
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

// isTooLong knows the ways in which servers say that the conversation does not
// fit. Too large a max_tokens is another thing: a shorter conversation does not
// help.
func isTooLong(words, message string) bool {
	if strings.Contains(message, "max_tokens") && strings.Contains(message, "too large") {
		return false
	}
	for _, s := range []string{"context_length", "context_window", "exceed_context_size", "context_too_long", "request_too_large"} {
		if strings.Contains(words, s) {
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

// imageKind returns the kind of an error whose words are of an image: the request was refused because
// of it. Whether the request had one is for holdsImage to say. Ollama and llama.cpp give the status
// 500 to an image that they cannot decode.
func imageKind(kind model.ErrorKind, words string) model.ErrorKind {
	words = strings.ToLower(words)
	has := func(s string) bool { return strings.Contains(words, s) }
	switch {
	case kind == model.KindInvalidRequest && has("image"),
		kind == model.KindUpstream && (has("image: unknown format") || has("failed to decode image") || has("failed to load image")):
		return model.KindBadImage
	}
	return kind
}

// holdsImage reports whether there is an image in messages or in the results in them.
func holdsImage(messages []*message.Message) bool {
	var in func(message.Blocks) bool
	in = func(blocks message.Blocks) bool {
		return slices.ContainsFunc(blocks, func(b message.Block) bool {
			switch b := b.(type) {
			case *message.Data:
				return strings.HasPrefix(b.MediaType, "image/")
			case *message.ToolResult:
				return in(b.Blocks)
			}
			return false
		})
	}
	return slices.ContainsFunc(messages, func(m *message.Message) bool { return in(m.Blocks) })
}

// statusKind classifies a status alone. 402 is the lack of credit, 413 a
// proxy's limit on the size, 529 and the like are overload.
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

// retryAfter reads Retry-After, in seconds or as a date (RFC 9110, section 10.2.3), and
// the more exact Retry-After-Ms, which Azure sends. It is 0 if there is none.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return seconds(ms / 1000)
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		return seconds(s)
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	now := time.Now()
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent // by the server's clock, whatever ours says
	}
	return max(0, at.Sub(now))
}

// seconds returns a duration, of at most a day whatever a server asks for: more would
// overflow, or stop a program for good.
func seconds(s float64) time.Duration {
	const day = 24 * 60 * 60
	return time.Duration(max(0, min(s, day)) * float64(time.Second))
}

// errorText returns the beginning of a body that is not understood, on one
// line and without a page's tags.
func errorText(body []byte) string {
	const most = 300
	var b strings.Builder
	page := bytes.HasPrefix(bytes.TrimSpace(body), []byte("<"))
	tag := false
	for _, r := range strings.ToValidUTF8(string(body[:min(len(body), 4*most)]), "") {
		switch {
		case b.Len() >= most:
			return strings.TrimSpace(b.String()) + "…"
		case r == '<' && page:
			tag = true
		case r == '>' && tag:
			tag = false
			b.WriteByte(' ')
		case !tag:
			b.WriteRune(r)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
