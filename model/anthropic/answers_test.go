package anthropic_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/anthropic/anthropictest"
)

var update = flag.Bool("update", false, "write what came out into testdata")

// TestAnswers replays the answers in testdata/answers over HTTP. Each file says
// in prose what is odd about it, and holds the answer and what is made of it.
// Its options are lines: "status 429", "header Retry-After: 3", "crlf" (lines
// end in CRLF), "unterminated" (the last newline is missing).
func TestAnswers(t *testing.T) {
	testArchives(t, "testdata/answers", 80, func(t *testing.T, part func(string) string) string {
		s := anthropictest.New(t, rawTurn(t, part("options"), part("answer")))
		msg, fin, err := model.Collect(newModel(t, s, anthropic.Config{}).Generate(t.Context(), hi))
		return strings.ReplaceAll(render(t, msg, fin, err), strings.TrimPrefix(s.URL, "http://"), "SERVER")
	})
}

// testArchives runs each of the archives in a folder, at least so many, and
// compares what comes of its parts with the part "want".
func testArchives(t *testing.T, dir string, least int, run func(t *testing.T, part func(string) string) string) {
	files, err := filepath.Glob(dir + "/*.txtar")
	if err != nil || len(files) < least {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			find := func(name string) int {
				return slices.IndexFunc(ar.Files, func(f txtar.File) bool { return f.Name == name })
			}
			part := func(name string) string {
				if i := find(name); i >= 0 {
					return string(ar.Files[i].Data)
				}
				return ""
			}
			got := run(t, part)
			if *update {
				if find("want") < 0 {
					ar.Files = append(ar.Files, txtar.File{Name: "want"})
				}
				ar.Files[find("want")].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(ar), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if want := part("want"); got != want {
				t.Errorf("%s\n got:\n%s\nwant:\n%s", ar.Comment, got, want)
			}
		})
	}
}

func rawTurn(t *testing.T, options, body string) anthropictest.Turn {
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
	return anthropictest.Status(status, body, header...)
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
