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

	// Work between two polls of the context, in bytes of text times Matcher.work. A Multiline search that polls is
	// slower, as it cannot skip to a literal, so a search of at most maxUnpolled, some tenths of a second, does not poll.
	pollEvery   = 2 << 20
	maxUnpolled = 32 << 20
)

// A Line is a line that matches, or a line of context.
type Line struct {
	Number int    // from 1
	Text   []byte // without the line end; valid until the next Line
	Match  bool   // false for a line of context
	Gap    bool   // lines were skipped since the previous Line
}

// ErrBinary is returned by [Searcher.Search] for data that is not text.
var ErrBinary = errors.New("binary file")

// A Searcher searches one text after another. It is not safe for concurrent use.
type Searcher struct {
	matcher *Matcher
	dfa     *dfa
	finders []finder
	buf     []byte

	// The state of one search.
	yield      func(Line) bool
	end        int // the end, in buf, of the data that was read
	yielded    int // the end, in buf, of the last line that was yielded; -1 if the line is no longer in buf
	hasYielded bool
	afterLeft  int // lines of context still to yield after the last match
	counted    int // the offset in buf up to which lines were counted
	lineNo     int // the number of the line at counted
}

// NewSearcher returns a new searcher.
func (m *Matcher) NewSearcher() *Searcher {
	s := &Searcher{matcher: m, dfa: newDFA(m.prog), buf: make([]byte, windowSize)}
	for _, l := range m.literals {
		s.finders = append(s.finders, newFinder(l))
	}
	return s
}

// Search calls yield for each line of r that matches and for the lines of context, in order, until yield
// returns false. It fails with ErrBinary, before any line, if r is not text, if r fails, and soon after ctx has ended.
func (s *Searcher) Search(ctx context.Context, r io.Reader, yield func(Line) bool) error {
	s.yield = yield
	s.end, s.yielded, s.counted, s.afterLeft, s.lineNo, s.hasYielded = 0, 0, 0, 0, 1, false
	if s.matcher.Multiline {
		return s.searchAll(ctx, r)
	}
	pos := 0 // the data before pos was searched
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
		limit := s.end // of the lines that are searched now
		if !eof {
			if i := bytes.LastIndexByte(s.buf[pos:s.end], '\n'); i >= 0 {
				limit = pos + i + 1
			} else if s.end-pos < maxWindow {
				limit = pos // read more of the line
			}
		}
		goOn := s.searchLines(ctx, pos, limit)
		if err := ctx.Err(); err != nil || !goOn || eof {
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

// makeRoom moves the data from pos, and the context before pos that was not yielded, to the front of the buffer, and
// grows the buffer if it is more than half full. It returns the new pos.
func (s *Searcher) makeRoom(pos int) int {
	keep := max(s.yielded, s.back(pos, s.matcher.Before))
	s.numberAt(keep) // counts the lines that are dropped
	copy(s.buf, s.buf[keep:s.end])
	s.end -= keep
	s.yielded = max(-1, s.yielded-keep)
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

// searchLines yields the matches in buf[pos:limit], which are whole lines. It returns false if the search must end.
func (s *Searcher) searchLines(ctx context.Context, pos, limit int) bool {
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
	return s.yieldAfter(limit)
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
		if s.matcher.exact || s.dfa.matchLine(bare(text[start:end])) {
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
	if !s.yieldAfter(start) {
		return false
	}
	first := max(s.yielded, s.back(start, s.matcher.Before))
	gap := s.hasYielded && first > s.yielded
	for at := first; at < start; {
		_, lineEnd := lineAt(s.buf[:start], at)
		if !s.emit(at, lineEnd, false, gap) {
			return false
		}
		at, gap = lineEnd, false
	}
	s.afterLeft = s.matcher.After
	return s.emit(start, end, true, gap)
}

// yieldAfter yields the lines of context after the last match, up to limit.
func (s *Searcher) yieldAfter(limit int) bool {
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
	return s.yield(Line{Number: s.numberAt(start), Text: bare(s.buf[start:end]), Match: match, Gap: gap})
}

// numberAt returns the number of the line at pos. Successive calls must not decrease pos.
func (s *Searcher) numberAt(pos int) int {
	if s.matcher.NoNumbers {
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
	re := s.matcher.re
	for pos := 0; pos < len(text); re = s.matcher.reRest {
		loc := findPolling(ctx, re, text[pos:], s.matcher.work)
		if err := ctx.Err(); err != nil {
			return err
		}
		if loc == nil || pos+loc[0] == len(text) && text[len(text)-1] == '\n' { // after the last line
			break
		}
		start, _ := lineAt(text, min(pos+loc[0], len(text)-1)) // an empty match may be at the end of text
		_, end := lineAt(text, max(start, pos+loc[1]-1))       // a match that ends with a line end does not reach the next line
		for at := start; at < end; {
			_, lineEnd := lineAt(text, at)
			if !s.yieldMatch(at, lineEnd) {
				return nil
			}
			at = lineEnd
		}
		pos = end
	}
	s.yieldAfter(len(text))
	return nil
}

// findPolling is re.FindIndex for a pattern that costs work for each byte. If ctx ends, the result is invalid.
func findPolling(ctx context.Context, re *regexp.Regexp, text []byte, work int) []int {
	if len(text)*work <= maxUnpolled {
		return re.FindIndex(text)
	}
	return re.FindReaderIndex(&pollingReader{text: text, interval: pollEvery / work, ctxErr: ctx.Err})
}

// A pollingReader reads text, and fails when ctxErr returns an error.
type pollingReader struct {
	text     []byte
	pos      int
	nextPoll int // the pos of the next poll
	interval int // bytes between two polls
	ctxErr   func() error
}

// ReadRune implements [io.RuneReader].
func (p *pollingReader) ReadRune() (r rune, size int, err error) {
	if p.pos >= p.nextPoll {
		if err := p.ctxErr(); err != nil {
			return 0, 0, err
		}
		p.nextPoll = p.pos + p.interval
	}
	if p.pos == len(p.text) {
		return 0, 0, io.EOF
	}
	r, size = utf8.DecodeRune(p.text[p.pos:])
	p.pos += size
	return r, size, nil
}

// mayMatch reports whether one of the literals, if there are any, occurs in text.
func (s *Searcher) mayMatch(text []byte) bool {
	for i := range s.finders {
		s.finders[i].reset()
		if s.finders[i].next(text, 0) != none {
			return true
		}
	}
	return s.finders == nil
}
