// Command mock plays a model: it is an endpoint of chat completions and of the Responses API that streams answers
// according to a script. It prints its address and stops when its standard input is closed.
//
// The script is the model's name, such as bench.r20.c8.t10.p40: 20 answers with 8 calls of the tool "add"
// each, then an answer of 10 tokens with a pause of 40 milliseconds after the first. The tool results in the request determine the position of a conversation in the script.
// Answers are rendered once, so a request costs little more than reading it and writing the answer.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type script struct{ steps, calls, tokens, pause int }

func parse(name string) (s script, err error) {
	_, err = fmt.Sscanf(name, "bench.r%d.c%d.t%d.p%d", &s.steps, &s.calls, &s.tokens, &s.pause)
	if err == nil && s.calls < 1 {
		err = fmt.Errorf("the script has %d calls; it must have at least one", s.calls)
	}
	return s, err
}

// appendEvent appends a piece of an answer, in the form of OpenAI's servers.
func appendEvent(b []byte, delta, finish string) []byte {
	return fmt.Appendf(b, `data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1780000000,"model":"bench",`+
		`"service_tier":"default","system_fingerprint":"fp_0123456789","choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}]}`+"\n\n",
		delta, finish)
}

const end = `data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1780000000,"model":"bench",` +
	`"service_tier":"default","system_fingerprint":"fp_0123456789","choices":[],"usage":{"prompt_tokens":120,"completion_tokens":30,"total_tokens":150,` +
	`"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}` + "\n\ndata: [DONE]\n\n"

// toolCalls returns the answer of a step. Each call has three pieces.
func (s script) toolCalls(step int) []byte {
	b := appendEvent(nil, `{"role":"assistant","content":null}`, "null")
	for i := range s.calls {
		b = appendEvent(b, fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":"call_%d_%d","type":"function","function":{"name":"add","arguments":""}}]}`, i, step, i), "null")
		b = appendEvent(b, fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":"{\"a\":%d,"}}]}`, i, step), "null")
		b = appendEvent(b, fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":"\"b\":%d}"}}]}`, i, i), "null")
	}
	return append(appendEvent(b, `{}`, `"tool_calls"`), end...)
}

// text returns the last answer, split at the pause.
func (s script) text() [][]byte {
	var rest []byte
	first := appendEvent(nil, `{"role":"assistant","content":""}`, "null")
	one := appendEvent(nil, `{"content":" tok"}`, "null")
	for i := range s.tokens {
		if i == 0 {
			first = append(first, one...)
		} else {
			rest = append(rest, one...)
		}
	}
	rest = append(appendEvent(rest, `{}`, `"stop"`), end...)
	if s.pause == 0 {
		return [][]byte{append(first, rest...)}
	}
	return [][]byte{first, rest}
}

// whole returns the answer of a step, or the last answer, without streaming.
func (s script) whole(step int) []byte {
	message, finish := `"content":"`+strings.Repeat(" tok", s.tokens)+`"`, "stop"
	if step < s.steps {
		var calls []string
		for i := range s.calls {
			calls = append(calls, fmt.Sprintf(`{"id":"call_%d_%d","type":"function","function":{"name":"add","arguments":"{\"a\":%d,\"b\":%d}"}}`, step, i, step, i))
		}
		message, finish = `"content":null,"tool_calls":[`+strings.Join(calls, ",")+`]`, "tool_calls"
	}
	return fmt.Appendf(nil, `{"id":"chatcmpl-bench","object":"chat.completion","created":1780000000,"model":"bench","choices":[{"index":0,`+
		`"message":{"role":"assistant",%s,"refusal":null},"logprobs":null,"finish_reason":%q}],`+
		`"usage":{"prompt_tokens":120,"completion_tokens":30,"total_tokens":150}}`, message, finish)
}

// A position is where a conversation is in its script.
type position struct {
	script
	step  int
	whole bool // the answer is not streamed

	byResponses bool // the request is for the Responses API
}

// An answer has the parts of a response, and the wait between them.
type answer struct {
	parts [][]byte
	wait  time.Duration
}

type server struct {
	answers         sync.Map // position → answer
	requests, bytes atomic.Int64
	bodies          sync.Pool
}

func (srv *server) answer(p position) answer {
	if a, ok := srv.answers.Load(p); ok {
		return a.(answer)
	}
	var a answer
	switch {
	case p.byResponses:
		a.parts = [][]byte{p.script.responses(p.step)}
	case p.whole:
		a.parts = [][]byte{p.script.whole(p.step)}
	case p.step < p.steps:
		a.parts = [][]byte{p.toolCalls(p.step)}
	default:
		a = answer{p.text(), time.Duration(p.pause) * time.Millisecond}
	}
	srv.answers.Store(p, a)
	return a
}

// find returns the position of a request's conversation in its script.
func find(body []byte) (p position, err error) {
	_, name, _ := bytes.Cut(body, []byte(`"bench.`))
	name, _, ok := bytes.Cut(name, []byte(`"`))
	if !ok {
		return p, fmt.Errorf("the request has no model whose name begins with bench")
	}
	if p.script, err = parse("bench." + string(name)); err != nil {
		return p, err
	}
	p.whole = !bytes.Contains(body, []byte(`"stream":true`))
	results := bytes.Count(body, []byte(`"role":"tool"`)) + bytes.Count(body, []byte(`"type":"function_call_output"`))
	p.step = results / p.calls
	return p, nil
}

func (srv *server) chat(w http.ResponseWriter, r *http.Request) {
	body := srv.bodies.Get().(*bytes.Buffer)
	defer srv.bodies.Put(body)
	body.Reset()
	if _, err := body.ReadFrom(r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p, err := find(body.Bytes())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.byResponses = strings.HasSuffix(r.URL.Path, "/responses")
	srv.requests.Add(1)
	srv.bytes.Add(int64(body.Len()))
	a := srv.answer(p)
	w.Header().Set("Content-Type", "text/event-stream")
	if p.whole {
		w.Header().Set("Content-Type", "application/json")
	}
	for i, part := range a.parts {
		if i > 0 {
			_ = http.NewResponseController(w).Flush()
			time.Sleep(a.wait)
		}
		_, _ = w.Write(part) // ignore clients that have disconnected
	}
}

func (srv *server) count(w http.ResponseWriter, _ *http.Request) {
	_ = json.NewEncoder(w).Encode(map[string]int64{"requests": srv.requests.Load(), "bytes": srv.bytes.Load()})
}

func main() {
	srv := &server{bodies: sync.Pool{New: func() any { return new(bytes.Buffer) }}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", srv.chat)
	mux.HandleFunc("POST /v1/responses", srv.chat)
	mux.HandleFunc("GET /count", srv.count)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	log.Fatal(http.Serve(l, mux))
}
