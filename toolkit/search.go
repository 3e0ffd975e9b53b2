package toolkit

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// A searchIndex ranks the tools of a catalogue by BM25F: a word counts more in a tool's name than in its other fields,
// and more in a short field. A tool ranks higher if the query has the words of its name.
type searchIndex struct {
	entries  []*entry
	postings map[string][]posting
	names    [][]nameWord // at the index of the entry
}

// A posting says how often a word occurs in a tool.
type posting struct {
	doc int32
	tf  float32 // the word's occurrences, each weighted by field and field length
}

// A nameWord is a word of a tool's name.
type nameWord struct {
	word string
	same []string // see wordLists
	idf  float64
}

// The fields of a tool.
const (
	nameField = iota
	titleField
	textField
	paramField
	groupField
)

// weights are what a word of each field counts. They and the other constants were chosen with
// testdata/questions_tuned.jsonl, where other values near them find as many tools.
var weights = [...]float32{nameField: 4, titleField: 2, textField: 1, paramField: 0.5, groupField: 0.5}

const (
	bm25K      = 1.2
	bm25B      = 0.75
	nameFactor = 2.0 // what a query that has all words of the name adds to the score
	maxQuery   = 64  // later words of a query are ignored
	hitShare   = 0.4 // the least score of a hit, compared with the best
)

// newSearchIndex indexes all tools, hidden or not: each search filters by visibility.
func newSearchIndex(c *catalogue) *searchIndex {
	x := &searchIndex{entries: c.entries, postings: map[string][]posting{}}
	groupWords := make([][]string, len(c.groups))
	for i, g := range c.groups {
		groupWords[i] = slices.Concat(words(g.Name), words(g.Title), words(g.Description))
	}
	docs := make([][len(weights)][]string, len(c.entries))
	var mean [len(weights)]float32
	for d, e := range c.entries {
		info := e.tool.Info()
		docs[d] = [len(weights)][]string{nameField: words(info.Name), titleField: words(info.Title),
			textField: words(info.Description), paramField: parameterWords(info.Input)}
		for _, g := range e.groups {
			docs[d][groupField] = append(docs[d][groupField], groupWords[g]...)
		}
		for f, ws := range docs[d] {
			mean[f] += float32(len(ws)) / float32(len(c.entries))
		}
	}
	for d, doc := range docs {
		x.add(d, doc, mean)
	}
	for _, doc := range docs {
		var name []nameWord
		for _, w := range doc[nameField] {
			name = append(name, nameWord{w, lists().same[w], x.idf(w)})
		}
		x.names = append(x.names, name)
	}
	return x
}

// add indexes the words of a tool's fields, whose mean lengths are given.
func (x *searchIndex) add(d int, doc [len(weights)][]string, mean [len(weights)]float32) {
	tf := map[string]float32{}
	for f, ws := range doc {
		weight := weights[f] / (1 - bm25B + bm25B*float32(len(ws))/max(mean[f], 1))
		for _, w := range ws {
			tf[w] += weight
			for _, same := range lists().same[w] {
				tf[same] += weight
			}
		}
	}
	for w, n := range tf {
		x.postings[w] = append(x.postings[w], posting{int32(d), n})
	}
}

// idf returns the weight of a word: rare words count more.
func (x *searchIndex) idf(word string) float64 {
	n := float64(len(x.postings[word]))
	return math.Log(1 + (float64(len(x.entries))-n+0.5)/(n+0.5))
}

// A hit is a tool with its score.
type hit struct {
	*entry
	score float64
}

// find returns the tools that share a word with the query and for which keep returns true, best first; of equals the
// one that was registered first. Those that score much less than the best are left out.
func (x *searchIndex) find(query string, limit int, keep func(*entry) bool) []*entry {
	scores := make([]float64, len(x.entries))
	ws := queryWords(query)
	for _, w := range ws {
		idf := x.idf(w)
		for _, p := range x.postings[w] {
			scores[p.doc] += idf * float64(p.tf) / (float64(p.tf) + bm25K)
		}
	}
	var hits []hit
	for d, score := range scores {
		if score > 0 && keep(x.entries[d]) {
			hits = append(hits, hit{x.entries[d], score * (1 + nameFactor*nameShare(x.names[d], ws))})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(b.score, a.score) })
	var out []*entry
	for _, h := range hits[:min(limit, len(hits))] {
		if h.score >= hitShare*hits[0].score {
			out = append(out, h.entry)
		}
	}
	return out
}

// nameShare returns the share of a name's words, weighted by idf, that are in the query.
func nameShare(name []nameWord, query []string) float64 {
	found, all := 0.0, 0.0
	for _, n := range name {
		all += n.idf
		if slices.Contains(query, n.word) || slices.ContainsFunc(n.same, func(w string) bool { return slices.Contains(query, w) }) {
			found += n.idf
		}
	}
	return found / max(all, 1)
}

//go:embed text/stop_words.txt
var stopText string

//go:embed text/same_words.txt
var sameText string

// wordLists are the words that a query does not need, and names for words with the same
// meaning in names of tools. Such a name begins with "~".
type wordLists struct {
	stop map[string]bool
	same map[string][]string
}

var lists = sync.OnceValue(func() (l wordLists) {
	l.stop, l.same = map[string]bool{}, map[string][]string{}
	for _, w := range words(stopText) {
		l.stop[w] = true
	}
	for line := range strings.Lines(sameText) {
		ws := words(line)
		for _, w := range ws {
			l.same[w] = append(l.same[w], "~"+ws[0])
		}
	}
	return l
})

// queryWords returns the distinct words to search for: those of the query, neighbours as one
// word ("to do" is todo), and the names for words with the same meaning.
func queryWords(query string) []string {
	var out []string
	previous := ""
	all := words(query)
	for _, w := range all[:min(maxQuery, len(all))] {
		add := slices.Clone(lists().same[w])
		if previous != "" {
			add = append(append(add, lists().same[previous+w]...), previous+w)
		}
		if !lists().stop[w] {
			add = append(add, w)
		}
		for _, a := range add {
			if !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
		previous = w
	}
	return out
}

// words splits a query or text into lower-case words, at characters that are neither
// letters nor digits and before the capitals of camelCase. A plural loses its s.
func words(s string) []string {
	var out []string
	start := -1
	var prev rune
	endWord := func(i int) {
		if start >= 0 {
			out = append(out, stem(strings.ToLower(s[start:i])))
		}
		start = -1
	}
	for i, r := range s {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			endWord(i)
		case start < 0:
			start = i
		case unicode.IsUpper(r) && unicode.IsLower(prev):
			endWord(i)
			start = i
		}
		prev = r
	}
	endWord(len(s))
	return out
}

// stem removes the usual endings of English nouns and verbs.
func stem(w string) string {
	cut := func(suffix string, least int) bool {
		if len(w) >= len(suffix)+least && strings.HasSuffix(w, suffix) {
			w = w[:len(w)-len(suffix)]
			return true
		}
		return false
	}
	switch {
	case cut("ies", 3):
		return w + "y"
	case strings.HasSuffix(w, "ss"):
	default:
		cut("s", 2)
	}
	if cut("ing", 3) || cut("ed", 3) {
		if n := len(w); n > 3 && w[n-1] == w[n-2] && w[n-1] != 's' && w[n-1] != 'l' {
			w = w[:n-1]
		}
	}
	_ = cut("ment", 4) || cut("e", 3)
	return w
}

// parameterWords returns the words of the names and descriptions of a schema's properties.
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
