package toolkit

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"unicode"
)

// A searchIndex ranks the tools of a catalogue by BM25. It weights the words of a tool's
// name, title, description, parameters and groups differently.
type searchIndex struct {
	entries  []*entry
	postings map[string][]posting
	length   []float64 // weighted number of words, by entry
	mean     float64
}

// A posting says how often a word occurs in a tool.
type posting struct {
	doc int32
	tf  float32 // weighted
}

// A word in the name says more about a tool than one in the description.
const (
	nameWeight  = 4
	titleWeight = 2
	textWeight  = 1
	paramWeight = 0.5
	groupWeight = 0.5
)

// The usual constants of BM25.
const (
	bm25K = 1.2
	bm25B = 0.75
)

// newSearchIndex indexes all tools, hidden or not: each search filters by visibility.
func newSearchIndex(c *catalogue) *searchIndex {
	x := &searchIndex{entries: c.entries, postings: map[string][]posting{}, length: make([]float64, len(c.entries))}
	groupWords := make([][]string, len(c.groups))
	for i, g := range c.groups {
		groupWords[i] = slices.Concat(words(g.Name), words(g.Title), words(g.Description))
	}
	for d, e := range c.entries {
		tf := map[string]float32{}
		add := func(weight float32, ws []string) {
			for _, w := range ws {
				tf[w] += weight
				x.length[d] += float64(weight)
			}
		}
		info := e.tool.Info()
		add(nameWeight, words(info.Name))
		add(titleWeight, words(info.Title))
		add(textWeight, words(info.Description))
		add(paramWeight, parameterWords(info.Input))
		for _, g := range e.groups {
			add(groupWeight, groupWords[g])
		}
		for w, n := range tf {
			x.postings[w] = append(x.postings[w], posting{int32(d), n})
		}
		x.mean += x.length[d] / float64(len(c.entries))
	}
	return x
}

// find returns the tools that share a word with the query and for which keep
// returns true, best first; of equals the one that was registered first.
func (x *searchIndex) find(query string, limit int, keep func(*entry) bool) []*entry {
	scores := make([]float64, len(x.entries))
	seen := map[string]bool{}
	for _, w := range words(query) {
		list := x.postings[w]
		if seen[w] || len(list) == 0 {
			continue
		}
		seen[w] = true
		n := float64(len(list))
		idf := math.Log(1 + (float64(len(x.entries))-n+0.5)/(n+0.5))
		for _, p := range list {
			tf := float64(p.tf)
			norm := bm25K * (1 - bm25B + bm25B*x.length[p.doc]/x.mean)
			scores[p.doc] += idf * tf * (bm25K + 1) / (tf + norm)
		}
	}
	var top []int
	for d, score := range scores {
		if score == 0 || len(top) == limit && score <= scores[top[limit-1]] || !keep(x.entries[d]) {
			continue
		}
		at := len(top)
		for at > 0 && scores[top[at-1]] < score {
			at--
		}
		top = slices.Insert(top, at, d)
		top = top[:min(limit, len(top))]
	}
	out := make([]*entry, len(top))
	for i, d := range top {
		out[i] = x.entries[d]
	}
	return out
}

// words splits a query or text into lower-case words, at characters that are neither
// letters nor digits and before the capitals of camelCase. A plural loses its s.
func words(s string) []string {
	var out []string
	start := -1
	var prev rune
	end := func(i int) {
		if start >= 0 {
			w := strings.ToLower(s[start:i])
			if len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") {
				w = w[:len(w)-1]
			}
			out = append(out, w)
		}
		start = -1
	}
	for i, r := range s {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end(i)
		case start < 0:
			start = i
		case unicode.IsUpper(r) && unicode.IsLower(prev):
			end(i)
			start = i
		}
		prev = r
	}
	end(len(s))
	return out
}

// parameterWords returns the words of the names and descriptions of a schema's
// properties.
func parameterWords(input json.RawMessage) []string {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(input, &s) != nil {
		return nil
	}
	var out []string
	for name, raw := range s.Properties {
		var p struct {
			Description string `json:"description"`
		}
		out = append(out, words(name)...)
		if json.Unmarshal(raw, &p) == nil {
			out = append(out, words(p.Description)...)
		}
	}
	return out
}
