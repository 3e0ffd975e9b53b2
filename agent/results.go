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

	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/tool"
)

// Results stores the full text of tool results that are too long for the model; see [Window]. call is the id of the
// call, as the model gave it. Results must be safe for concurrent use.
type Results interface {
	// Put stores a text, in place of any earlier text of the call.
	Put(ctx context.Context, call, text string) error
	// Get returns the text. The model reads the error, for example for an id that it has invented.
	Get(ctx context.Context, call string) (string, error)
}

// ResultDir is the path of a directory that stores each result in a file. The directory is created on the first use,
// readable only by its owner. Neither the directory nor a file in it may be a symbolic link, which another user may have
// made: the model reads the files without approval.
type ResultDir string

// open opens the directory, and returns the name of a call's file in it.
func (d ResultDir) open(call string) (dir *os.Root, name string, err error) {
	name = url.PathEscape(call) + ".txt"
	if call == "" || name[0] == '.' || len(name) > 200 { // file systems allow about 255 bytes
		return nil, "", fmt.Errorf("%.60q cannot be the id of a result: it is empty, too long or begins with a dot", call)
	}
	path := filepath.Clean(string(d))
	before, err := os.Lstat(path)
	if err != nil {
		return nil, "", err
	}
	if !before.IsDir() {
		return nil, "", fmt.Errorf("cannot store results in %s: it is not a directory; remove it", path)
	}
	if dir, err = os.OpenRoot(path); err != nil {
		return nil, "", err
	}
	if after, err := dir.Stat("."); err != nil || !os.SameFile(before, after) {
		return nil, "", errors.Join(fmt.Errorf("%s was replaced while it was opened", path), err, dir.Close())
	}
	return dir, name, nil
}

// Put writes a new file, which replaces the one from before a crash if the call runs again.
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

// Get reads the file.
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
	data, err := dir.ReadFile(name) // if a link replaces the file now, os.Root still reads nothing outside of the directory
	return string(data), err
}

// readLimit is the maximum text, in bytes, that a call of read_result returns before its note on how to read on.
const readLimit = 20_000

// noteSize is the usual maximum length in bytes of that note. A note with a long grep or path is longer.
const noteSize = 300

type readLimitKey struct{}

// withReadLimit makes read_result return at most maxResult bytes with its note, if possible: otherwise the result of
// read_result would be cut, too. A negative maxResult is no limit.
func withReadLimit(ctx context.Context, maxResult int) context.Context {
	if maxResult < 0 || maxResult >= readLimit+noteSize {
		return ctx
	}
	limit := max(maxResult-noteSize, maxResult/2, 1) // for a very small maxResult the note does not fit
	return context.WithValue(ctx, readLimitKey{}, limit)
}

// ReadResult returns the tool read_result, with which a model reads stored results: by lines, with a regular
// expression, or a part of JSON. Put the tool into the toolkit's basic group, and set the same store in [Window].
//
// read_result is a control tool: it needs no approval, because an allowed tool has already returned the text.
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

// pickLines returns the lines in the range lines that match the regular expression grep; an empty lines or grep selects
// all. With grep the lines are numbered, so that the model can ask for the lines around them.
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

// lineRange parses "FROM-TO" or "N", for a text of n lines. TO may be greater than n, since the model does not know n.
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

// selectJSON returns the part of a JSON text that the RFC 6901 pointer path selects, one value a line, so that lines and
// grep work on it too.
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
	parent := "" // the path to v
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
			return "", fmt.Errorf("path %q: there is no %q below %q, which is %s", path, part, parent, kindOfJSON(v))
		}
		v = next
		parent += "/" + part
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // grep must find the text as it is in the result
	enc.SetIndent("", " ")
	err := enc.Encode(v)
	return out.String(), err
}

// kindOfJSON says, for an error, whether a decoded value is an object or a list, and what it contains.
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
