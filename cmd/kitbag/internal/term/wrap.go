package term

import (
	"regexp"
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
	out, prefix := make([]string, len(lines)), first
	for i, line := range lines {
		out[i], prefix = prefix+line, rest
		if line == "" {
			out[i] = strings.TrimRight(out[i], " ")
		}
	}
	return out
}

// sequence matches an SGR control sequence (colours and styles), or the beginning of another control sequence.
var sequence = regexp.MustCompile(`\x1b\[([0-9;]*m)?`)

// onlyColours removes all control sequences and characters of s except SGR and line breaks. The parameters of a removed
// sequence stay as text.
func onlyColours(s string) string {
	var b strings.Builder
	for {
		at := sequence.FindStringIndex(s)
		if at == nil {
			b.WriteString(plain(s))
			return b.String()
		}
		b.WriteString(plain(s[:at[0]]))
		if s[at[1]-1] == 'm' {
			b.WriteString(s[at[0]:at[1]])
		}
		s = s[at[1]:]
	}
}
