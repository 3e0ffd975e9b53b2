package term

import (
	"fmt"
	"html"
	"strings"
	"sync"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/charmbracelet/x/ansi"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/kitbag-go/kitbag/internal/visible"
)

// parser is created on first use, as creating it takes milliseconds.
var parser = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(goldmark.WithExtensions(extension.GFM))
})

// Markdown renders Markdown as lines of at most width columns. Without colour it keeps the markers of emphasis and
// code. It removes control characters. Text that is too complex (see tooComplex) is only wrapped.
func Markdown(src string, width int, colour bool) []string {
	src = visible.Text(strings.ReplaceAll(src, "\r\n", "\n"))
	if tooComplex(src) {
		return fold(plain(src), max(width, minWidth))
	}
	m := &markdown{src: []byte(src), colour: colour}
	return m.blocks(parser().Parser().Parse(text.NewReader(m.src)), max(width, minWidth), true)
}

type markdown struct {
	src    []byte
	colour bool

	out   strings.Builder // the text that inline renders
	stack []string        // the styles that are open at the end of out
}

// The styles of Markdown, as parameters of SGR control sequences.
const (
	bold   = "1"
	faint  = "2"
	italic = "3"
	struck = "9"
	red    = "31"
	green  = "32"
	cyan   = "36" // code
)

// blocks renders the children of n, with blank lines between them if they are loose.
func (m *markdown) blocks(n ast.Node, width int, loose bool) (lines []string) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if loose && len(lines) > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, m.block(c, width)...)
	}
	return lines
}

func (m *markdown) block(n ast.Node, width int) []string {
	switch n := n.(type) {
	case *ast.Heading:
		return wrap(m.paint(bold, strings.Repeat("#", n.Level)+" ")+m.inline(n, bold), width)
	case *ast.List:
		return m.list(n, width)
	case *ast.Blockquote:
		return indent(m.blocks(n, max(width-2, minWidth), true), m.paint(faint, "│ "), m.paint(faint, "│ "))
	case *ast.FencedCodeBlock:
		return m.code(n, string(n.Language(m.src)), width)
	case *ast.CodeBlock:
		return m.code(n, "", width)
	case *ast.ThematicBreak:
		return []string{m.paint(faint, strings.Repeat("─", min(width, 40)))}
	case *ast.HTMLBlock:
		return m.code(n, "html", width)
	case *east.Table:
		return m.table(n, width)
	}
	return wrap(m.inline(n), width)
}

// list renders the items of a list, each behind its marker.
func (m *markdown) list(n *ast.List, width int) (lines []string) {
	number := n.Start
	for item := n.FirstChild(); item != nil; item = item.NextSibling() {
		mark := "• "
		if n.IsOrdered() {
			mark = fmt.Sprintf("%d. ", number)
			number++
		}
		if !n.IsTight && len(lines) > 0 {
			lines = append(lines, "")
		}
		markWidth := ansi.StringWidth(mark)
		content := m.blocks(item, max(width-markWidth, minWidth), !n.IsTight)
		if len(content) == 0 {
			content = []string{""} // shows the marker
		}
		lines = append(lines, indent(content, mark, strings.Repeat(" ", markWidth))...)
	}
	return lines
}

// code renders the lines of n unchanged, except that long ones are wrapped.
func (m *markdown) code(n ast.Node, language string, width int) (lines []string) {
	for i := range n.Lines().Len() {
		seg := n.Lines().At(i)
		line := strings.TrimRight(plain(string(seg.Value(m.src))), "\n")
		colour := cyan
		if language == "diff" {
			colour = DiffStyle(line)
		}
		for _, part := range HardWrap(line, max(width-2, minWidth)) {
			lines = append(lines, "  "+m.paint(colour, part))
		}
	}
	return lines
}

// DiffStyle returns the style of a line of a diff; "" for none.
func DiffStyle(line string) string {
	switch {
	case strings.HasPrefix(line, "+"):
		return green
	case strings.HasPrefix(line, "-"):
		return red
	case strings.HasPrefix(line, "@@"):
		return faint
	}
	return ""
}

// minColumn is the least width of a table's column in which words stay readable.
const minColumn = 16

