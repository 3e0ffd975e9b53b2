package skill

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/kitbag-go/kitbag/internal/lazy"
)

// Limits of what is read, so that a hostile file costs little.
const (
	maxSkillFile   = 1 << 20 // bytes of a SKILL.md
	maxFrontMatter = 64 << 10
	maxNodes       = 100_000 // values of the front matter; a value counts again for each alias
)

// Parse reads the text of a SKILL.md and reports what is wrong with it, with path as the
// file's name. The skill is nil exactly if a diagnostic is Fatal; other violations of the
// specification are only reported. Rules that need the skill's folder are not checked.
func Parse(path string, content []byte) (*Skill, []Diagnostic) {
	r := &report{file: path}
	s := parse(r, content, "")
	return s, r.problems
}

// parse reads a SKILL.md. folder is the base name of the skill's folder, or "".
func parse(r *report, content []byte, folder string) *Skill {
	text, ok := decodeText(r, content)
	if !ok {
		return nil
	}
	p, ok := split(r, text)
	if !ok {
		return nil
	}
	header := parseHeader(r, p)
	if header == nil {
		return nil
	}
	s := &Skill{Path: r.file, Bytes: len(content), Body: p.body, bodyLine: p.bodyLine}
	lines := readFields(r, s, header, p.headerLine-1)
	checkFields(r, s, folder, lines)
	if r.failed() {
		return nil
	}
	return s
}

// decodeText returns the file as UTF-8 without byte order mark and with "\n" as the only line end.
func decodeText(r *report, content []byte) (string, bool) {
	switch {
	case tooLarge(r, int64(len(content))):
		return "", false
	case bytes.HasPrefix(content, []byte("\xff\xfe")), bytes.HasPrefix(content, []byte("\xfe\xff")):
		r.fatal("encoding", 1, "the file is UTF-16; save it as UTF-8")
		return "", false
	}
	text := strings.TrimPrefix(string(content), "\ufeff")
	if !utf8.ValidString(text) {
		r.nonfatal("encoding", 1+strings.Count(validPrefix(text), "\n"), "the file is not valid UTF-8 here; save it as UTF-8")
		text = strings.ToValidUTF8(text, "\ufffd")
	}
	if strings.Contains(text, "\r") {
		text = strings.ReplaceAll(text, "\r\n", "\n")
		text = strings.ReplaceAll(text, "\r", "\n")
	}
	return text, true
}

// tooLarge reports a SKILL.md over the limit. Loaders call it before they read a file, decodeText for texts without file.
func tooLarge(r *report, size int64) bool {
	if size > maxSkillFile {
		r.fatal("too-large", 0, "the file has %d bytes, more than the limit of %d; move details to files in references/", size, maxSkillFile)
	}
	return size > maxSkillFile
}

// validPrefix returns the text before the first byte that is not UTF-8.
func validPrefix(text string) string {
	for i, c := range text {
		if c == utf8.RuneError && !strings.HasPrefix(text[i:], "\ufffd") {
			return text[:i]
		}
	}
	return text
}

// parts are the two halves of a SKILL.md, with the lines on which they begin.
type parts struct {
	header     string
	headerLine int
	body       string
	bodyLine   int
}

// fence is the line before and after the front matter.
const fence = "---"

func isFence(line string) bool { return strings.TrimRight(line, " \t") == fence }

// split cuts text at the two lines of three hyphens. Only a whole line at the
// left margin counts, so hyphens inside a value are just a value.
func split(r *report, text string) (parts, bool) {
	head, rest, _ := strings.Cut(text, "\n")
	line := 1 // of head
	for strings.TrimSpace(head) == "" && rest != "" {
		head, rest, _ = strings.Cut(rest, "\n")
		line++
	}
	if !isFence(head) {
		r.fatal("frontmatter-missing", 1, "a SKILL.md begins with front matter: a line ---, the fields name and description, a line ---")
		return parts{}, false
	}
	if line > 1 {
		r.nonfatal("frontmatter-position", 1, "the front matter has to begin on the first line; remove the %d blank lines before it", line-1)
	}
	p := parts{headerLine: line + 1, bodyLine: line + 1}
	for at := 0; at < len(rest); {
		next, body, _ := strings.Cut(rest[at:], "\n")
		p.bodyLine++
		if isFence(next) {
			p.header, p.body = rest[:at], body
			if len(p.header) > maxFrontMatter {
				r.fatal("too-large", p.headerLine, "the front matter has %d bytes, more than the limit of %d; move its text to the body", len(p.header), maxFrontMatter)
				return parts{}, false
			}
			return p.trimBody(), true
		}
		at += len(next) + 1
	}
	unclosed(r, rest, line)
	return parts{}, false
}

