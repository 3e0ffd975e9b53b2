package skill

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"unicode"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// A Document is parsed markdown: a skill's body or one of its files.
type Document struct {
	Title    string    // of the first heading; "" if there is none
	Sections []Section // one for each heading, in the order of the text
	Links    []Link    // links and images, in the order of the text

	text string
	refs []Link // code spans that look like the path of a bundled file
}

// A Section is a heading and what is below it, up to the next heading of the same level or a higher one.
type Section struct {
	Title  string
	Anchor string // as on GitHub: lowercase, hyphens for spaces, with -1 for the second heading of that name
	Level  int    // from 1 to 6
	Line   int    // of the heading
	Text   string // the markdown, with the heading and all subsections

	start, introEnd, end int // offsets in the document; introEnd is the start of the first subsection, or end
}

// A Link is a link or an image.
type Link struct {
	Text   string
	Target string // as written
	Line   int
}

// ParseDocument parses markdown (CommonMark). Any text is a document.
func ParseDocument(markdown string) *Document { return parseDocument(markdown, 1) }

// Section finds a section by its anchor, with or without #, or by its title; the case of a title does not matter.
func (d *Document) Section(name string) (Section, bool) {
	anchor := strings.TrimPrefix(strings.TrimSpace(name), "#")
	title := strings.TrimSpace(strings.TrimLeft(name, "# "))
	for _, match := range []func(Section) bool{
		func(s Section) bool { return s.Anchor == anchor },
		func(s Section) bool { return s.Title == title },
		func(s Section) bool { return strings.EqualFold(s.Title, title) },
		func(s Section) bool { return s.Anchor == slug(title) },
	} {
		for _, s := range d.Sections {
			if match(s) {
				return s, true
			}
		}
	}
	return Section{}, false
}

// Outline lists the sections, one per line, indented by their level, each with its anchor.
func (d *Document) Outline() string { return outline(d.Sections) }

func outline(sections []Section) string {
	top := 6
	for _, s := range sections {
		top = min(top, s.Level)
	}
	var b strings.Builder
	for _, s := range sections {
		fmt.Fprintf(&b, "%s- %s (#%s)\n", strings.Repeat("  ", s.Level-top), s.Title, s.Anchor)
	}
	return b.String()
}

var markdownParser = sync.OnceValue(func() parser.Parser {
	return parser.NewParser(
		parser.WithBlockParsers(parser.DefaultBlockParsers()...),
		parser.WithInlineParsers(parser.DefaultInlineParsers()...),
		parser.WithParagraphTransformers(parser.DefaultParagraphTransformers()...),
	)
})

// parseDocument parses body, which begins on the given line of its file.
func parseDocument(body string, line int) *Document {
	src := util.StringToReadOnlyBytes(body)
	root := markdownParser().Parse(text.NewReader(util.StringToReadOnlyBytes(limitMarkup(body))))
	w := &walker{src: src, doc: &Document{text: body}, line: line, anchors: map[string]int{}}
	for n := root.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok {
			w.heading(h)
		}
	}
	_ = ast.Walk(root, w.visit) // visit never fails
	w.closeSections()
	return w.doc
}

// A walker builds a Document from goldmark's tree.
type walker struct {
	src     []byte
	doc     *Document
	anchors map[string]int

	at, line int // the last offset given to lineOf, and its line number
	block    int // the offset of the block that visit is in
}

// lineOf returns the line number of an offset. It counts from the offset of the last call, which is usually near.
func (w *walker) lineOf(offset int) int {
	if offset < w.at {
		w.line -= bytes.Count(w.src[offset:w.at], []byte("\n"))
	} else {
		w.line += bytes.Count(w.src[w.at:offset], []byte("\n"))
	}
	w.at = offset
	return w.line
}

func (w *walker) heading(h *ast.Heading) {
	if h.Lines().Len() == 0 {
		return // a heading without text cannot be referred to
	}
	start := h.Lines().At(0).Start
	start = bytes.LastIndexByte(w.src[:start], '\n') + 1
	title := strings.TrimSpace(inlineText(h, w.src))
	w.doc.Sections = append(w.doc.Sections, Section{
		Title: title, Anchor: w.anchor(title), Level: h.Level, Line: w.lineOf(start), start: start,
	})
	if w.doc.Title == "" {
		w.doc.Title = title
	}
}

