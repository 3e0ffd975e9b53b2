package term

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// minWidth is the smallest width of wrapped text in columns, however narrow the terminal and however deep the indent.
const minWidth = 8

// wrap breaks s into lines of at most width columns, at spaces if possible. A style that continues on the next line is
// closed at the line's end and opened again.
func wrap(s string, width int) []string {
	return strings.Split(lipgloss.Wrap(s, width, ""), "\n")
}

// HardWrap breaks lines after exactly width columns, for text in which spaces matter.
func HardWrap(s string, width int) []string {
	return strings.Split(ansi.Hardwrap(s, width, true), "\n")
}

// fold wraps the lines of text that are wider than width. The rest of a line is indented, so that the rest cannot look
// like another line.
func fold(text string, width int) (lines []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if ansi.StringWidth(line) <= width {
			lines = append(lines, line)
			continue
		}
		margin := line[:len(line)-len(strings.TrimLeft(line, " "))] + "  "
		margin = margin[:min(len(margin), width/2)] // a deep margin would leave too little for text
		lines = append(lines, indent(wrap(line, max(width-len(margin), minWidth)), "", margin)...)
	}
	return lines
}

// indent puts first before the first line and rest before the other lines, without spaces at the end of a blank line.
func indent(lines []string, first, rest string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		prefix := rest
		if i == 0 {
			prefix = first
		}
		out[i] = prefix + line
		if line == "" {
			out[i] = strings.TrimRight(out[i], " ")
		}
	}
	return out
}

// onlyColours removes all control sequences and characters of s except SGR (colours and styles) and line breaks.
func onlyColours(s string) string {
	var b strings.Builder
	for {
		i := strings.Index(s, "\x1b[")
		if i < 0 {
			b.WriteString(plain(s))
			return b.String()
		}
		b.WriteString(plain(s[:i]))
		s = s[i:]
		end := 2
		for end < len(s) && (s[end] >= '0' && s[end] <= '9' || s[end] == ';') {
			end++
		}
		if end < len(s) && s[end] == 'm' {
			b.WriteString(s[:end+1])
			s = s[end+1:]
		} else {
			s = s[2:] // without "\x1b[" the parameters are plain text
		}
	}
}
