package builtin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

const separator = "--" // between groups of lines

// hits collects the results of a search, which may be added in any order. It sorts them by path, and keeps little more
// than the results to show.
type hits struct {
	offset, limit int
	separate      bool // put separators between groups of lines

	lastNeeded atomic.Pointer[string] // path of the last file whose results are needed; nil while any file may be needed
	mu         sync.Mutex
	files      []fileHits // sorted by path
	lineCount  int        // lines of all files
}

type fileHits struct {
	path  string
	lines []string
}

// wanted returns how many results are needed: one more than are skipped and shown, to know whether there are more.
func (h *hits) wanted() int { return h.offset + h.limit + 1 }

// notNeeded reports whether path is sorted after all results that are needed. All workers call it before they open a
// file, so it takes no lock: an outdated answer only costs a needless search.
func (h *hits) notNeeded(path string) bool {
	last := h.lastNeeded.Load()
	return last != nil && path > *last
}

func (h *hits) add(path string, lines []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, _ := slices.BinarySearchFunc(h.files, path, func(f fileHits, p string) int { return cmp.Compare(f.path, p) })
	h.files = slices.Insert(h.files, i, fileHits{path, lines})
	h.lineCount += len(lines)
	for { // drop the last file while the files before it have all results that are needed
		end := len(h.files) - 1
		linesBefore := h.lineCount - len(h.files[end].lines)
		if linesBefore < h.wanted() {
			break
		}
		h.lineCount, h.files = linesBefore, slices.Delete(h.files, end, end+1)
	}
	if h.lineCount >= h.wanted() {
		last := h.files[len(h.files)-1].path
		h.lastNeeded.Store(&last)
	}
}

// page returns the results to show and whether there are more.
func (h *hits) page() (lines []string, hasMore bool) {
	for i, f := range h.files {
		if h.separate && i > 0 {
			lines = append(lines, separator)
		}
		lines = append(lines, f.lines...)
	}
	lines = lines[min(h.offset, len(lines)):]
	if len(lines) <= h.limit {
		return lines, false
	}
	return lines[:h.limit], true
}

// text returns the text for the model.
func (s *grepSearch) text(w *walk, timedOut bool) string {
	lines, hasMore := s.hits.page()
	var b strings.Builder
	shown := 0
	for _, l := range lines {
		if b.Len()+len(l) > maxGrepText {
			hasMore = true
			break
		}
		b.WriteString(l + "\n")
		shown++
	}
	switch {
	case shown == 0 && s.hits.offset > 0 && len(s.hits.files) > 0:
		fmt.Fprintf(&b, "No more matches after the first %d.\n", s.hits.offset)
	case shown == 0:
		fmt.Fprintf(&b, "No matches found for pattern: %s\n[searched %s; files that .gitignore excludes and binary files are not searched]\n", s.in.Pattern, s.root)
	case hasMore:
		fmt.Fprintf(&b, "\n[there are more results: continue with offset %d]\n", s.hits.offset+shown)
	}
	b.WriteString(strings.Join(s.notes, "") + w.notes(timedOut))
	return strings.TrimSuffix(b.String(), "\n")
}
