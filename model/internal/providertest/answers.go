// Package providertest has what the tests of the providers share.
package providertest

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
)

var update = flag.Bool("update", false, "write the results to testdata")

// Archives calls run for each txtar archive in dir, and compares the result with the archive's file "want". part returns a
// file of the archive, or "". Archives fails if dir has fewer than minFiles archives: some were lost.
func Archives(t *testing.T, dir string, minFiles int, run func(t *testing.T, part func(name string) string) string) {
	files, err := filepath.Glob(dir + "/*.txtar")
	if err != nil || len(files) < minFiles {
		t.Fatalf("%s has %d archives, want at least %d; error %v", dir, len(files), minFiles, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			index := func(name string) int {
				return slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == name })
			}
			part := func(name string) string {
				if i := index(name); i >= 0 {
					return string(archive.Files[i].Data)
				}
				return ""
			}
			got := run(t, part)
			if *update {
				if index("want") < 0 {
					archive.Files = append(archive.Files, txtar.File{Name: "want"})
				}
				archive.Files[index("want")].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if want := part("want"); got != want {
				t.Errorf("%s\n got:\n%s\nwant:\n%s", archive.Comment, got, want)
			}
		})
	}
}

// Answer returns an HTTP answer with the body, changed by the options, which have a line each: "status 429", "header
// Retry-After: 3", "crlf" (lines end in CRLF), "unterminated" (without the last newline). header has names and values in turn.
func Answer(t *testing.T, options, body string) (status int, newBody string, header []string) {
	status, header = http.StatusOK, []string{"Content-Type", "text/event-stream"}
	for line := range strings.Lines(options) {
		option, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch option {
		case "status":
			var err error
			if status, err = strconv.Atoi(arg); err != nil {
				t.Fatal(err)
			}
		case "header":
			name, value, _ := strings.Cut(arg, ": ")
			header = append(header, name, value)
		case "crlf":
			body = strings.ReplaceAll(body, "\n", "\r\n")
		case "unterminated":
			body = strings.TrimRight(body, "\r\n")
		default:
			t.Fatalf("unknown option %q", option)
		}
	}
	return status, body, header
}

// Render formats the answer to a request: a line for each block, then the finish or the error.
func Render(t *testing.T, msg *message.Message, fin *model.Finish, err error) string {
	var b strings.Builder
	for _, block := range msg.Blocks {
		if c, ok := block.(*message.ToolCall); ok && !json.Valid(c.Input) {
			fmt.Fprintf(&b, "tool_call %s %s with bad arguments %s\n", c.ID, c.Name, c.Input)
			continue
		}
		data := JSON(t, message.Blocks{block})
		fmt.Fprintf(&b, "%s\n", data[1:len(data)-1])
	}
	switch e, ok := errors.AsType[*model.Error](err); {
	case ok:
		fmt.Fprintf(&b, "error %s status=%d retry-after=%v retryable=%v: %s\n", e.Kind, e.Status, e.RetryAfter, e.Retryable(), e.Message)
	case err != nil:
		fmt.Fprintf(&b, "error %v\n", err)
	default:
		fmt.Fprintf(&b, "finish %s model=%q id=%q usage=%s\n", fin.Reason, fin.Model, fin.ID, JSON(t, fin.Usage))
	}
	return b.String()
}

// JSON returns the JSON of a value.
func JSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