// table renders a table in columns, or as one block for each row if it is much too wide.
func (m *markdown) table(n *east.Table, width int) (lines []string) {
	var rows [][]string
	for row := n.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			cells = append(cells, m.inline(cell))
		}
		rows = append(rows, cells)
	}
	t := table.New().Headers(rows[0]...).Rows(rows[1:]...).Border(lipgloss.NormalBorder()).BorderStyle(lipgloss.NewStyle().Faint(m.colour)).
		BorderTop(false).BorderBottom(false).BorderLeft(false).BorderRight(false).
		StyleFunc(func(_, column int) lipgloss.Style { return lipgloss.NewStyle().Padding(0, 1, 0, min(column, 1)) }) // none before the first column
	text := t.String()
	switch {
	case lipgloss.Width(text) > width && width < minColumn*len(rows[0]):
		for i, row := range rows[1:] {
			if i > 0 {
				lines = append(lines, "")
			}
			for j, cell := range row { // a row has as many cells as the head
				lines = append(lines, wrap(rows[0][j]+": "+cell, width)...)
			}
		}
		return lines
	case lipgloss.Width(text) > width:
		text = t.Width(width).BorderRow(true).String() // the cells wrap, so lines separate the rows
	}
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// inline renders the text in n, in the styles.
func (m *markdown) inline(n ast.Node, styles ...string) string {
	m.out.Reset()
	for _, style := range styles {
		m.open(style)
	}
	m.children(n)
	for range styles {
		m.close()
	}
	return m.out.String()
}

func (m *markdown) children(n ast.Node) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		m.span(c)
	}
}

func (m *markdown) span(n ast.Node) {
	switch n := n.(type) {
	case *ast.Text:
		m.out.WriteString(m.literal(n.Segment.Value(m.src), n.IsRaw()))
		switch {
		case n.HardLineBreak():
			m.out.WriteByte('\n')
		case n.SoftLineBreak():
			m.out.WriteByte(' ')
		}
	case *ast.String:
		m.out.WriteString(m.literal(n.Value, n.IsRaw()))
	case *ast.CodeSpan:
		m.marked(n, "`", cyan)
	case *ast.Emphasis:
		if n.Level > 1 {
			m.marked(n, "**", bold)
		} else {
			m.marked(n, "*", italic)
		}
	case *east.Strikethrough:
		m.marked(n, "~~", struck)
	case *ast.Link:
		start := m.out.Len()
		m.children(n)
		if url := plain(string(n.Destination)); !strings.Contains(m.out.String()[start:], url) {
			m.out.WriteString(" (" + url + ")")
		}
	case *ast.Image:
		m.out.WriteString("[picture: ")
		m.children(n)
		m.out.WriteString("] (" + plain(string(n.Destination)) + ")")
	case *ast.AutoLink:
		m.out.WriteString(plain(string(n.URL(m.src))))
	case *ast.RawHTML:
		for i := range n.Segments.Len() {
			seg := n.Segments.At(i)
			m.out.WriteString(plain(string(seg.Value(m.src))))
		}
	case *east.TaskCheckBox:
		if n.IsChecked {
			m.out.WriteString("☑ ")
		} else {
			m.out.WriteString("☐ ")
		}
	default:
		m.children(n)
	}
}

// literal returns text of the source without backslashes before punctuation, and with character references resolved
// unless it is raw. It removes control characters last, as a reference can stand for one.
func (m *markdown) literal(b []byte, raw bool) string {
	if !raw {
		b = []byte(html.UnescapeString(string(util.UnescapePunctuations(b))))
	}
	return strings.ReplaceAll(plain(string(b)), "\n", " ")
}

// marked renders the children of n in a style, or between markers without colour.
func (m *markdown) marked(n ast.Node, mark, style string) {
	if !m.colour {
		m.out.WriteString(mark)
		m.children(n)
		m.out.WriteString(mark)
		return
	}
	m.open(style)
	m.children(n)
	m.close()
}

// open begins a style in m.out, and close ends the last one: by a reset, after which it sets the outer styles again.
func (m *markdown) open(style string) {
	m.stack = append(m.stack, style)
	if m.colour {
		m.out.WriteString("\x1b[" + style + "m")
	}
}

func (m *markdown) close() {
	m.stack = m.stack[:len(m.stack)-1]
	if !m.colour {
		return
	}
	m.out.WriteString("\x1b[0m")
	for _, s := range m.stack {
		m.out.WriteString("\x1b[" + s + "m")
	}
}

func (m *markdown) paint(style, s string) string { return Paint(m.colour, style, s) }

// Paint returns s in a style of SGR control sequences, or as it is without colour or style.
func Paint(colour bool, style, s string) string {
	if !colour || style == "" || s == "" {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}

// plain removes control characters, and writes tabs as spaces: a terminal does not clear the cells that
// a tab skips.
func plain(s string) string {
	return strings.ReplaceAll(visible.Text(s), "\t", "    ")
}
