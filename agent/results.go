package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/tool"
)

// Results stores the full text of tool results that are too long for the model; see [Window]. It must be
// safe for concurrent use.
type Results interface {
	Put(ctx context.Context, call, text string) error
	Get(ctx context.Context, call string) (string, error)
}

// ResultDir stores each result in a file of a directory, which is created on the first use and readable
// only by its owner. Neither the directory nor a file in it may be a symbolic link: other users may be able
// to write near it, and the model's reads there need no approval.
type ResultDir string

// open opens the directory, which fails if it is a link, and returns the name of a call's file in it. The
// id of the call comes from a model.
func (d ResultDir) open(call string) (dir *os.Root, name string, err error) {
	name = url.PathEscape(call) + ".txt"
	if call == "" || name[0] == '.' || len(name) > 200 {
		return nil, "", fmt.Errorf("%.60q cannot be the id of a result", call)
	}
	path := filepath.Clean(string(d))
	before, err := os.Lstat(path)
	if err != nil {
		return nil, "", err
	}
	if !before.IsDir() {
		return nil, "", fmt.Errorf("results cannot be stored in %s, which is not a directory; remove it", path)
	}
	if dir, err = os.OpenRoot(path); err != nil {
		return nil, "", err
	}
	if after, err := dir.Stat("."); err != nil || !os.SameFile(before, after) {
		return nil, "", errors.Join(fmt.Errorf("%s was replaced while it was opened", path), err, dir.Close())
	}
	return dir, name, nil
}

// Put writes the file. A call that runs again after a crash replaces its earlier file.
func (d ResultDir) Put(_ context.Context, call, text string) error {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	dir, name, err := d.open(call)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// Get reads the file. The error for an unknown id is written for the model, which may have invented the id.
func (d ResultDir) Get(_ context.Context, call string) (string, error) {
	text, err := d.read(call)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no stored result %q; a note in each cut result contains its id", call)
	}
	return text, err
}

func (d ResultDir) read(call string) (string, error) {
	dir, name, err := d.open(call)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	info, err := dir.Lstat(name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("the stored result %s is not a regular file, so kitbag did not write it; remove it", name)
	}
	data, err := dir.ReadFile(name) // os.Root: even if the file is replaced by a link now, nothing outside of the directory is read
	return string(data), err
}

// readLimit is how much one call of read_result returns, in bytes.
const readLimit = 20_000

// noteRoom is the space in bytes for the note at the end of what read_result returns; a note with a very long
// expression is longer.
const noteRoom = 300

type readLimitKey struct{}

// withReadLimit makes read_result return less than the maximum size of a result: otherwise its own results
// would be cut, and stored under another id.
func withReadLimit(ctx context.Context, maxResult int) context.Context {
	if maxResult < 0 || maxResult >= readLimit+noteRoom {
		return ctx
	}
	return context.WithValue(ctx, readLimitKey{}, max(maxResult-noteRoom, maxResult/2, 1)) // at least half, however small
}

// ReadResult returns the tool with which a model reads the results that were stored in full: by lines, with a regular
// expression, or a part of JSON. Put it into the toolkit's basic group, and set the same store in [Window].
//
// It is a control tool: it needs no approval, because an allowed tool has already returned the same text.
func ReadResult(store Results) (tool.Tool, error) {
	return tool.New("read_result", "Reads from a tool result that was too long and was cut.",
		func(ctx context.Context, in window.Read) (string, error) {
			text, err := store.Get(ctx, in.Call)
			if err != nil {
				return "", err
			}
			if in.Path != "" {
				if text, err = selectJSON(text, in.Path); err != nil {
					return "", err
				}
			}
			if text, err = pickLines(text, in.Lines, in.Grep); err != nil {
				return "", err
			}
			limit, ok := ctx.Value(readLimitKey{}).(int)
			if !ok {
				limit = readLimit
			}
			return window.Page(text, limit, in)
		}, tool.Options{ReadOnly: true, Parallel: true, Control: true})
}

// pickLines returns the lines in a range that match an expression. Either may be empty. The lines of a search are
// numbered, so that the model can ask for the lines around them; in a range it knows the numbers.
func pickLines(text, lines, grep string) (string, error) {
	if lines == "" && grep == "" {
		return text, nil
	}
	all := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	from, to := 1, len(all)
	if lines != "" {
		var err error
		if from, to, err = lineRange(lines, len(all)); err != nil {
			return "", err
		}
	}
	re, err := regexp.Compile(grep)
	if err != nil {
		return "", fmt.Errorf("grep %q is not a valid regular expression: %w; write a backslash before a character that stands for itself, as in \\(", grep, err)
	}
	var b strings.Builder
	for i := from; i <= to; i++ {
		switch line := all[i-1]; {
		case grep == "":
			fmt.Fprintln(&b, line)
		case re.MatchString(line):
			fmt.Fprintf(&b, "%d: %s\n", i, line)
		}
	}
	if b.Len() == 0 {
		return fmt.Sprintf("(no line of %d-%d matches %s; try another expression)", from, to, grep), nil
	}
	return b.String(), nil
}

// lineRange parses "FROM-TO" or "N", for a text of n lines. A range that ends too late is shortened and not
// refused: the model learns the number of lines only from errors.
func lineRange(s string, n int) (from, to int, err error) {
	a, b, isRange := strings.Cut(s, "-")
	if !isRange {
		b = a
	}
	from, errA := strconv.Atoi(strings.TrimSpace(a))
	to, errB := strconv.Atoi(strings.TrimSpace(b))
	if errA != nil || errB != nil || from < 1 || to < from || from > n {
		return 0, 0, fmt.Errorf("lines %q: write FROM-TO; the result has %d lines", s, n)
	}
	return from, min(to, n), nil
}

// selectJSON returns the part of a JSON text that an RFC 6901 pointer selects. It is indented by one space, so
// that lines and grep work on it too.
func selectJSON(text, path string) (string, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber() // so that numbers stay unchanged
	var v any
	if err := dec.Decode(&v); err != nil {
		return "", fmt.Errorf("path: the result is not valid JSON: %w; use lines or grep", err)
	}
	if !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("path %q: a JSON Pointer begins with /", path)
	}
	done := ""
	for _, part := range strings.Split(path, "/")[1:] {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part) // in one pass: "~01" is "~1"
		next, ok := any(nil), false
		switch at := v.(type) {
		case map[string]any:
			next, ok = at[part]
		case []any:
			if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(at) && part == strconv.Itoa(i) {
				next, ok = at[i], true
			}
		}
		if !ok {
			return "", fmt.Errorf("path %q: there is no %q below %q, which is %s", path, part, done, kindOfJSON(v))
		}
		v = next
		done += "/" + part
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // the model searches for the text that it has seen
	enc.SetIndent("", " ")
	err := enc.Encode(v)
	return out.String(), err
}

// kindOfJSON describes a decoded value: what can be below it.
func kindOfJSON(v any) string {
	switch at := v.(type) {
	case map[string]any:
		const maxNames = 20
		names := slices.Sorted(maps.Keys(at))
		if len(names) > maxNames {
			names = append(names[:maxNames], "…")
		}
		return "an object with the members " + strings.Join(names, ", ")
	case []any:
		return fmt.Sprintf("a list of %d", len(at))
	}
	return "neither an object nor a list; use lines or grep"
}

func newToolResult(c *openCall) *event.ToolResult {
	return &event.ToolResult{Call: c.ID, Name: c.Tool, Outcome: c.Result.Outcome, Text: c.Result.Text(), Result: c.Result}
}
