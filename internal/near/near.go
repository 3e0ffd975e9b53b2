// Package near finds the names that were most likely meant by one that is not
// there.
package near

import (
	"cmp"
	"slices"
	"strings"
)

// longest is how many bytes of a name are compared.
const longest = 128

// Names returns at most n of the known names that resemble word, the most alike
// first: those that differ by a third of its letters or less, and those that
// hold it or are held by it. Of two that are as much alike the first is the one with more of
// the letters of word. Case, blanks and punctuation do not count.
func Names(word string, known []string, n int) []string {
	type candidate struct {
		name    string
		cost    int
		letters int // see letters
	}
	word = fold(word)
	limit := (len(word) + 1) / 3
	var found []candidate
	for _, name := range known {
		folded := fold(name)
		cost := distance(word, folded)
		if len(word) > 2 && strings.Contains(folded, word) || len(folded) > 2 && strings.Contains(word, folded) {
			cost = min(cost, limit)
		}
		if word != "" && cost <= limit {
			found = append(found, candidate{name, cost, letters(word, folded)})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.letters, b.letters))
	})
	var names []string
	for _, f := range found[:min(n, len(found))] {
		names = append(names, f.name)
	}
	return names
}

// Typos is Names for a word that is compared with names of other things, too: only names are
// returned that differ by a slip, which is one letter in six, and one in a short name.
func Typos(word string, known []string, n int) []string {
	folded := fold(word)
	slip := min((len(folded)+1)/3, max(1, len(folded)/6))
	return Names(word, slices.DeleteFunc(slices.Clone(known), func(name string) bool { return distance(folded, fold(name)) > slip }), n)
}

var blanks = strings.NewReplacer("_", "", "-", "", " ", "", ".", "")

func fold(name string) string {
	return blanks.Replace(strings.ToLower(name[:min(len(name), longest)]))
}

// distance counts the edits that make a into b: to insert, remove or replace a
// byte, or to swap two neighbours.
func distance(a, b string) int {
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		cur[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			cur[j+1] = min(prev[j]+cost, prev[j+1]+1, cur[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				cur[j+1] = min(cur[j+1], before[j-1]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}

// letters counts the bytes that only one of a and b has.
func letters(a, b string) int {
	var n [256]int
	for i := range len(a) {
		n[a[i]]++
	}
	for i := range len(b) {
		n[b[i]]--
	}
	sum := 0
	for _, d := range n {
		sum += max(d, -d)
	}
	return sum
}
