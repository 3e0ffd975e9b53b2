package redact

import (
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Stream replaces secrets in a text that arrives in pieces. It is for one goroutine.
//
// It runs all rules in parallel from every position at which they could match (a Pike machine). A live thread may
// still become a match, so no text after the start of the oldest one is passed on.
type Stream struct {
	r    *Redactor
	held []byte // not passed on yet
	base int    // the length of the text before held
	pos  int    // the length of the text that the machine has read
	prev rune   // the last character read, -1 at the beginning

	alive []thread // sorted by start, each instruction once
	found []span   // the secrets in held, in order, none overlapping
	seen  []bool   // by instruction, while threads are followed
	next  []thread // the threads before the character that is being read
}

// A thread is a possible match: the text since start matches up to pc.
type thread struct {
	pc    uint32
	start int
}

// A span is a match, or several that overlap; the rule is that of the first.
type span struct {
	start, end, rule int
}

// Stream returns a new stream.
func (r *Redactor) Stream() *Stream {
	s := &Stream{r: r, prev: -1}
	if r != nil {
		s.seen = make([]bool, len(r.insts))
	}
	return s
}

// Write adds the next piece and returns the text that can be passed on now.
func (s *Stream) Write(piece string) string {
	if s.r == nil {
		return piece
	}
	s.held = append(s.held, piece...)
	for utf8.FullRune(s.held[s.pos-s.base:]) {
		s.read()
	}
	limit := s.pos
	if len(s.alive) > 0 {
		limit = s.alive[0].start
	}
	return s.release(limit)
}

// Close returns what is left. The stream must not be used any more.
func (s *Stream) Close() string {
	if s.r == nil {
		return ""
	}
	for s.pos-s.base < len(s.held) { // a character that was cut off
		s.read()
	}
	for _, t := range s.alive { // some may match at the end
		s.follow(t.pc, t.start, -1)
	}
	return s.release(s.pos)
}

// read feeds the next character of held to the machine.
func (s *Stream) read() {
	rest := s.held[s.pos-s.base:]
	c, n := utf8.DecodeRune(rest)
	s.step(c, rest[0])
	s.pos, s.prev = s.pos+n, c
}

// step feeds c, whose first byte is first: it follows the empty transitions before c, then matches c.
func (s *Stream) step(c rune, first byte) {
	starts := s.r.byFirst[first]
	if len(s.alive) == 0 && len(starts) == 0 {
		return
	}
	s.next = s.next[:0]
	for _, t := range s.alive {
		s.follow(t.pc, t.start, c)
	}
	for _, rule := range starts {
		s.follow(s.r.starts[rule], s.pos, c)
	}
	clear(s.seen)
	// Threads are sorted by start. If two are at the same instruction, the later one can
	// match nothing that the earlier one does not.
	s.alive = s.alive[:0]
	for _, t := range s.next {
		in := &s.r.insts[t.pc]
		if in.MatchRune(c) && !s.seen[in.Out] {
			s.seen[in.Out] = true
			s.alive = append(s.alive, thread{in.Out, t.start})
		}
	}
	clear(s.seen)
}

// follow finds the instructions that pc leads to without reading a character, and
// the matches that end here. c is the next character, -1 at the end.
func (s *Stream) follow(pc uint32, start int, c rune) {
	if s.seen[pc] {
		return
	}
	s.seen[pc] = true
	in := &s.r.insts[pc]
	switch in.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		s.follow(in.Out, start, c)
		s.follow(in.Arg, start, c)
	case syntax.InstCapture, syntax.InstNop:
		s.follow(in.Out, start, c)
	case syntax.InstEmptyWidth:
		if in.MatchEmptyWidth(s.prev, c) {
			s.follow(in.Out, start, c)
		}
	case syntax.InstMatch:
		s.match(span{start, s.pos, in.rule})
	case syntax.InstFail:
	default:
		s.next = append(s.next, thread{pc, start})
	}
}

// match adds a match, which ends no earlier than those found before. Matches that overlap become one, since none of
// their text may be shown.
func (s *Stream) match(m span) {
	for n := len(s.found); n > 0 && s.found[n-1].end > m.start; n-- {
		last := s.found[n-1]
		if last.start < m.start || last.start == m.start && last.rule < m.rule {
			m.start, m.rule = last.start, last.rule
		}
		s.found = s.found[:n-1]
	}
	s.found = append(s.found, m)
}

// release passes on the text before limit, or before the secret that contains limit. No later match can begin
// before limit, so each secret gets one placeholder however the text was cut.
func (s *Stream) release(limit int) string {
	// The number of secrets before the limit: a binary search, since one thread may hold back many.
	n, _ := slices.BinarySearchFunc(s.found, limit+1, func(m span, end int) int { return m.end - end })
	if n < len(s.found) {
		limit = min(limit, s.found[n].start)
	}
	var out strings.Builder
	at := s.base
	for _, m := range s.found[:n] {
		out.Write(s.held[at-s.base : m.start-s.base])
		out.WriteString(placeholder(s.r.rules[m.rule].Name))
		at = m.end
	}
	text := string(s.held[at-s.base : limit-s.base])
	s.found = slices.Delete(s.found, 0, n)
	s.held, s.base = s.held[limit-s.base:], limit
	if n == 0 {
		return text
	}
	return out.String() + text
}