// trimBody removes the blank lines before the body.
func (p parts) trimBody() parts {
	if strings.TrimSpace(p.body) == "" {
		p.body = ""
	}
	for {
		line, rest, more := strings.Cut(p.body, "\n")
		if !more || strings.TrimSpace(line) != "" {
			break
		}
		p.body, p.bodyLine = rest, p.bodyLine+1
	}
	return p
}

var (
	// fieldLine matches a line of front matter: a field or its continuation.
	fieldLine = lazy.Regexp(`^(\s|[\w-]+\s*:)`)
	// nearFence matches lines that were probably meant as ---.
	nearFence = lazy.Regexp(`^\s*([-‐-―−=_*+]{2,}|\.\.\.)\s*(#.*)?$`)
)

// unclosed reports front matter without an end. It names the line that was probably meant
// as its end, else the last line that looks like a field.
func unclosed(r *report, rest string, opened int) {
	last, n := opened, opened
	for line := range strings.Lines(rest) {
		n++
		line = strings.TrimRight(line, "\n")
		if nearFence().MatchString(line) {
			r.fatal("frontmatter-unclosed", opened, "the front matter that begins here is not closed; line %d is %q and has to be exactly --- at the left margin", n, line)
			return
		}
		if !fieldLine().MatchString(line) {
			break
		}
		last = n
	}
	r.fatal("frontmatter-unclosed", opened, "the front matter that begins here is not closed; add a line --- after line %d", last)
}

// parseHeader returns the front matter's mapping, or nil after it has reported an error.
func parseHeader(r *report, p parts) *yaml.Node {
	var doc yaml.Node
	header := p.header
	err := yaml.Load([]byte(header), &doc)
	if err != nil { // perhaps because of JSON's surrogate escapes
		header, doc = joinSurrogates(header), yaml.Node{}
		err = yaml.Load([]byte(header), &doc)
	}
	if err != nil && blank(header) {
		err = nil // it has no fields, which is reported below
	}
	if err != nil {
		message, line := explain(err)
		doc = yaml.Node{}
		if yaml.Load([]byte(quoteValues(header)), &doc) != nil {
			r.fatal("yaml", headerLine(p, line), "the front matter is not YAML: %s%s", message, remedy(header, line))
			return nil
		}
		r.nonfatal("yaml-quoted", headerLine(p, line), "this value is valid YAML only in quotes (%s) and was read as if quoted: put it between double quotes, or below the key after >-", message)
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		r.fatal("frontmatter-fields", p.headerLine, "the front matter has no fields; write one a line, such as name: pdf")
		return nil
	}
	if err := checkAliases(&doc); err != nil {
		r.fatal("yaml", p.headerLine, "the front matter is not accepted: %v", err)
		return nil
	}
	return doc.Content[0]
}

// jsonEscape matches an escape in a double-quoted string, or a surrogate pair of escapes.
var jsonEscape = lazy.Regexp(`(?i)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|\\.`)

// joinSurrogates rewrites a surrogate pair of JSON escapes, "\ud83e\udde0", as YAML's "\U0001f9e0". Use it only on
// front matter that YAML refuses: in a string without double quotes a backslash is not an escape.
func joinSurrogates(header string) string {
	return jsonEscape().ReplaceAllStringFunc(header, func(s string) string {
		m := jsonEscape().FindStringSubmatch(s)
		if m[1] == "" {
			return s
		}
		high, _ := strconv.ParseUint(m[1], 16, 32)
		low, _ := strconv.ParseUint(m[2], 16, 32)
		return fmt.Sprintf("\\U%08x", utf16.DecodeRune(rune(high), rune(low)))
	})
}

// noSpace matches name:value, which YAML reads as one word, but not URLs.
var noSpace = lazy.Regexp(`(?m)^\s*[\w-]+:[^\s/]`)

