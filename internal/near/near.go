// Package near suggests the known names most similar to one that does not exist.
package near

import (
	"cmp"
	"slices"
	"strings"
)

// maxCompared is how many bytes of a name are compared.
const maxCompared = 128

// Names returns at most n of the known names that resemble word, the most similar first: those with an edit
// distance of a third of its length (rounded) or less, and those that contain it or are part of it. Ties are broken by the
// number of differing letters. Case, blanks and punctuation do not count.
func Names(word string, known []string, n int) []string {
	type candidate struct {
		name   string
		cost   int
		differ int // see differingLetters
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
			found = append(found, candidate{name, cost, differingLetters(word, folded)})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.differ, b.differ))
	})
	var names []string
	for _, f := range found[:min(n, len(found))] {
		names = append(names, f.name)
	}
	return names
}

// Typos is like Names, for a word that may also be a correct name: it returns only names within the distance of a typing
// error, which is one letter in six, and at least one. Names that differ only in their numbers, such as read1 and read2,
// are different names.
func Typos(word string, known []string, n int) []string {
	folded := fold(word)
	limit := min((len(folded)+1)/3, max(1, len(folded)/6))
	return Names(word, slices.DeleteFunc(slices.Clone(known), func(name string) bool {
		other := fold(name)
		return distance(folded, other) > limit || withoutDigits(folded) == withoutDigits(other) && folded != other
	}), n)
}

func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, s)
}

var blanks = strings.NewReplacer("_", "", "-", "", " ", "", ".", "")

// fold removes what does not count in comparisons: case, blanks, punctuation, and what follows maxCompared bytes.
func fold(name string) string {
	return blanks.Replace(strings.ToLower(name[:min(len(name), maxCompared)]))
}

// distance counts the edits that turn a into b: insert, remove or replace a byte, or swap two neighbours.
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

// differingLetters counts the bytes that only one of a and b contains.
func differingLetters(a, b string) int {
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
