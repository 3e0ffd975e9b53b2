package openai_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write what came out into testdata")

// TestAnswers replays the answers in testdata/answers over HTTP. Each file says
// in prose what is odd about it, and holds the answer and what is made of it.
// Its options are lines: "status 429", "header Retry-After: 3", "crlf" (lines
// end in CRLF), "unterminated" (the last newline is missing).
func TestAnswers(t *testing.T) {
	files, err := filepath.Glob("testdata/answers/*.txtar")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			ar := txtar.Parse(data)
			part := func(name string) *txtar.File {
				for i := range ar.Files {
					if ar.Files[i].Name == name {
						return &ar.Files[i]
					}
				}
				return &txtar.File{}
			}
			turn := rawTurn(t, string(part("options").Data), string(part("answer").Data))
			s := openaitest.New(t, turn)
			msg, fin, err := model.Collect(newModel(t, s, openai.Config{}).Generate(t.Context(), &model.Request{
				Messages: []*message.Message{message.User("hi")}}))
			got := strings.ReplaceAll(render(t, msg, fin, err), strings.TrimSuffix(strings.TrimPrefix(s.URL, "http://"), "/v1"), "SERVER")
			want := part("want")
			if *update {
				if want.Name == "" {
					ar.Files = append(ar.Files, txtar.File{Name: "want"})
					want = part("want")
				}
				want.Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(ar), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if got != string(want.Data) {
				t.Errorf("%s\n got:\n%s\nwant:\n%s", ar.Comment, got, want.Data)
			}
		})
	}
}

func rawTurn(t *testing.T, options, body string) openaitest.Turn {
	status, header := http.StatusOK, []string{"Content-Type", "text/event-stream"}
	for line := range strings.Lines(options) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "status":
			var err error
			if status, err = strconv.Atoi(rest); err != nil {
				t.Fatal(err)
			}
		case "header":
			name, value, _ := strings.Cut(rest, ": ")
			header = append(header, name, value)
		case "crlf":
			body = strings.ReplaceAll(body, "\n", "\r\n")
		case "unterminated":
			body = strings.TrimRight(body, "\r\n")
		default:
			t.Fatalf("unknown option %q", word)
		}
	}
	return openaitest.Status(status, body, header...)
}

// render returns what came of an answer: a line for each block, then the finish
// or the error.
func render(t *testing.T, msg *message.Message, fin *model.Finish, err error) string {
	var b strings.Builder
	for _, block := range msg.Blocks {
		if c, ok := block.(*message.ToolCall); ok && !json.Valid(c.Input) {
			fmt.Fprintf(&b, "tool_call %s %s with bad arguments %s\n", c.ID, c.Name, c.Input)
			continue
		}
		data, err := json.Marshal(message.Blocks{block})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", data[1:len(data)-1])
	}
	switch e, ok := errors.AsType[*model.Error](err); {
	case ok:
		fmt.Fprintf(&b, "error %s status=%d retry-after=%v retryable=%v: %s\n", e.Kind, e.Status, e.RetryAfter, e.Retryable(), e.Message)
	case err != nil:
		fmt.Fprintf(&b, "error %v\n", err)
	default:
		data, err := json.Marshal(fin.Usage)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "finish %s model=%q id=%q usage=%s\n", fin.Reason, fin.Model, fin.ID, data)
	}
	return b.String()
}
