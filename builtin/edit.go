package builtin

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/tool"
)

//go:embed text/edit.md
var editText string

type editIn struct {
	FilePath string `json:"file_path" jsonschema:"minLength=1" jsonschema_description:"path of the file"`
	replacement
	Edits []replacement `json:"edits,omitempty" jsonschema:"maxItems=100" jsonschema_description:"several replacements, made in order, all or none"`
}

type replacement struct {
	Old string `json:"old_string,omitempty" jsonschema_description:"the text to replace, exactly as it is in the file"`
	New string `json:"new_string,omitempty" jsonschema_description:"the text to put in its place"`
	All bool   `json:"replace_all,omitempty" jsonschema:"default=false" jsonschema_description:"replace every occurrence"`
}

type edit struct {
	tool.Tool
	judge // implements [tool.Judge]
}

// Edit returns the tool that replaces text in files. It changes only the bytes that it replaces.
func Edit(c Config) (tool.Tool, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	e := &edit{judge: judge{Config: c, tool: "Edit", access: writesFile, path: filePath}}
	e.Tool, err = tool.NewStream("Edit", editText, func(ctx context.Context, in editIn) iter.Seq2[tool.Chunk, error] {
		return e.apply(ctx, func() (*change, error) { return e.plan(ctx, in) })
	})
	return e, err
}

func (e *edit) plan(ctx context.Context, in editIn) (*change, error) {
	edits := in.Edits
	switch {
	case len(edits) == 0:
		edits = []replacement{in.replacement}
	case in.replacement != replacement{}:
		return nil, errors.New("give either old_string and new_string, or edits, not both")
	}
	file, name := e.target(ctx, in.FilePath), e.place(nil).Abs(in.FilePath) // nil: Abs uses no policy
	old, exists, err := e.readCurrent(ctx, file, name)
	switch {
	case err != nil:
		return nil, err
	case !exists:
		return nil, fmt.Errorf("%s does not exist; look for it with Glob, or create it with Write", name)
	case !utf8.Valid(old):
		return nil, fmt.Errorf("%s is not valid UTF-8 (line %d), and Edit would damage it; change it with Bash", name, invalidLine(old))
	}
	text, total := string(old), 0
	for i, r := range edits {
		var n int
		if text, n, err = r.replace(text); err != nil {
			if len(edits) > 1 {
				err = fmt.Errorf("edit %d of %d failed, so none was made: %w", i+1, len(edits), err)
			}
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		total += n
	}
	return &change{file: file, path: name, old: old, new: []byte(text), exists: true, replaced: total,
		answer: fmt.Sprintf("Replaced %s in %s.", plural(total, "occurrence"), name)}, nil
}

func invalidLine(data []byte) int {
	marked := bytes.ToValidUTF8(data, []byte{0xFF}) // a byte that valid UTF-8 never has
	return 1 + bytes.Count(marked[:bytes.IndexByte(marked, 0xFF)], []byte("\n"))
}

// replace returns text after the replacement, and how many occurrences it replaced.
func (r replacement) replace(text string) (result string, occurrences int, err error) {
	// Old and new have LF line ends, as Read shows them; the file keeps its own line ends.
	lf, crlfs := withLF(text)
	old, new := strings.ReplaceAll(r.Old, "\r\n", "\n"), strings.ReplaceAll(r.New, "\r\n", "\n")
	switch {
	case old == "":
		return "", 0, errors.New("old_string is empty; to fill or create a file use Write")
	case old == new:
		return "", 0, errors.New("old_string and new_string are the same, so nothing would change; write the new text into new_string")
	}
	// In a file with mixed line ends, new lines get the more frequent one.
	if 2*len(crlfs) > strings.Count(lf, "\n") {
		new = strings.ReplaceAll(new, "\n", "\r\n")
	}
	if !strings.Contains(lf, old) {
		return "", 0, fmt.Errorf("old_string does not occur%s", mismatchHint(lf, old))
	}
	if n := countOverlapping(lf, old); n > 1 && !r.All {
		times := fmt.Sprintf("%d times", n)
		if n == maxCounted {
			times = "at least " + times
		}
		return "", 0, fmt.Errorf("old_string occurs %s; make it longer until it occurs once, or set replace_all", times)
	}
	// Checked before the text is made: a few replacements of every "a" by "aa" would fill the memory.
	if growth := len(new) - len(old); growth > 0 && strings.Count(lf, old) > (maxEditable-len(lf))/growth {
		return "", 0, fmt.Errorf("the file would have more than %d MiB, the limit of Edit; replace less, or use Bash", maxEditable>>20)
	}
	var b strings.Builder
	copied := 0 // position in text up to which b has the result
	for at := 0; ; occurrences++ {
		next := strings.Index(lf[at:], old)
		if next < 0 {
			break
		}
		b.WriteString(text[copied:originalPos(crlfs, at+next)])
		b.WriteString(new)
		at += next + len(old)
		copied = originalPos(crlfs, at)
	}
	b.WriteString(text[copied:])
	return b.String(), occurrences, nil
}

// withLF returns text with LF for CRLF, and the positions in lf of the LFs that replace a CRLF.
func withLF(text string) (lf string, crlfs []int) {
	if !strings.Contains(text, "\r\n") {
		return text, nil
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "\r\n")
		b.WriteString(before)
		if !found {
			return b.String(), crlfs
		}
		crlfs = append(crlfs, b.Len())
		b.WriteByte('\n')
		text = after
	}
}

// originalPos converts a position in the lf of withLF to a position in the original text. The position of an LF that
// replaces a CRLF becomes the position of the CR.
func originalPos(crlfs []int, i int) int { return i + sort.SearchInts(crlfs, i) }

// maxCounted bounds the counting of occurrences, since in repetitive text each may cost a comparison of the whole text.
const maxCounted = 100

// countOverlapping counts "aa" twice in "aaa", as either may be meant.
func countOverlapping(text, sub string) int {
	n := 0
	for {
		i := strings.Index(text, sub)
		if i < 0 || n == maxCounted {
			return n
		}
		n++
		_, size := utf8.DecodeRuneInString(sub)
		text = text[i+size:]
	}
}

var lineNumberPrefix = lazy.Regexp(`(?m)^ *\d+\t`)

// maxHint bounds the bytes of text, and the comparisons of lines, for a hint: the search cannot be interrupted.
const maxHint = 4 << 20

// mismatchHint suggests why old does not occur in text.
func mismatchHint(text, old string) string {
	if bare := lineNumberPrefix().ReplaceAllString(old, ""); bare != old && strings.Contains(text, bare) {
		return " with the line numbers that Read shows; leave them out"
	}
	wanted := linesWithSingleSpaces(strings.Trim(old, "\n"))
	if len(text) <= maxHint && strings.Count(text, "\n")*len(wanted) <= maxHint {
		lines := linesWithSingleSpaces(text)
		for i := 0; i+len(wanted) <= len(lines); i++ {
			if slices.Equal(lines[i:i+len(wanted)], wanted) {
				return fmt.Sprintf("; line %d differs in white space only: copy it exactly", i+1)
			}
		}
	}
	return "; read the file again and copy the text exactly"
}

// linesWithSingleSpaces returns the lines of text with each run of white space replaced by one space.
func linesWithSingleSpaces(text string) []string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	return lines
}

// Preview implements [tool.Previewer].
func (e *edit) Preview(ctx context.Context, input json.RawMessage) (string, error) {
	in, err := unmarshal[editIn](input)
	if err != nil {
		return "", err
	}
	return preview(ctx, func() (*change, error) { return e.plan(ctx, in) })
}
