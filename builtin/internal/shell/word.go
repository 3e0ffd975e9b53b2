package shell

import (
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/kitbag-go/kitbag/internal/lazy"
)

// hole replaces unknown text in an arg. It cannot occur in a command, because commands with NUL bytes are rejected.
const hole = "\x00"

// An arg is what is known about a word before the command runs.
type arg struct {
	text    string // the value, with a hole for every unknown part
	raw     string // as written
	known   bool   // exactly one argument, and text is its value
	field   bool   // at most one argument, whatever the unknown text is
	noDash  bool   // unknown, but cannot begin with "-"
	noSlash bool   // unknown, but cannot begin with "/"
	class   class  // the class of the expansion, if the word has no other part
	wild    bool   // text has an unquoted "*", "?" or "["
	from    source // the source of the first hole; 0 if there is none
}

func literal(text string) arg { return arg{text: text, raw: text, known: true, field: true} }

// anything returns an arg for any number of unknown arguments.
func anything(raw string) arg { return arg{text: hole, raw: raw} }

// option reports whether the argument may be an option.
func (a *arg) option() bool {
	if a.known {
		return len(a.text) > 1 && a.text[0] == '-'
	}
	return !a.noDash
}

// open reports whether the argument may stand for unknown names.
func (a *arg) open() bool { return a.from >= firstOrigin || strings.Contains(a.text, hole) }

// prefix returns the text before the first hole or wildcard.
func (a *arg) prefix() string {
	if a.known && !a.wild {
		return a.text
	}
	s, _, _ := strings.Cut(a.text, hole)
	if a.wild {
		if i := strings.IndexAny(s, "*?["); i >= 0 {
			s = s[:i]
		}
	}
	return s
}

func (a *arg) String() string {
	if a.known {
		return a.text
	}
	return a.raw
}

func isNumber(s string) bool {
	_, err := strconv.Atoi(s)
	digits := strings.TrimPrefix(s, "-")
	return err == nil && !strings.HasPrefix(s, "+") && (digits == "0" || !strings.HasPrefix(digits, "0"))
}

// words evaluates words: first brace expansion, like bash, then each word.
func (w *walker) words(list []*syntax.Word) []arg {
	out := w.args.take(len(list))
	for _, word := range list {
		if text, ok := soleLit(word); ok && text != "" && literally(text) {
			out = append(out, arg{text: text, raw: text, known: true, field: true}) // the common case
			continue
		}
		if !braced(word) {
			out = append(out, w.word(word))
			continue
		}
		out = append(out, w.fields(word)...)
	}
	return out
}

// literally reports whether unquoted text is literal.
func literally(text string) bool {
	for i := range len(text) {
		switch text[i] {
		case '\\', '*', '?', '[', ']', '~', '{', '}':
			return false
		}
	}
	return true
}

// braced reports whether brace expansion may expand a word to several.
func braced(word *syntax.Word) bool {
	for _, p := range word.Parts {
		if lit, ok := p.(*syntax.Lit); ok && strings.Contains(lit.Value, "{") {
			return true
		}
	}
	return false
}

// Limits on braces: how many a word may have, how many words it may expand to, and how many all words together
// may expand to.
const (
	maxBraces   = 8
	maxExpanded = 64
	maxBudget   = 2000
)

func (w *walker) fields(word *syntax.Word) []arg {
	if !braced(word) {
		return []arg{w.word(word)}
	}
	raw := w.raw(word)
	// Braces multiply. Beyond the limits the words are unknown, which is not harmless for most commands.
	switch alternatives, ok := braces(word); {
	case !ok || strings.Count(raw, "{") > maxBraces || w.expanded > maxBudget:
		w.word(word) // walk the substitutions in it
		return []arg{anything(raw)}
	case !alternatives:
		return []arg{w.word(word)}
	}
	split := &syntax.Word{Parts: slices.Clone(word.Parts)}
	if !syntax.SplitBraces(split) {
		return []arg{w.word(word)}
	}
	var out []arg
	n := 0
	for one, err := range expand.BracesSeq(nil, split) {
		w.expanded++
		if n++; err != nil || n > maxExpanded {
			w.word(word) // walk the substitutions in it
			return []arg{anything(raw)}
		}
		if one.Lit() == "" && !slices.ContainsFunc(one.Parts, func(p syntax.WordPart) bool { _, ok := p.(*syntax.Lit); return !ok }) {
			continue // "{a,}" has an empty word, which bash drops
		}
		a := w.word(one)
		a.raw = raw
		out = append(out, a)
	}
	return out
}

