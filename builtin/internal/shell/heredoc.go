package shell

import (
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// printDocument writes the operator and the delimiter of a here-document, and stores the body for the end of the line.
// The print always has "<<", and a body without the tabs that "<<-" removes. If the body has backslashes and no
// expansions, the print quotes the delimiter.
func (p *printer) printDocument(r *syntax.Redirect) {
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
		if p.containsLine(part, delimiter, r.Op) {
			p.refuse("a here-document with its delimiter as a line inside an expansion, where bash ends it; use another delimiter")
		}
		lit, ok := part.(*syntax.Lit)
		if !ok && r.Op == syntax.DashHdoc && part.End().Line() > part.Pos().Line() {
			p.refuse("an expansion of several lines in a <<- here-document; use <<")
		}
		escaped = escaped || ok && strings.Contains(lit.Value, `\`)
	}
	var body string
	if text, ok := literalText(parts); ok && (quoted || escaped) {
		body = stripTabs(text, r.Op)
		if !quoted {
			body, quoted = unescapeDocument(body), true
		}
	} else {
		body = p.printBody(parts, r.Op)
	}
	if body != "" && !strings.HasSuffix(body, "\n") {
		p.refuse("a here-document without an end")
	}
	delimiter = p.unusedDelimiter(delimiter, body)
	if quoted {
		p.str("<<'" + delimiter + "'")
	} else {
		p.str("<<" + delimiter)
	}
	p.pending = append(p.pending, hdoc{[]byte(body), delimiter})
}

// containsLine reports whether an expansion in a here-document contains the delimiter as a line.
func (p *printer) containsLine(part syntax.WordPart, delimiter string, op syntax.RedirOperator) bool {
	from, to := int(part.Pos().Offset()), int(part.End().Offset())
	if _, ok := part.(*syntax.Lit); ok || part.End().Line() == part.Pos().Line() {
		return false
	}
	if from > to || to > len(p.src) {
		return true
	}
	if end := strings.IndexByte(p.src[to:], '\n'); end >= 0 {
		to += end // the expansion may end within a line
	}
	for line := range strings.SplitSeq(p.src[from:to], "\n") {
		if stripTabs(line, op) == delimiter {
			return true
		}
	}
	return false
}

// delimiterOf returns the delimiter without its quotes. ok is false if it is not literal, or bash may read it differently.
func delimiterOf(word *syntax.Word) (delimiter string, ok bool) {
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

// unusedDelimiter returns a delimiter that needs no quotes and is not a line of body, preferably name.
func (p *printer) unusedDelimiter(name, body string) string {
	if !syntax.ValidName(name) {
		name = "EOF"
	}
	for i := range 16 {
		if !strings.Contains("\n"+body, "\n"+name+"\n") {
			return name
		}
		name = fmt.Sprint("EOF", i)
	}
	p.refuse("a here-document with EOF0 to EOF14 as lines")
	return name
}

// literalText returns the text of a body. ok is false if it has expansions.
func literalText(parts []syntax.WordPart) (text string, ok bool) {
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

// stripTabs removes the tabs at the beginning of lines if op is "<<-".
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

// unescapeDocument removes the backslashes that escape a character in the body of a here-document.
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

// printBody returns the print of a body that may have expansions.
func (p *printer) printBody(parts []syntax.WordPart, op syntax.RedirOperator) string {
	start, where := len(p.buf), p.where
	p.where = document
	lineStart := true // part is at the beginning of a line
	for i, part := range parts {
		var next syntax.WordPart
		if i+1 < len(parts) {
			next = parts[i+1]
		}
		lit, ok := part.(*syntax.Lit)
		if !ok {
			p.part(part, next, false)
			lineStart = false
			continue
		}
		text := lit.Value
		if op == syntax.DashHdoc {
			if lineStart {
				text = stripTabs(text, op)
			} else if head, tail, ok := strings.Cut(text, "\n"); ok {
				text = head + "\n" + stripTabs(tail, op)
			}
		}
		p.lit(text, false, next == nil)
		if text != "" {
			lineStart = strings.HasSuffix(text, "\n")
		}
	}
	p.where = where
	body := string(p.buf[start:])
	p.buf = p.buf[:start]
	return body
}
