package skill

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// nearest gives the names that may have been meant by word, the best first and
// at most n: those that differ by few letters, and those that hold it.
func nearest(word string, names []string, n int) []string {
	type scored struct {
		name string
		cost int
	}
	word = strings.ToLower(word)
	var near []scored
	for _, name := range names {
		lower := strings.ToLower(name)
		cost := distance(word, lower)
		if len(word) > 2 && strings.Contains(lower, word) {
			cost = min(cost, 1)
		}
		if cost <= 1+len(word)/4 {
			near = append(near, scored{name, cost})
		}
	}
	slices.SortStableFunc(near, func(a, b scored) int { return cmp.Compare(a.cost, b.cost) })
	var out []string
	for _, s := range near[:min(n, len(near))] {
		out = append(out, s.name)
	}
	return out
}

// distance counts the letters to insert, remove or replace to make a into b. It
// gives up beyond 64 bytes, the longest name there may be.
func distance(a, b string) int {
	if len(a) > maxName || len(b) > maxName {
		return max(len(a), len(b))
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// quote shows a text from a file in a message, short and on one line.
func quote(text string) string { return strconv.Quote(clip(text, 80)) }

// clip cuts text to at most n bytes, at the boundary of a character.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}
