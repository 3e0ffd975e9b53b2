package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

// readAnswer reads an answer from r, without a server, and yields its chunks.
func readAnswer(r io.Reader, responses bool, yield func(model.Chunk) bool) error {
	x := new(provider.Exchange)
	x.Start(context.Background(), provider.Limits{Header: time.Hour, Idle: time.Hour})
	defer x.Close()
	if err := x.Begin(&http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(r)}); err != nil {
		return err
	}
	a := answer{endpoint: "e", tools: &toolList{}, yield: func(c model.Chunk, _ error) bool { return yield(c) }}
	if responses {
		return read(x, &response{answer: a})
	}
	return read(x, &a)
}

// transcript formats the chunks of an answer, with adjacent deltas joined.
func transcript(r io.Reader, responses bool) string {
	var b strings.Builder
	last := ""
	err := readAnswer(r, responses, func(c model.Chunk) bool {
		what, text := "", ""
		switch c := c.(type) {
		case *model.TextDelta:
			what, text = "text", c.Text
		case *model.ThinkingDelta:
			what, text = "thinking", c.Text+string(c.Extra)
		case *model.ToolCallDelta:
			what, text = fmt.Sprint("call ", c.Index), c.ID+c.Name+c.Args+string(c.Extra)
		case *model.DataBlock:
			what, text = "data", fmt.Sprint(*c.Data)
		case *model.Finish:
			what, text = "finish", fmt.Sprint(*c)
		}
		if what != last {
			fmt.Fprintf(&b, "\n%s: ", what)
			last = what
		}
		b.WriteString(text)
		if !utf8.ValidString(text) {
			b.WriteString(" NOT UTF-8")
		}
		return true
	})
	fmt.Fprintf(&b, "\nerror: %v", err)
	return b.String()
}

// answers returns the answers in a folder of testdata, as fuzzing seeds.
func answers(t testing.TB, folder string) map[string][]byte {
	files, err := filepath.Glob("testdata/" + folder + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no answers")
	}
	all := map[string][]byte{}
	for _, f := range files {
		ar, err := txtar.ParseFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range ar.Files {
			if part.Name == "answer" {
				all[filepath.Base(f)] = part.Data
			}
		}
	}
	return all
}

// fuzzAnswers checks that reading any bytes does not panic, yields either a
// finish or an error, and does not depend on how the bytes are split into reads.
func fuzzAnswers(f *testing.F, folder string, responses bool) {
	for _, data := range answers(f, folder) {
		f.Add(data)
		f.Add(bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got := transcript(bytes.NewReader(data), responses)
		if slow := transcript(iotest.OneByteReader(bytes.NewReader(data)), responses); got != slow {
			t.Fatalf("at once:%s\nbyte by byte:%s", got, slow)
		}
		if strings.Contains(got, "NOT UTF-8") {
			t.Fatal(got)
		}
		if finished := strings.Contains(got, "\nfinish: "); finished != strings.HasSuffix(got, "error: <nil>") {
			t.Fatalf("finished is %v:%s", finished, got)
		}
	})
}

func FuzzAnswer(f *testing.F) { fuzzAnswers(f, "answers", false) }

func FuzzResponse(f *testing.F) { fuzzAnswers(f, "responses", true) }

// textStream returns a streamed answer of n deltas.
func textStream(n int, event func(i int) string) []byte {
	var b bytes.Buffer
	for i := range n {
		b.WriteString("data: " + event(i) + "\n\n")
	}
	b.WriteString(`data: {"id":"c","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n")
	return b.Bytes()
}

func plainEvent(i int) string {
	return fmt.Sprintf(`{"id":"chatcmpl-BKr6mF8w8gfJcVQFpQ4Q9Xw3k8Z7a","object":"chat.completion.chunk","created":1763718000,"model":"gpt-5-2026-08-07","service_tier":"default","system_fingerprint":"fp_50cad350e4","choices":[{"index":0,"delta":{"content":"token%d "},"logprobs":null,"finish_reason":null}],"usage":null}`, i%100)
}

func escapedEvent(i int) string {
	return strings.Replace(plainEvent(i), "token", `\n\"é `, 1)
}

func paddedEvent(i int) string {
	return strings.TrimSuffix(plainEvent(i), "}") + `,"obfuscation":"` + strings.Repeat("xY3", i%5) + `"}`
}

func argsEvent(i int) string {
	if i == 0 {
		return `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]},"finish_reason":null}]}`
	}
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"k%d\":1,"}}]},"finish_reason":null}]}`, i%100)
}

func reasoningEvent(i int) string {
	return strings.Replace(plainEvent(i), `"content"`, `"content":null,"reasoning_content"`, 1)
}

var countedStreams = []struct {
	name  string
	event func(int) string
}{{"text", plainEvent}, {"padded text", paddedEvent}, {"escapes", escapedEvent}, {"reasoning", reasoningEvent}, {"arguments", argsEvent}}

// endless is a stream without a newline.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestPendingLimit: an event that never becomes valid JSON fails at the limit.
func TestPendingLimit(t *testing.T) {
	for _, row := range []struct {
		size      int // of a line
		responses bool
	}{{100 << 10, false}, {100 << 10, true}, {1, true}} {
		line := "data: [\"" + strings.Repeat("x", row.size) + "\",\n"
		if got := transcript(io.MultiReader(strings.NewReader(strings.Repeat(line, 2000)), endless{}), row.responses); !strings.Contains(got, "not valid JSON") {
			t.Errorf("%+v: %s", row, got)
		}
	}
}

// TestStopAtEachChunk: a consumer that stops at any chunk gets no more.
func TestStopAtEachChunk(t *testing.T) {
	for folder, responses := range map[string]bool{"answers": false, "responses": true} {
		for name, data := range answers(t, folder) {
			total := 0
			_ = readAnswer(bytes.NewReader(data), responses, func(model.Chunk) bool { total++; return true })
			for stop := 1; stop <= total; stop++ {
				n := 0
				err := readAnswer(bytes.NewReader(data), responses, func(model.Chunk) bool { n++; return n < stop })
				if n != stop || !errors.Is(err, errStopped) {
					t.Fatalf("%s: stopped at %d, got %d (%v)", name, stop, n, err)
				}
			}
		}
	}
}
