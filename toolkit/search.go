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
	postings map[string][]posting // by word
	names    [][]nameWord         // the names of the entries
}

// A posting says how often a word occurs in a tool.
type posting struct {
	entry     int32   // index in searchIndex.entries
	frequency float32 // the word's occurrences, each weighted by field and field length
}

// A nameWord is a word of a tool's name.
type nameWord struct {
	word     string
	meanings []string // see wordLists
	idf      float64
}

// The fields of a tool.
const (
	nameField = iota
	titleField
	textField
	paramField
	groupField
)

// weights are what a word of each field counts. The weights and the constants below were chosen with
// testdata/questions_tuned.jsonl; values near them find as many tools.
var weights = [...]float32{nameField: 4, titleField: 2, textField: 1, paramField: 0.5, groupField: 0.5}

const (
	bm25K         = 1.2  // how soon more occurrences of a word stop adding to the score
	bm25B         = 0.75 // how much the length of a field counts, 0 to 1
	nameBonus     = 2.0  // a query with all words of the name multiplies the score by 1 + nameBonus
	maxQueryWords = 64   // later words of a query are ignored
	minHitShare   = 0.4  // tools with a smaller share of the best score are no hits
)

// newSearchIndex indexes all tools, hidden or not: each search filters by visibility.
func newSearchIndex(c *catalogue) *searchIndex {
	x := &searchIndex{entries: c.entries, postings: map[string][]posting{}}
	groupWords := make([][]string, len(c.groups))
	for i, g := range c.groups {
		groupWords[i] = slices.Concat(words(g.Name), words(g.Title), words(g.Description))
	}
	fields := make([]fieldWords, len(c.entries))
	var meanLengths [len(weights)]float32
	for i, e := range c.entries {
		info := e.tool.Info()
		fields[i] = fieldWords{nameField: words(info.Name), titleField: words(info.Title),
			textField: words(info.Description), paramField: parameterWords(info.Input)}
		for _, g := range e.groups {
			fields[i][groupField] = append(fields[i][groupField], groupWords[g]...)
		}
		for f, ws := range fields[i] {
			meanLengths[f] += float32(len(ws)) / float32(len(c.entries))
		}
	}
	for i, fs := range fields {
		x.add(i, fs, meanLengths)
	}
	for _, fs := range fields { // idf needs all postings
		var name []nameWord
		for _, w := range fs[nameField] {
			name = append(name, nameWord{w, lists().meanings[w], x.idf(w)})
		}
		x.names = append(x.names, name)
	}
	return x
}

// fieldWords are the words of each field of a tool.
type fieldWords [len(weights)][]string

// add indexes the words of the entry with index i. meanLengths are the mean numbers of words in each field of all tools.
func (x *searchIndex) add(i int, fields fieldWords, meanLengths [len(weights)]float32) {
	frequencies := map[string]float32{}
	for f, ws := range fields {
		weight := weights[f] / (1 - bm25B + bm25B*float32(len(ws))/max(meanLengths[f], 1))
		for _, w := range ws {
			frequencies[w] += weight
			for _, m := range lists().meanings[w] {
				frequencies[m] += weight
			}
		}
	}
	for w, n := range frequencies {
		x.postings[w] = append(x.postings[w], posting{int32(i), n})
	}
}

// idf returns the inverse document frequency of a word: rare words count more.
func (x *searchIndex) idf(word string) float64 {
	n := float64(len(x.postings[word]))
	return math.Log(1 + (float64(len(x.entries))-n+0.5)/(n+0.5))
}

// A hit is a tool with its score.
type hit struct {
	*entry
	score float64
}

// find returns at most limit tools that share a word with the query and for which keep returns true, best first; tools
// with equal scores are in order of registration. Tools that score much less than the best are left out.
func (x *searchIndex) find(query string, limit int, keep func(*entry) bool) []*entry {
	scores := make([]float64, len(x.entries))
	ws := queryWords(query)
	for _, w := range ws {
		idf := x.idf(w)
		for _, p := range x.postings[w] {
			scores[p.entry] += idf * float64(p.frequency) / (float64(p.frequency) + bm25K)
		}
	}
	var hits []hit
	for i, score := range scores {
		if score > 0 && keep(x.entries[i]) {
			hits = append(hits, hit{x.entries[i], score * (1 + nameBonus*nameShare(x.names[i], ws))})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(b.score, a.score) })
	var out []*entry
	for _, h := range hits[:min(limit, len(hits))] {
		if h.score >= minHitShare*hits[0].score {
			out = append(out, h.entry)
		}
	}
	return out
}

// nameShare returns the share of a name's words, weighted by idf, that are in the query.
func nameShare(name []nameWord, query []string) float64 {
	found, all := 0.0, 0.0
	inQuery := func(w string) bool { return slices.Contains(query, w) }
	for _, n := range name {
		all += n.idf
		if inQuery(n.word) || slices.ContainsFunc(n.meanings, inQuery) {
			found += n.idf
		}
	}
	return found / max(all, 1) // at least 1, so that a name of frequent words alone gets no full bonus
}

//go:embed text/stop_words.txt
var stopText string

//go:embed text/same_words.txt
var sameText string

// wordLists are the stop words, which searches ignore in queries, and the meanings of words in names of tools. A line of
// same_words.txt has the words with one meaning, which is called "~" and the first of the words.
type wordLists struct {
	stop     map[string]bool
	meanings map[string][]string // by word
}

var lists = sync.OnceValue(func() (l wordLists) {
	l.stop, l.meanings = map[string]bool{}, map[string][]string{}
	for _, w := range words(stopText) {
		l.stop[w] = true
	}
	for line := range strings.Lines(sameText) {
		ws := words(line)
		for _, w := range ws {
			l.meanings[w] = append(l.meanings[w], "~"+ws[0])
		}
	}
	return l
})

// queryWords returns the distinct words to search for: the words of the query, pairs of neighbours as one
// word ("to do" is todo), and the meanings of these words.
func queryWords(query string) []string {
	var out []string
	previous := ""
	all := words(query)
	for _, w := range all[:min(maxQueryWords, len(all))] {
		add := slices.Clone(lists().meanings[w])
		if previous != "" {
			add = append(append(add, lists().meanings[previous+w]...), previous+w)
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
// letters nor digits and before the capitals of camelCase, and removes their endings.
func words(text string) []string {
	var out []string
	start := -1 // of the current word; -1 between words
	var prev rune
	endWord := func(i int) {
		if start >= 0 {
			out = append(out, stem(strings.ToLower(text[start:i])))
		}
		start = -1
	}
	for i, r := range text {
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
	endWord(len(text))
	return out
}

// stem removes the usual endings of English nouns and verbs.
func stem(w string) string {
	cut := func(suffix string, minRest int) bool { // minRest: the bytes that must remain
		if len(w) >= len(suffix)+minRest && strings.HasSuffix(w, suffix) {
			w = w[:len(w)-len(suffix)]
			return true
		}
		return false
	}
	switch {
	case cut("ies", 3):
		return w + "y"
	case !strings.HasSuffix(w, "ss"): // as in access
		cut("s", 2)
	}
	if cut("ing", 3) || cut("ed", 3) {
		// running is run, but passing is pass and calling is call
		if n := len(w); n > 3 && w[n-1] == w[n-2] && w[n-1] != 's' && w[n-1] != 'l' {
			w = w[:n-1]
		}
	}
	if !cut("ment", 4) {
		cut("e", 3) // as in create, since creating loses its e
	}
	return w
}

// parameterWords returns the words of the names and descriptions of a schema's properties, in random order.
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