// anchor makes an anchor that is not used yet.
func (w *walker) anchor(title string) string {
	base := slug(title)
	for {
		name := base
		if n := w.anchors[base]; n > 0 {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		w.anchors[base]++
		if name == base {
			return name
		}
		if w.anchors[name] == 0 {
			w.anchors[name]++
			return name
		}
	}
}

// slug makes an anchor of a title as GitHub does, which keeps letters of every script.
func slug(title string) string {
	name := strings.Map(func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case c == '-', c == '_', unicode.IsLetter(c), unicode.IsDigit(c), unicode.IsMark(c):
			return unicode.ToLower(c)
		}
		return -1
	}, title)
	if name == "" {
		return "section"
	}
	return name
}

// closeSections sets the end of each section: the next heading of the same level or a higher one.
func (w *walker) closeSections() {
	var open []int // indexes of the sections whose end is not reached, the outermost first
	list := w.doc.Sections
	for i := range list {
		list[i].introEnd, list[i].end = len(w.src), len(w.src)
		if i > 0 {
			list[i-1].introEnd = list[i].start
		}
		for len(open) > 0 && list[open[len(open)-1]].Level >= list[i].Level {
			list[open[len(open)-1]].end = list[i].start
			open = open[:len(open)-1]
		}
		open = append(open, i)
	}
	for i := range list {
		list[i].Text = w.doc.text[list[i].start:list[i].end]
	}
}

func (w *walker) visit(n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	if n.Type() == ast.TypeBlock && n.Lines() != nil && n.Lines().Len() > 0 {
		w.block = n.Lines().At(0).Start
	}
	switch n := n.(type) {
	case *ast.Link:
		w.link(n, string(n.Destination))
	case *ast.Image:
		w.link(n, string(n.Destination))
	case *ast.CodeSpan:
		if span := inlineText(n, w.src); bundledPath().MatchString(span) {
			w.doc.refs = append(w.doc.refs, Link{span, span, w.lineOf(w.position(n))})
		}
	}
	return ast.WalkContinue, nil
}

func (w *walker) link(n ast.Node, target string) {
	w.doc.Links = append(w.doc.Links, Link{inlineText(n, w.src), target, w.lineOf(w.position(n))})
}

// position returns the offset of the first text within n, or of the block that contains it.
func (w *walker) position(n ast.Node) int {
	for c := n.FirstChild(); c != nil; c = c.FirstChild() {
		if t, ok := c.(*ast.Text); ok {
			return t.Segment.Start
		}
	}
	return w.block
}

// inlineText returns the text below n without markup.
func inlineText(n ast.Node, src []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(c ast.Node, entering bool) (ast.WalkStatus, error) {
		switch c := c.(type) {
		case *ast.Text:
			if entering {
				b.Write(plainText(c, src))
				if c.SoftLineBreak() || c.HardLineBreak() {
					b.WriteByte(' ')
				}
			}
		case *ast.String:
			if entering {
				b.Write(c.Value)
			}
		case *ast.AutoLink:
			if entering {
				b.Write(c.Label(src))
			}
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// plainText returns the text of t with entities and backslash escapes resolved, except in a code span.
func plainText(t *ast.Text, src []byte) []byte {
	text := t.Segment.Value(src)
	if t.Parent().Kind() == ast.KindCodeSpan {
		return text
	}
	var plain []byte
	for { // one backslash at a time, since an escaped ampersand does not begin an entity
		i := bytes.IndexByte(text, '\\')
		if i < 0 || i+1 == len(text) {
			return append(plain, resolveEntities(text)...)
		}
		plain = append(plain, resolveEntities(text[:i])...)
		plain = append(plain, util.UnescapePunctuations(text[i:i+2])...)
		text = text[i+2:]
	}
}

func resolveEntities(text []byte) []byte {
	return util.ResolveEntityNames(util.ResolveNumericReferences(text))
}
