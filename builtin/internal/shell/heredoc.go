package shell

import (
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// heredoc writes the operator of a here-document and stores its body for the end of the line.
// The print quotes a body without expansions, and has no tabs that "<<-" would remove.
func (p *printer) heredoc(r *syntax.Redirect) {
	delimiter, ok := delimiterOf(r.Word)
	if !ok {
		p.refuse("a here-document whose delimiter is not a plain word")
		return
	}
	if delimiter == "" {
		p.refuse("a here-document with an empty delimiter, whose end bash does not find in a substitution")
	}
	quoted := quotedDelimiter(r.Word)
	if last := r.Word.Parts[len(r.Word.Parts)-1:]; quoted && !quotedDelimiter(&syntax.Word{Parts: last}) {
		p.refuse("a here-document whose delimiter is only partly quoted, which the parser expands and bash does not; quote all of it")
	}
	var parts []syntax.WordPart
	if r.Hdoc != nil {
		parts = r.Hdoc.Parts
	}
	escaped := false
	for _, part := range parts {
		if p.hasLine(part, delimiter, r.Op) {
			p.refuse("a here-document with its delimiter as a line inside an expansion, where bash ends it; use another delimiter")
		}
		lit, ok := part.(*syntax.Lit)
		if !ok && r.Op == syntax.DashHdoc && part.End().Line() > part.Pos().Line() {
			p.refuse("an expansion of several lines in a <<- here-document; use <<")
		}
		escaped = escaped || ok && strings.Contains(lit.Value, `\`)
	}
	var body string
	switch text, plain := onlyText(parts); {
	case plain && (quoted || escaped):
		body = stripTabs(text, r.Op)
		if !quoted {
			body, quoted = unescapeDocument(body), true
		}
	default:
		body = p.expanded(parts, r.Op)
	}
	if body != "" && !strings.HasSuffix(body, "\n") {
		p.refuse("a here-document without an end")
	}
	delimiter = p.freeDelimiter(delimiter, body)
	p.str("<<")
	if quoted {
		p.str("'" + delimiter + "'")
	} else {
		p.str(delimiter)
	}
	p.pending = append(p.pending, hdoc{[]byte(body), delimiter})
}

// hasLine reports whether a line of a part of a here-document is its delimiter.
func (p *printer) hasLine(part syntax.WordPart, delimiter string, op syntax.RedirOperator) bool {
	from, to := int(part.Pos().Offset()), int(part.End().Offset())
	if _, ok := part.(*syntax.Lit); ok || part.End().Line() == part.Pos().Line() {
		return false
	}
	if from > to || to > len(p.src) {
		return true
	}
	if rest, _, ok := strings.Cut(p.src[to:], "\n"); ok {
		to += len(rest)
	}
	for line := range strings.SplitSeq(p.src[from:to], "\n") {
		if stripTabs(line, op) == delimiter {
			return true
		}
	}
	return false
}

// delimiterOf returns the delimiter without its quotes.
func delimiterOf(word *syntax.Word) (string, bool) {
	var b strings.Builder
	for _, part := range word.Parts {
		switch x := part.(type) {
		case *syntax.Lit:
			b.WriteString(strings.ReplaceAll(x.Value, `\`, ""))
		case *syntax.SglQuoted:
			if x.Dollar {
				return "", false
			}
			b.WriteString(x.Value)
		case *syntax.DblQuoted:
			for _, q := range x.Parts {
				lit, ok := q.(*syntax.Lit)
				if !ok || x.Dollar || strings.Contains(lit.Value, `\`) {
					return "", false
				}
				b.WriteString(lit.Value)
			}
		default:
			return "", false
		}
	}
	return b.String(), !strings.ContainsAny(b.String(), "\n$`")
}

// freeDelimiter returns name, or another plain delimiter, such that it is not a line of body.
func (p *printer) freeDelimiter(name, body string) string {
	if !syntax.ValidName(name) {
		name = "EOF"
	}
	free := func(name string) bool {
		return !strings.HasPrefix(body, name+"\n") && !strings.Contains(body, "\n"+name+"\n")
	}
	for i := range 16 {
		if free(name) {
			return name
		}
		name = fmt.Sprint("EOF", i)
	}
	p.refuse("a here-document that contains every possible delimiter as a line")
	return name
}

// onlyText returns the text of a body without expansions.
func onlyText(parts []syntax.WordPart) (string, bool) {
	var b strings.Builder
	for _, part := range parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			return "", false
		}
		b.WriteString(lit.Value)
	}
	return b.String(), true
}

// stripTabs removes the tabs that "<<-" removes.
func stripTabs(text string, op syntax.RedirOperator) string {
	if op != syntax.DashHdoc || !strings.Contains(text, "\t") {
		return text
	}
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimLeft(line, "\t")
	}
	return strings.Join(lines, "")
}

// unescapeDocument removes the backslashes that escape a character in a here-document.
func unescapeDocument(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\\", s[i+1]) >= 0 {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// expanded returns the print of a body with expansions.
func (p *printer) expanded(parts []syntax.WordPart, op syntax.RedirOperator) string {
	start := len(p.buf)
	was := p.where
	p.where = document
	begins := true // at the beginning of a line
	for i, part := range parts {
		var next syntax.WordPart
		if i+1 < len(parts) {
			next = parts[i+1]
		}
		lit, ok := part.(*syntax.Lit)
		if !ok {
			p.part(part, next, false)
			begins = false
			continue
		}
		text := lit.Value
		if op == syntax.DashHdoc {
			if begins {
				text = stripTabs(text, op)
			} else if head, tail, ok := strings.Cut(text, "\n"); ok {
				text = head + "\n" + stripTabs(tail, op)
			}
		}
		p.lit(text, false, next == nil)
		if text != "" {
			begins = strings.HasSuffix(text, "\n")
		}
	}
	p.where = was
	body := string(p.buf[start:])
	p.buf = p.buf[:start]
	return body
}
