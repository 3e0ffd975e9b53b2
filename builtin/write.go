package builtin

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/kitbag-go/kitbag/tool"
)

//go:embed text/write.md
var writeText string

type writeIn struct {
	FilePath string `json:"file_path" jsonschema:"minLength=1" jsonschema_description:"path of the file"`
	Content  string `json:"content" jsonschema_description:"the whole content of the file"`
}

type write struct {
	tool.Tool
	judge // implements [tool.Judge]
}

// Write returns the tool that creates files and replaces their content.
func Write(c Config) (tool.Tool, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	w := &write{judge: judge{Config: c, tool: "Write", access: writesFile, path: filePath}}
	w.Tool, err = tool.NewStream("Write", writeText, func(ctx context.Context, in writeIn) iter.Seq2[tool.Chunk, error] {
		return w.apply(ctx, func() (*change, error) { return w.plan(ctx, in) })
	})
	return w, err
}

// plan returns the change that a call makes, without making it.
func (w *write) plan(ctx context.Context, in writeIn) (*change, error) {
	file, name := w.target(ctx, in.FilePath), w.place(nil).Abs(in.FilePath) // nil: Abs uses no policy
	old, exists, err := w.readCurrent(ctx, file, name)
	if err != nil {
		return nil, err
	}
	// Keep the line ends and byte order mark of the old content, which Read does not show to the model.
	text := in.Content
	if exists && strings.HasPrefix(string(old), bom) && !strings.HasPrefix(text, bom) {
		text = bom + text
	}
	if exists && allCRLF(old) && !strings.Contains(text, "\r") {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	lines := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		lines++
	}
	verb := "Created"
	if exists {
		verb = "Replaced the content of"
	}
	return &change{file: file, path: name, old: old, new: []byte(text), exists: exists, replaced: 1,
		answer: fmt.Sprintf("%s %s (%s).", verb, name, plural(lines, "line"))}, nil
}

// Preview implements [tool.Previewer].
func (w *write) Preview(ctx context.Context, input json.RawMessage) (string, error) {
	in, err := unmarshal[writeIn](input)
	if err != nil {
		return "", err
	}
	return preview(ctx, func() (*change, error) { return w.plan(ctx, in) })
}

const bom = "\uFEFF" // byte order mark

// allCRLF reports whether data has line ends and all are CRLF.
func allCRLF(data []byte) bool {
	n := bytes.Count(data, []byte("\r\n"))
	return n > 0 && n == bytes.Count(data, []byte("\n"))
}
