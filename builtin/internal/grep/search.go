package grep

import (
	"bytes"
	"context"
	"errors"
	"io"
	"regexp"
	"unicode/utf8"
)

const (
	windowSize = 256 << 10 // bytes that are searched at once
	maxWindow  = 16 << 20  // the longest line; a longer one is split
	maxFile    = 64 << 20  // how much of a file a Multiline search reads
	sniffLen   = 8 << 10   // a zero byte in the first sniffLen bytes makes a file binary

	// The most work between two polls of the context, in bytes of text times Matcher.work: some tenths of a second.
	// A Multiline search that polls is slower, as it cannot skip to a literal, so small searches do not poll.
	maxUnpolled = 32 << 20
	pollEvery   = 2 << 20
)

// A Line is a line that matches, or a line of context.
type Line struct {
	Number int    // from 1
	Text   []byte // without its end; valid until the next line
	Match  bool   // false for a line of context
	Gap    bool   // lines between the previous one and this were skipped
}

// ErrBinary is returned by [Searcher.Search] for data that is not text.
var ErrBinary = errors.New("binary file")

// A Searcher searches one text after another. It is not safe for concurrent use.
type Searcher struct {
	m       *Matcher
	dfa     *dfa
	finders []finder
	buf     []byte

	// The state of one search. Offsets count from the start of buf.
	yield      func(Line) bool
	end        int // of the data that was read
	yielded    int // end of the last line that was yielded
	hasYielded bool
	afterLeft  int // lines of context still to yield after the last match
	lineNo     int // number of the line at counted
	counted    int
}

// NewSearcher returns a new searcher.
func (m *Matcher) NewSearcher() *Searcher {
	s := &Searcher{m: m, dfa: newDFA(m.prog), buf: make([]byte, windowSize)}
	for _, l := range m.literals {
		s.finders = append(s.finders, newFinder(l))
	}
	return s
}

// Search calls yield for each line of r that matches and for the lines of context, in order, until yield
// returns false. It fails with ErrBinary, before any line, if r is not text, with the errors of r, and with the
// error of ctx, which it polls at each read and while it searches the text.
func (s *Searcher) Search(ctx context.Context, r io.Reader, yield func(Line) bool) error {
	s.yield = yield
	s.end, s.yielded, s.counted, s.afterLeft, s.lineNo, s.hasYielded = 0, 0, 0, 0, 1, false
	if s.m.Multiline {
		return s.searchAll(ctx, r)
	}
	pos := 0 // everything before it was searched
	for first := true; ; first = false {
		eof, err := s.fill(ctx, r)
		if err != nil {
			return err
		}
		if first {
			if bytes.IndexByte(s.buf[:min(s.end, sniffLen)], 0) >= 0 {
				return ErrBinary
			}
			s.dropBOM()
		}
		limit := s.end
		if !eof {
			if i := bytes.LastIndexByte(s.buf[pos:s.end], '\n'); i >= 0 {
				limit = pos + i + 1
			} else if s.end-pos < maxWindow {
				s.makeRoom(pos)
				continue
			}
		}
		more := s.lines(ctx, pos, limit)
		if err := ctx.Err(); err != nil || !more || eof {
			return err
		}
		pos = s.makeRoom(limit)
	}
}

