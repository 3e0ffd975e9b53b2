package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"github.com/rogpeppe/go-internal/diff"
)

// maxDiff is how many bytes of text, old and new together, are compared. The comparison cannot be interrupted, and no
// one would read a longer diff.
const maxDiff = 4 << 20

// A change is what Write or Edit will do to a file.
type change struct {
	file     permission.File
	path     string // absolute, for messages
	old, new []byte
	exists   bool
	replaced int    // number of replacements, for the result; 1 for Write
	answer   string // the text for the model
}

// readCurrent reads the file to change, and checks that the session has read its current content.
func (c *Config) readCurrent(ctx context.Context, file permission.File, name string) (data []byte, exists bool, err error) {
	f, info, err := c.openFile(ctx, file, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, err
	}
	defer f.Close()
	if data, err = readAll(f, info, name, maxEditable); err != nil {
		return nil, false, err
	}
	if toolstate.From(ctx) == nil {
		return data, true, nil
	}
	switch hash, err := recordedHash(ctx, file); {
	case err != nil:
		return nil, false, err
	case hash == "":
		return nil, false, fmt.Errorf("%s exists and was not read in this session; read it with Read, then repeat the call", name)
	case hash != contentHash(data):
		return nil, false, fmt.Errorf("%s has changed since it was read; read it again with Read, then repeat the call", name)
	}
	return data, true, nil
}

// preview returns the change that plan returns as a unified diff, for [tool.Previewer]. Without a [toolstate.State]
// it drops the error of plan, which could reveal the content of a file that the model has not read.
func preview(ctx context.Context, plan func() (*change, error)) (string, error) {
	ch, err := plan()
	switch {
	case err == nil:
		return ch.diff(), nil
	case toolstate.From(ctx) == nil:
		return "", nil
	}
	return "", err
}

// apply makes the change that plan returns, records the new content as read, and yields the result.
func (c *Config) apply(ctx context.Context, plan func() (*change, error)) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		ch, err := plan()
		if err == nil {
			err = c.Backend.Write(ctx, ch.file, ch.new)
		}
		if err == nil && toolstate.From(ctx) != nil {
			err = recordHash(ctx, ch.file, contentHash(ch.new))
		}
		if err != nil {
			yield(tool.Chunk{}, err)
			return
		}
		diff := ch.diff()
		answer := tool.Text(ch.answer)
		answer.Meta = map[string]json.RawMessage{
			"diff": encode(diff), "file_path": encode(ch.path), "occurrences": encode(ch.replaced)}
		if yield(answer, nil) && diff != "" {
			yield(tool.Chunk{Block: &message.Text{Text: diff}, ForUser: true}, nil)
		}
	}
}

// encode returns v as JSON. v has only strings, numbers and booleans, which always encode.
func encode(v any) json.RawMessage {
	raw, _ := json.Marshal(v)
	return raw
}

// diff returns the change as a unified diff, empty if nothing changes.
func (ch *change) diff() string {
	if len(ch.old)+len(ch.new) > maxDiff {
		return fmt.Sprintf("(%s: %d bytes before, %d after; too large for a diff)\n", ch.path, len(ch.old), len(ch.new))
	}
	name := ch.path
	if strings.ContainsAny(name, "\r\n") {
		name = strconv.Quote(name) // a name with a line break could imitate lines of the diff
	}
	oldName := "/dev/null"
	if ch.exists {
		oldName = "a" + name
	}
	text := diff.Diff(oldName, ch.old, "b"+name, ch.new)
	_, text, _ = bytes.Cut(text, []byte("\n")) // drop the line "diff a b"
	return string(bytes.ToValidUTF8(text, []byte("\uFFFD")))
}
