package term

import "strings"

// The limits on Markdown that is laid out. Beyond them parsing and layout take time that grows with the square
// of the length or faster: 8,000 marks of a strikethrough would take minutes.
const (
	maxDepth   = 50  // marks of quotations and lists at the beginning of a line
	maxColumns = 100 // of a table
	maxMarks   = 600 // marks of emphasis and links in a paragraph
)

// tangled reports whether Markdown exceeds the limits. No text that is meant to be read does.
func tangled(src string) bool {
	marks, fence, html := 0, "", false
	for line := range strings.Lines(src) {
		line = strings.TrimRight(line, " \t\r\n")
		// Only a fence without indentation surely begins and ends code, unless it is in a block of HTML.
		html = html || strings.HasPrefix(strings.TrimLeft(line, " \t"), "<")
		switch mark := fenceOf(line); {
		case fence != "":
			if strings.HasPrefix(mark, fence) && line == mark {
				fence = ""
			}
			continue
		case mark != "" && !html && !strings.Contains(line[len(mark):], "`"):
			fence = mark
			continue
		}
		if line == "" || begins(line) {
			marks = 0
		}
		marks += marksIn(line)
		if depthOf(line) > maxDepth || marks > maxMarks || strings.Count(line, "|") > maxColumns {
			return true
		}
	}
	return false
}

// depthOf counts the marks of quotations and lists at the beginning of a line.
func depthOf(line string) (n int) {
	if strings.Trim(line, " \t-*") == "" || strings.Trim(line, " \t+-|=") == "" { // a line across the text, or in a table
		return 0
	}
	rest := strings.TrimLeft(line, " \t>-*+0123456789.)")
	for _, c := range line[:len(line)-len(rest)] {
		if strings.ContainsRune(">-*+.)", c) {
			n++
		}
	}
	return n
}

// marksIn counts the marks of emphasis and links in a line. An underscore in a word is none.
func marksIn(line string) (n int) {
	for i := range len(line) {
		switch line[i] {
		case '*', '~', '[':
			n++
		case '_':
			if i == 0 || i+1 == len(line) || !wordByte(line[i-1]) || !wordByte(line[i+1]) {
				n++
			}
		}
	}
	return n
}

func wordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c >= 0x80
}

// begins reports whether a line begins another block than the line before it: a heading or an item of a list.
func begins(line string) bool {
	line = strings.TrimLeft(line, " \t")
	return strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "* ") || strings.HasPrefix(line, "+ ")
}