// remedy suggests how to fix frequent mistakes that quotes do not fix. line is the line of the error.
func remedy(header string, line int) string {
	lines := strings.Split(header, "\n")
	before := strings.Join(lines[:min(line, len(lines)-1)], "\n")
	switch {
	case strings.Contains(header, "\n\t"):
		return "; indent with spaces, not with tabs"
	case noSpace().MatchString(before):
		return "; write a space after the colon of each field"
	}
	return "; check the indentation, brackets and quotes up to here"
}

// headerLine converts a line of the front matter, 0 if unknown, to a line of the file.
func headerLine(p parts, line int) int { return p.headerLine + max(line, 1) - 1 }

// blank reports whether src has only empty lines and comments.
func blank(src string) bool {
	for line := range strings.Lines(src) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return false
		}
	}
	return true
}

// checkAliases refuses cyclic aliases and aliases that expand the document to more than maxNodes values.
func checkAliases(doc *yaml.Node) error {
	sizes := map[*yaml.Node]int{}
	var measure func(n *yaml.Node) error // sets the size of n, with aliases expanded
	measure = func(n *yaml.Node) error {
		size, seen := sizes[n]
		switch {
		case seen && size == 0:
			return fmt.Errorf("the alias on line %d contains itself", n.Line)
		case seen:
			return nil
		}
		sizes[n] = 0 // not known yet
		size = 1
		children := n.Content
		if n.Kind == yaml.AliasNode {
			children = []*yaml.Node{n.Alias}
		}
		for _, c := range children {
			if err := measure(c); err != nil {
				return err
			}
			if size += sizes[c]; size > maxNodes {
				return fmt.Errorf("its aliases expand to more than %d values", maxNodes)
			}
		}
		sizes[n] = size
		return nil
	}
	return measure(doc)
}

// explain returns the message and the line of a YAML error; the line is 0 if unknown.
func explain(err error) (string, int) {
	if e, ok := errors.AsType[*yaml.LoadError](err); ok {
		return e.Message, e.Mark.Line
	}
	return err.Error(), 0
}

// keyValue matches a field with a value on its line, blockScalar a value on the lines
// below it, which needs no quotes.
var (
	keyValue    = lazy.Regexp(`^(\s*)([\w-]+):[ \t]+(\S.*)$`)
	blockScalar = lazy.Regexp(`^[|>][-+0-9]*(\s+#.*)?$`)
)

// quoteValues puts single quotes around plain values in src that YAML misreads, such as
// "Use when: asked" or "@scope". It keeps the lines.
func quoteValues(src string) string {
	lines := strings.Split(src, "\n")
	for i := 0; i < len(lines); {
		m := keyValue().FindStringSubmatch(lines[i])
		next := i + 1
		if m == nil {
			i = next
			continue
		}
		// Lines indented deeper belong to the value.
		for next < len(lines) && (strings.TrimSpace(lines[next]) == "" || len(lines[next])-len(strings.TrimLeft(lines[next], " \t")) > len(m[1])) {
			next++
		}
		last := next - 1
		for last > i && strings.TrimSpace(lines[last]) == "" {
			last--
		}
		if value := strings.TrimSpace(m[3]); needsQuotes(value) {
			lines[i] = m[1] + m[2] + ": '" + strings.ReplaceAll(value, "'", "''")
			for j := i + 1; j <= last; j++ {
				lines[j] = strings.ReplaceAll(lines[j], "'", "''")
			}
			lines[last] = strings.TrimRight(lines[last], " \t") + "'"
		}
		i = next
	}
	return strings.Join(lines, "\n")
}

// needsQuotes reports whether a value is probably plain text that YAML misreads. An unclosed list or quoted text stays an
// error: a guess would hide the mistake.
func needsQuotes(value string) bool {
	first, last := value[0], value[len(value)-1]
	switch first {
	case '"', '\'': // the quote ends before the value does, or is part of it
		n := strings.Count(value, string(first))
		return n > 1 && (last != first || n%2 == 1)
	case '[':
		return last != ']' && strings.Contains(value, "]")
	case '{':
		return last != '}' && strings.Contains(value, "}")
	case '|', '>':
		return !blockScalar().MatchString(value)
	case '@', '`', '%', '&', '*', '!', '-', '?', ',', ']', '}':
		return true
	}
	return strings.Contains(value, ": ") || strings.Contains(value, ":\t") || strings.HasSuffix(value, ":") || strings.Contains(value, " #")
}
