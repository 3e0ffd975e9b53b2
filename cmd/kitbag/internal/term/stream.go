package term

import "strings"

// A stream splits Markdown that arrives in pieces into blocks.
type stream struct{ rest string }

// add appends text and returns the blocks that are complete, or "".
func (s *stream) add(text string) (done string) {
	s.rest += text
	if !strings.Contains(text, "\n") {
		return ""
	}
	n := completeBlocks(s.rest)
	done, s.rest = s.rest[:n], s.rest[n:]
	return done
}

// end returns the rest.
func (s *stream) end() string {
	rest := s.rest
	s.rest = ""
	return rest
}

// completeBlocks returns the length of the complete blocks at the beginning of s, whose end is still missing. A block
// ends at a blank line if the next line cannot belong to the block: a line that is not indented and, after a list or a
// quotation, does not continue it. The last line counts only if it is complete.
func completeBlocks(s string) (n int) {
	fence, blank, first := "", false, ""
	for at := 0; at < len(s); {
		end := strings.IndexByte(s[at:], '\n')
		if end < 0 {
			break
		}
		line := s[at : at+end]
		trimmed := strings.TrimSpace(line)
		if fence == "" && trimmed != "" {
			if blank && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") && !(isItem(trimmed) && isItem(first)) {
				n, first = at, ""
			}
			if first == "" {
				first = trimmed
			}
		}
		if mark := fenceOf(trimmed); mark != "" && (fence == "" || strings.HasPrefix(mark, fence) && strings.Trim(trimmed, mark[:1]) == "") {
			if fence == "" {
				fence = mark
			} else {
				fence = ""
			}
		}
		blank = trimmed == "" && fence == ""
		at += end + 1
	}
	return n
}

// fenceOf returns the mark that begins or ends a block of code; "" for none.
func fenceOf(line string) string {
	for _, c := range []string{"`", "~"} {
		if mark := line[:len(line)-len(strings.TrimLeft(line, c))]; len(mark) >= 3 {
			return mark
		}
	}
	return ""
}

// isItem reports whether a line is an item of a list or part of a quotation.
func isItem(line string) bool {
	if line == "" {
		return false
	}
	rest := strings.TrimLeft(line, "0123456789")
	if len(rest) < len(line) {
		return strings.HasPrefix(rest, ". ") || strings.HasPrefix(rest, ") ")
	}
	return strings.HasPrefix(line, "> ") || strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "* ") || strings.HasPrefix(line, "+ ")
}
