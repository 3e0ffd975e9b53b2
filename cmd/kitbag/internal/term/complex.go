package term

import "strings"

// Limits on Markdown to render. The time to parse it grows at least with the square of these numbers: 8,000 times ~~
// would take minutes.
const (
	maxDepth      = 50  // nested block quotes and lists
	maxColumns    = 100 // of a table
	maxDelimiters = 600 // of emphasis and links, in a paragraph
)

// tooComplex reports whether Markdown exceeds the limits, which usual text does not.
func tooComplex(src string) bool {
	count := 0  // delimiters in the paragraph
	fence := "" // of the block of code that is open
	inHTML := false
	for line := range strings.Lines(src) {
		line = strings.TrimRight(line, " \t\r\n")
		// In a block of HTML a fence begins no code. The end of the block is not looked for, so no later fence counts.
		inHTML = inHTML || strings.HasPrefix(strings.TrimLeft(line, " \t"), "<")
		switch mark := codeFence(line); {
		case fence != "": // in code
			if strings.HasPrefix(mark, fence) && line == mark {
				fence = ""
			}
			continue
		case mark != "" && !inHTML && !strings.Contains(line[len(mark):], "`"): // ```x``` is a code span
			fence = mark
			continue
		}
		if line == "" || beginsBlock(line) {
			count = 0
		}
		count += delimiters(line)
		if nesting(line) > maxDepth || count > maxDelimiters || strings.Count(line, "|") > maxColumns {
			return true
		}
	}
	return false
}

// nesting counts the markers of block quotes and lists at the beginning of a line.
func nesting(line string) (n int) {
	if strings.Trim(line, " \t-*") == "" || strings.Trim(line, " \t+-|=") == "" { // a thematic break, or the second row of a table
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

// delimiters counts the delimiters of emphasis and links in a line. An underscore within a word does not count.
func delimiters(line string) (n int) {
	for i := range len(line) {
		switch line[i] {
		case '*', '~', '[':
			n++
		case '_':
			if i == 0 || i+1 == len(line) || !isWordByte(line[i-1]) || !isWordByte(line[i+1]) {
				n++
			}
		}
	}
	return n
}

func isWordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c >= 0x80
}

// beginsBlock reports whether a line is a heading of the first level or an item of a list.
func beginsBlock(line string) bool {
	line = strings.TrimLeft(line, " \t")
	return strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "* ") || strings.HasPrefix(line, "+ ")
}

// codeFence returns the fence at the beginning of a line, such as ```; "" for none. An indented fence may be text.
func codeFence(line string) string {
	for _, c := range []string{"`", "~"} {
		if mark := line[:len(line)-len(strings.TrimLeft(line, c))]; len(mark) >= 3 {
			return mark
		}
	}
	return ""
}
