package skill

import "strings"

// Limits of the markdown parser's input. The parser's time is quadratic in the marks of a paragraph and in the
// depth of nesting, so that a small file could take minutes. Readable texts are far below the limits.
const (
	maxMarks   = 2000
	maxNesting = 32
)

// marks are the characters that the inline parser remembers until it finds the matching one.
const marks = "*_[]!<&`"

// limitMarkup replaces marks beyond the limits, byte for byte, so that offsets stay valid.
// It returns most texts unchanged.
func limitMarkup(text string) string {
	var out []byte // a copy, from the first replacement on
	replace := func(from, to int, set string) {
		if out == nil {
			out = []byte(text)
		}
		for i := from; i < to; i++ {
			if strings.IndexByte(set, text[i]) >= 0 {
				out[i] = 'x'
			}
		}
	}
	seen := 0 // marks in this paragraph
	at := 0
	for line := range strings.Lines(text) {
		prefix, deep := containers(line)
		if deep >= 0 {
			replace(at+deep, at+prefix, ">-+*0123456789")
		}
		rest := line[prefix:]
		switch {
		case strings.TrimSpace(rest) == "", prefix > 0 && strings.TrimLeft(line[:prefix], " \t") != "":
			seen = 0 // a blank line, a list item, a quotation
		case strings.HasPrefix(rest, "```"), strings.HasPrefix(rest, "~~~"):
			at += len(line)
			continue // keep the fence
		}
		for i := range len(rest) {
			if strings.IndexByte(marks, rest[i]) < 0 {
				continue
			}
			if seen++; seen > maxMarks {
				replace(at+prefix+i, at+len(line), marks)
				break
			}
		}
		at += len(line)
	}
	if out == nil {
		return text
	}
	return string(out)
}

// containers measures the markers of quotations and lists at the beginning of a line: prefix is the length of all of
// them, deep the offset of the first that is nested too deep, or -1.
func containers(line string) (prefix, deep int) {
	deep = -1
	n := 0
	for i := 0; i < len(line); {
		end := i
		switch c := line[i]; {
		case c == ' ', c == '\t':
			i++
			continue
		case c == '>', c == '-', c == '+', c == '*':
			end = i + 1
		case c >= '0' && c <= '9':
			for end < len(line) && line[end] >= '0' && line[end] <= '9' {
				end++
			}
			if end == len(line) || line[end] != '.' && line[end] != ')' {
				return i, deep
			}
			end++
		default:
			return i, deep
		}
		if line[i] != '>' && (end == len(line) || line[end] != ' ' && line[end] != '\t' && line[end] != '\n') {
			return i, deep
		}
		if n++; n > maxNesting && deep < 0 {
			deep = i
		}
		i = end
	}
	return len(line), deep
}
