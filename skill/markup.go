package skill

import "strings"

// Limits of the markdown parser's input, far above what a readable text has. The parser's time is quadratic in the marks
// of a paragraph and in the depth of nesting, so that without limits a small file could take minutes.
const (
	maxMarks   = 2000
	maxNesting = 32
)

// marks are the characters for which the inline parser looks for a closing counterpart.
const marks = "*_[]!<&`"

// limitMarkup replaces each mark and marker beyond the limits by an x, so that offsets stay valid.
func limitMarkup(text string) string {
	var out []byte // a copy, from the first replacement on
	replace := func(from, to int, chars string) {
		if out == nil {
			out = []byte(text)
		}
		for i := from; i < to; i++ {
			if strings.IndexByte(chars, text[i]) >= 0 {
				out[i] = 'x'
			}
		}
	}
	marksSeen := 0 // in this paragraph; a quotation or list item begins another
	lineStart := 0
	for line := range strings.Lines(text) {
		prefix, tooDeep := containers(line)
		if tooDeep >= 0 {
			replace(lineStart+tooDeep, lineStart+prefix, ">-+*0123456789")
		}
		if isContainer := strings.TrimSpace(line[:prefix]) != ""; isContainer || strings.TrimSpace(line) == "" {
			marksSeen = 0
		}
		first := prefix
		if strings.HasPrefix(line[prefix:], "```") { // keep the fence of a code block, or what follows would become markdown
			first = len(line) - len(strings.TrimLeft(line[prefix:], "`"))
		}
		for i := first; i < len(line); i++ {
			if strings.IndexByte(marks, line[i]) < 0 {
				continue
			}
			if marksSeen++; marksSeen > maxMarks {
				replace(lineStart+i, lineStart+len(line), marks)
				break
			}
		}
		lineStart += len(line)
	}
	if out == nil {
		return text
	}
	return string(out)
}

// containers measures the markers of quotations and lists at the beginning of a line: prefix is the length of all
// markers, tooDeep the offset of the first marker beyond maxNesting, or -1.
func containers(line string) (prefix, tooDeep int) {
	tooDeep = -1
	markers := 0
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
				return i, tooDeep
			}
			end++
		default:
			return i, tooDeep
		}
		if line[i] != '>' && (end == len(line) || line[end] != ' ' && line[end] != '\t' && line[end] != '\n') {
			return i, tooDeep
		}
		if markers++; markers > maxNesting && tooDeep < 0 {
			tooDeep = i
		}
		i = end
	}
	return len(line), tooDeep
}
