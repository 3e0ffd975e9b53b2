package openai_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/rogpeppe/go-internal/txtar"
)

// A request is a model.Request, and the part of a Config that matters for it,
// in a test file. SERVER stands for the server's host.
type request struct {
	Allow       []string // members that the server knows beside OpenAI's
	NoStream    bool
	ConfigExtra map[string]json.RawMessage

	System      string
	Messages    []*message.Message
	Tools       []tool.Info
	Choice      model.ToolChoice
	MaxTokens   int
	Temperature *float64
	Output      *model.OutputSchema
	Extra       map[string]json.RawMessage
}

// TestRequests sends the requests in testdata/requests to a strict server and
// compares the bytes that it got. Where no request may be sent, "want" holds
// the error.
func TestRequests(t *testing.T) {
	files, err := filepath.Glob("testdata/requests/*.txtar")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := openaitest.Serve(openaitest.Always(openaitest.Text("ok")))
			defer s.Close()
			host := strings.TrimSuffix(strings.TrimPrefix(s.URL, "http://"), "/v1")
			r := decodeRequest(t, bytes.ReplaceAll(ar.Files[0].Data, []byte("SERVER"), []byte(host)))
			m := newModel(t, s.Allow(r.Allow...), openai.Config{NoStream: r.NoStream, Extra: r.ConfigExtra})
			_, _, err = model.Collect(m.Generate(t.Context(), &model.Request{System: r.System, Messages: r.Messages, Tools: r.Tools,
				Choice: r.Choice, MaxTokens: r.MaxTokens, Temperature: r.Temperature, Output: r.Output, Extra: r.Extra}))
			for _, fault := range s.Faults() {
				t.Error(fault)
			}
			got := "none sent: "
			if sent := s.Requests(); len(sent) > 0 {
				var b bytes.Buffer
				if err := json.Indent(&b, sent[0].Body, "", " "); err != nil {
					t.Fatal(err)
				}
				got = b.String() + "\n"
			} else if err != nil {
				got += err.Error() + "\n"
			}
			if *update {
				ar.Files = append(ar.Files[:1], txtar.File{Name: "want", Data: []byte(got)})
				if err := os.WriteFile(file, txtar.Format(ar), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if len(ar.Files) != 2 || got != string(ar.Files[1].Data) {
				t.Errorf("%s\n got:\n%s", ar.Comment, got)
			}
		})
	}
}

func decodeRequest(t *testing.T, data []byte) *request {
	r := new(request)
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(r); err != nil {
		t.Fatal(err)
	}
	return r
}