// fill reads until the buffer is full or r ends.
func (s *Searcher) fill(ctx context.Context, r io.Reader) (eof bool, err error) {
	for s.end < len(s.buf) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n, err := r.Read(s.buf[s.end:])
		s.end += n
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// dropBOM removes the byte order mark, so that "^" matches after it.
func (s *Searcher) dropBOM() {
	if rest, marked := bytes.CutPrefix(s.buf[:s.end], []byte("\uFEFF")); marked {
		s.end = copy(s.buf, rest)
	}
}

// makeRoom moves the data that is still needed, which begins with the context before pos, to the
// front of the buffer, and grows the buffer if it is more than half full. It returns the new pos.
func (s *Searcher) makeRoom(pos int) int {
	keep := max(min(s.yielded, pos), s.back(pos, s.m.Before))
	s.number(keep)
	copy(s.buf, s.buf[keep:s.end])
	s.end -= keep
	s.yielded = max(-1, s.yielded-keep) // -1 if lines in between were not yielded
	s.counted = 0
	if s.end > len(s.buf)/2 {
		s.buf = append(s.buf, make([]byte, len(s.buf))...)
	}
	return pos - keep
}

// back returns the start of the line that is n lines before pos, the start of a line.
func (s *Searcher) back(pos, n int) int {
	for ; n > 0 && pos > 0; n-- {
		pos = bytes.LastIndexByte(s.buf[:pos-1], '\n') + 1
	}
	return pos
}

// lines yields the matches in buf[pos:limit], which are whole lines. It returns false if the search has ended.
func (s *Searcher) lines(ctx context.Context, pos, limit int) bool {
	text := s.buf[:limit]
	s.dfa.begin(ctx)
	for i := range s.finders {
		s.finders[i].reset()
	}
	for pos < limit {
		start, end := s.nextMatch(text, pos)
		if s.dfa.stopped {
			return false
		}
		if start < 0 {
			break
		}
		if !s.yieldMatch(start, end) {
			return false
		}
		pos = end
	}
	return s.context(limit)
}

// nextMatch returns the first matching line at or after pos, with its end.
func (s *Searcher) nextMatch(text []byte, pos int) (start, end int) {
	if s.finders == nil {
		i := s.dfa.find(text[pos:])
		if i < 0 {
			return -1, -1
		}
		return lineAt(text, pos+i)
	}
	for pos < len(text) {
		hit := none
		for i := range s.finders {
			hit = min(hit, s.finders[i].next(text, pos))
		}
		if hit == none {
			break
		}
		start, end = lineAt(text, hit)
		if s.m.exact || s.dfa.matchLine(bare(text[start:end])) {
			return start, end
		}
		pos = end
	}
	return -1, -1
}

// lineAt returns the line that contains the byte at pos.
func lineAt(text []byte, pos int) (start, end int) {
	start = bytes.LastIndexByte(text[:pos], '\n') + 1
	if i := bytes.IndexByte(text[pos:], '\n'); i >= 0 {
		return start, pos + i + 1
	}
	return start, len(text)
}

// bare returns line without its end.
func bare(line []byte) []byte {
	line, ended := bytes.CutSuffix(line, []byte{'\n'})
	if ended {
		line = bytes.TrimSuffix(line, []byte{'\r'})
	}
	return line
}

// yieldMatch yields the matching line buf[start:end] and the context before it.
func (s *Searcher) yieldMatch(start, end int) bool {
	if !s.context(start) {
		return false
	}
	first := max(s.yielded, s.back(start, s.m.Before))
	gap := s.hasYielded && first > s.yielded
	for at := first; at < start; {
		_, e := lineAt(s.buf[:start], at)
		if !s.emit(at, e, false, gap) {
			return false
		}
		at, gap = e, false
	}
	s.afterLeft = s.m.After
	return s.emit(start, end, true, gap)
}

// context yields the lines of context after the last match, up to limit.
func (s *Searcher) context(limit int) bool {
	for s.afterLeft > 0 && s.yielded < limit {
		_, end := lineAt(s.buf[:limit], s.yielded)
		s.afterLeft--
		if !s.emit(s.yielded, end, false, false) {
			return false
		}
	}
	return true
}

func (s *Searcher) emit(start, end int, match, gap bool) bool {
	s.yielded, s.hasYielded = end, true
	return s.yield(Line{Number: s.number(start), Text: bare(s.buf[start:end]), Match: match, Gap: gap})
}

// number returns the number of the line at pos, which never decreases.
func (s *Searcher) number(pos int) int {
	if s.m.NoNumbers {
		return 0
	}
	if pos > s.counted {
		s.lineNo += bytes.Count(s.buf[s.counted:pos], []byte{'\n'})
		s.counted = pos
	}
	return s.lineNo
}

// searchAll searches a text as a whole.
func (s *Searcher) searchAll(ctx context.Context, r io.Reader) error {
	for {
		eof, err := s.fill(ctx, r)
		if err != nil {
			return err
		}
		if bytes.IndexByte(s.buf[:min(s.end, sniffLen)], 0) >= 0 {
			return ErrBinary
		}
		if eof || s.end >= maxFile {
			break
		}
		s.buf = append(s.buf, make([]byte, len(s.buf))...)
	}
	s.dropBOM()
	text := s.buf[:s.end]
	if !s.mayMatch(text) {
		return nil
	}
	re := s.m.re
	for pos := 0; pos < len(text); re = s.m.reRest {
		loc := find(ctx, re, text[pos:], s.m.work)
		if err := ctx.Err(); err != nil {
			return err
		}
		if loc == nil || pos+loc[0] == len(text) && text[len(text)-1] == '\n' { // after the last line
			break
		}
		start, _ := lineAt(text, min(pos+loc[0], len(text)-1))
		_, end := lineAt(text, max(start, pos+loc[1]-1))
		for at := max(start, s.yielded); at < end; {
			_, e := lineAt(text, at)
			if !s.yieldMatch(at, e) {
				return nil
			}
			at = e
		}
		pos = max(end, pos+1)
	}
	s.context(len(text))
	return nil
}

// find is re.FindIndex for a pattern that costs work for each byte. If ctx ends, the result is invalid.
func find(ctx context.Context, re *regexp.Regexp, text []byte, work int) []int {
	if len(text)*work <= maxUnpolled {
		return re.FindIndex(text)
	}
	return re.FindReaderIndex(&pollingReader{text: text, every: max(pollEvery/max(work, 1), 1), ended: ctx.Err})
}

// A pollingReader is a text that ends when ended returns an error.
type pollingReader struct {
	text      []byte
	pos, poll int // poll is the position of the next poll
	every     int // bytes between two polls
	ended     func() error
}

// ReadRune implements [io.RuneReader].
func (a *pollingReader) ReadRune() (r rune, size int, err error) {
	if a.pos >= a.poll {
		if err := a.ended(); err != nil {
			return 0, 0, err
		}
		a.poll = a.pos + a.every
	}
	if a.pos == len(a.text) {
		return 0, 0, io.EOF
	}
	r, size = utf8.DecodeRune(a.text[a.pos:])
	a.pos += size
	return r, size, nil
}

// mayMatch reports whether one of the literals occurs in text.
func (s *Searcher) mayMatch(text []byte) bool {
	for i := range s.finders {
		s.finders[i].reset()
		if s.finders[i].next(text, 0) != none {
			return true
		}
	}
	return s.finders == nil
}