// sequence matches the text between the braces of {1..3}, in the forms that all versions of bash agree on.
var sequence = lazy.Regexp(`^(-?(0|[1-9][0-9]{0,3})\.\.-?(0|[1-9][0-9]{0,3})|[a-z]\.\.[a-z]|[A-Z]\.\.[A-Z])$`)

// joinsName matches braces whose expansion may put other text behind a "$": in {a,$x}c bash expands the variable xc.
var joinsName = lazy.Regexp("\\$([,}].*)?\\}[\\w{,'\"\x00]")

// braces reports whether the braces of a word have alternatives, and whether bash's expansion is certain: every
// pair has commas or is a sequence.
func braces(word *syntax.Word) (alternatives, ok bool) {
	var b strings.Builder
	for i, part := range word.Parts {
		if lit, ok := part.(*syntax.Lit); ok {
			b.WriteString(lit.Value)
			continue
		}
		if p, ok := part.(*syntax.ParamExp); ok && p.Short && i+1 < len(word.Parts) {
			b.WriteByte('$') // "$x{": as if the name continued
			continue
		}
		b.WriteString(hole)
	}
	text := b.String()
	var commas, starts []int // by open brace
	certain := !strings.Contains(text, `\`) && !strings.Contains(text, "${") && !joinsName().MatchString(text)
	for i := range len(text) {
		switch n := len(commas) - 1; text[i] {
		case '{':
			commas, starts = append(commas, 0), append(starts, i)
		case ',':
			if alternatives = alternatives || n >= 0; n >= 0 {
				commas[n]++
			} else if strings.Contains(text[:i], "{") && strings.Contains(text[i:], "}") {
				// In {a}{x},y} bash matches the first brace with the last one.
				alternatives, certain = true, false
			}
		case '.':
			alternatives = alternatives || n >= 0 && strings.HasPrefix(text[i:], "..")
		case '}':
			if n < 0 {
				certain = false
				continue
			}
			inner := text[starts[n]+1 : i]
			if commas[n] == 0 && !sequence().MatchString(inner) || commas[n] > 0 && strings.Contains(inner, "..") {
				certain = false
			}
			commas, starts = commas[:n], starts[:n]
		}
	}
	return alternatives, !alternatives || certain && len(commas) == 0
}

// word evaluates a word without braces. It reports constructs that are not proved harmless to the walker, and
// walks the commands in the word.
func (w *walker) word(word *syntax.Word) arg {
	a := arg{raw: w.raw(word), known: true, field: true}
	var b strings.Builder
	// The closing bracket may come from an expansion. This is not in the loop, because a word may have many parts.
	closed := strings.Contains(a.raw, "]") || slices.ContainsFunc(word.Parts, expands)
	for i, part := range word.Parts {
		if lit, ok := part.(*syntax.Lit); ok {
			text := lit.Value
			switch {
			case i > 0 || !strings.HasPrefix(text, "~"):
			case len(word.Parts) > 1 && !strings.Contains(text, "/"):
				text, a.noDash = hole, true // the parts that follow name the user of the home directory
				a.mark(anywhere)
			default:
				text = w.tilde(&a, &b, text)
			}
			if i := strings.IndexAny(text, "=:"); i >= 0 && strings.Contains(text[i:], "~") {
				a.known = false // bash expands it in words that look like assignments
				text = tildes.Replace(text)
				a.mark(anywhere)
			}
			addUnquoted(&a, &b, text, closed)
			continue
		}
		w.addPart(&a, &b, part, false)
	}
	if !a.field && a.noDash && !w.onlySafeSplits(word.Parts, false) {
		a.noDash = false // only holds for the first of several words
	}
	a.text = b.String()
	if a.wild && !strings.HasPrefix(a.text, "/") && !strings.Contains(a.text, hole) {
		a.noSlash = true
	}
	// The expansion at the beginning may be empty. Then the word begins with the text after it.
	if rest, ok := strings.CutPrefix(a.text, hole); ok && rest != "" {
		a.noDash = a.noDash && rest[0] != '-' && rest[0] != hole[0]
		a.noSlash = a.noSlash && rest[0] != '/' && rest[0] != hole[0]
	}
	if len(word.Parts) != 1 {
		a.class = anyText
	}
	if a.wild || strings.Contains(a.text, hole) {
		a.known = false
	}
	a.field = a.field && !a.wild
	// A word that begins with known text cannot be an option, unless it may expand to several words.
	if !a.known && (a.field || a.wild && !strings.Contains(a.text, hole)) && !a.noDash {
		p := a.prefix()
		a.noDash = p != "" && p[0] != '-'
	}
	return a
}

// tildes are places inside a word where bash may expand a tilde.
var tildes = strings.NewReplacer("=~", "="+hole, ":~", ":"+hole)

// expands reports whether an unquoted part may expand to any text.
func expands(part syntax.WordPart) bool {
	switch part.(type) {
	case *syntax.Lit, *syntax.SglQuoted, *syntax.DblQuoted:
		return false
	}
	return true
}

// tilde handles an unquoted tilde at the start of a word and returns the rest.
func (w *walker) tilde(a *arg, b *strings.Builder, text string) string {
	user, rest, slash := strings.Cut(text[1:], "/")
	if slash {
		rest = "/" + rest
	}
	switch {
	case user == "" && len(w.lookup("HOME").vals) == 1:
		b.WriteString(w.lookup("HOME").vals[0])
	case user == "+" && len(w.lookup("PWD").vals) == 1:
		b.WriteString(w.lookup("PWD").vals[0])
	case user == "" || !strings.ContainsAny(user, `\*?[`):
		b.WriteString(hole)
		a.mark(anywhere)
		a.noDash = user != "" || w.lookup("HOME").noDash // a directory, or the tilde itself
	default:
		return text
	}
	return rest
}

// addUnquoted adds the text of a literal outside quotes. In a word without "]", "[" is literal.
func addUnquoted(a *arg, b *strings.Builder, text string, closed bool) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			if i++; text[i] != '\n' {
				b.WriteByte(text[i])
			}
		case c == '*' || c == '?' || c == '[' && closed:
			a.wild = true
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
}

// addPart adds a part of a word that is not an unquoted literal.
func (w *walker) addPart(a *arg, b *strings.Builder, part syntax.WordPart, quoted bool) {
	switch p := part.(type) {
	case *syntax.Lit:
		b.WriteString(unescapeQuoted(p.Value))
	case *syntax.SglQuoted:
		w.singleQuoted(a, b, p)
	case *syntax.DblQuoted:
		if p.Dollar {
			w.deny(`a translated string, $"…"`)
			b.WriteString(hole)
			a.mark(anywhere)
		}
		for _, inner := range p.Parts {
			w.addPart(a, b, inner, true)
		}
		if len(p.Parts) != 1 {
			a.class = anyText
		}
	case *syntax.ParamExp:
		w.param(a, b, p, quoted)
	case *syntax.CmdSubst:
		w.substitution(a, b, p, quoted)
	case *syntax.ArithmExp:
		if !w.arithmetic(p.X) {
			w.denyDynamic("arithmetic on values that may not be numbers")
			w.inner(p)
		}
		b.WriteString(hole)
		a.mark(noFile)
	case *syntax.ProcSubst:
		first := len(w.cmds)
		w.nested(p.Stmts, "a process substitution")
		w.substSource = w.printedBy(first)
		b.WriteString(hole)
		a.mark(noFile) // a descriptor
		a.noDash = b.Len() == len(hole)
	default: // extended globs and nodes of later versions of the parser
		w.deny("an expansion that is not supported")
		w.inner(part)
		b.WriteString(hole)
		a.mark(anywhere)
		a.field = false
	}
}

func (w *walker) singleQuoted(a *arg, b *strings.Builder, p *syntax.SglQuoted) {
	text, ok := p.Value, true
	if p.Dollar {
		text, ok = ansiC(p.Value)
	}
	if !ok {
		w.deny("an escape in $'…' that is not supported")
		text = hole
		a.mark(anywhere)
	}
	b.WriteString(text)
}

// substitution walks a command substitution. $(cat <<'E' …), which only returns a text, is replaced by that text.
func (w *walker) substitution(a *arg, b *strings.Builder, p *syntax.CmdSubst, quoted bool) {
	if p.TempFile || p.ReplyVar {
		w.deny("a substitution in the current shell")
	}
	first := len(w.cmds)
	w.nested(p.Stmts, "a command substitution")
	if text, ok := w.quotedText(p); ok && quoted {
		b.WriteString(text)
		return
	}
	a.class = outputClass(p.Stmts)
	if a.class != anyText && b.Len() == 0 {
		a.noDash = true
	}
	b.WriteString(hole)
	if a.class >= atoms {
		a.mark(noFile)
	} else {
		a.mark(w.printedBy(first))
	}
	a.field = a.field && (quoted || a.class == digits)
}

// quotedText returns the value of $(cat <<'E' …), the usual way to pass a long message as one argument.
func (w *walker) quotedText(p *syntax.CmdSubst) (string, bool) {
	if len(p.Stmts) != 1 {
		return "", false
	}
	s := p.Stmts[0]
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Assigns) > 0 || len(call.Args) != 1 || call.Args[0].Lit() != "cat" ||
		len(s.Redirs) != 1 || s.Redirs[0].Op != syntax.Hdoc || s.Background || s.Negated || s.Redirs[0].N != nil {
		return "", false
	}
	doc := s.Redirs[0]
	if doc.Hdoc == nil || len(doc.Hdoc.Parts) != 1 || !quotedDelimiter(doc.Word) {
		return "", false
	}
	lit, ok := doc.Hdoc.Parts[0].(*syntax.Lit)
	if !ok {
		return "", false
	}
	return strings.TrimRight(lit.Value, "\n"), true
}

func quotedDelimiter(word *syntax.Word) bool {
	for _, p := range word.Parts {
		if lit, ok := p.(*syntax.Lit); !ok || strings.Contains(lit.Value, `\`) {
			return true
		}
	}
	return false
}

// unescapeQuoted removes the backslashes that escape between double quotes.
func unescapeQuoted(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			switch s[i+1] {
			case '\n':
				i++
				continue
			case '$', '`', '"', '\\':
				i++
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

var ansiEscapes = map[byte]byte{
	'n': '\n', 't': '\t', 'r': '\r', 'a': 7, 'b': 8, 'e': 27, 'E': 27, 'f': 12, 'v': 11,
	'\\': '\\', '\'': '\'', '"': '"', '?': '?',
}

const hexDigits = "0123456789abcdefABCDEF"

// ansiC decodes the text between $' and '.
func ansiC(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) {
			return "", false
		}
		if c, ok := ansiEscapes[s[i]]; ok {
			b.WriteByte(c)
			continue
		}
		base, digits, from, maxDigits := 8, "01234567", i, 3
		switch s[i] {
		case 'x':
			base, digits, from, maxDigits = 16, hexDigits, i+1, 2
		case 'u', 'U':
			base, digits, from, maxDigits = 16, hexDigits, i+1, 4
			if s[i] == 'U' {
				maxDigits = 8
			}
		}
		end := from
		for end < len(s) && end-from < maxDigits && strings.IndexByte(digits, s[end]) >= 0 {
			end++
		}
		v, err := strconv.ParseUint(s[from:end], base, 32)
		switch {
		case err != nil || v == 0:
			return "", false
		case s[i] == 'u' || s[i] == 'U':
			b.WriteRune(rune(v))
		case v > 255:
			return "", false
		default:
			b.WriteByte(byte(v))
		}
		i = end - 1
	}
	return b.String(), true
}
