// Package redact finds secrets in text and replaces them with placeholders.
//
//	r, err := redact.New(append(redact.Rules(),
//		redact.Literal("database", os.Getenv("DB_PASSWORD")))...)
//	fmt.Println(r.Text(line)) // … postgres://[redacted: url-password]db:5432 …
//
// A [Redactor] is made of rules: [Rules] returns those for common credentials, each with the document that
// specifies their form, and a program adds its own. An agent has one in its Config and applies it to what it
// stores and emits; programs may use it for their own logs.
//
// # Streams
//
// A secret may arrive in pieces. A [Stream] holds back text that can still become a secret, and passes on the rest:
// of "my key is sk-" it holds back "sk-". This is exact for any rule, because the stream runs the rules' automata over
// the text; the output does not depend on how the text was cut.
//
// # What is and what is not a boundary
//
// Redaction catches accidents; it is not a boundary. It finds what has the form of a
// secret, and the given literals. It does not find a secret that is encoded, split up,
// spelled out or drawn. To keep a secret from a model, deny it the tools that read it.
package redact

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/internal/strictjson"
)

// A Rule describes a kind of secret.
type Rule struct {
	Name    string // of the kind: lower-case letters, digits and '-'; the placeholder shows it
	Pattern string // RE2 syntax; the longest match is the secret
	Source  string // the document that specifies the form
}

// Literal returns the rule for one known secret. [New] refuses one of fewer than
// six characters: it would match ordinary text.
func Literal(name, secret string) Rule {
	return Rule{Name: name, Pattern: regexp.QuoteMeta(secret)}
}

// minSecret is the minimum length, in characters, of a match of a rule.
const minSecret = 6

// A Redactor replaces what its rules match. It is immutable and safe for concurrent use; a nil one changes nothing.
type Redactor struct {
	rules   []Rule
	insts   []inst     // of all rules
	starts  []uint32   // by rule: its first instruction
	byFirst [256][]int // by first byte: the rules that may match there
}

// inst is an instruction of a rule's automaton; its targets index Redactor.insts.
type inst struct {
	syntax.Inst
	rule int
}

var namePattern = lazy.Regexp(`^[a-z0-9-]{1,40}$`)

// New returns a redactor with the given rules. It fails for a pattern that is not RE2 or matches fewer than six
// characters, and for rules that match a placeholder: each replacement would be replaced again.
func New(rules ...Rule) (*Redactor, error) {
	r := &Redactor{rules: slices.Clone(rules)}
	for i, rule := range rules {
		if err := r.add(i, rule); err != nil {
			return nil, fmt.Errorf("redaction rule %d, %q: %w", i, rule.Name, err)
		}
	}
	for _, rule := range rules {
		if text := placeholder(rule.Name); r.onePass(text) != text {
			return nil, fmt.Errorf("a redaction rule matches the placeholder %q; make its pattern more specific", text)
		}
	}
	return r, nil
}

func (r *Redactor) add(i int, rule Rule) error {
	if !namePattern().MatchString(rule.Name) {
		return errors.New("the name must have 1 to 40 lower-case letters, digits and '-'")
	}
	re, err := syntax.Parse(rule.Pattern, syntax.Perl)
	if err != nil {
		return err
	}
	if n := minLength(re); n < minSecret {
		return fmt.Errorf("the pattern can match %d characters; make it match at least %d, or it finds ordinary text", n, minSecret)
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return err
	}
	base := uint32(len(r.insts))
	for _, in := range prog.Inst {
		in.Out += base
		if in.Op == syntax.InstAlt || in.Op == syntax.InstAltMatch {
			in.Arg += base
		}
		r.insts = append(r.insts, inst{in, i})
	}
	r.starts = append(r.starts, base+uint32(prog.Start))
	var first [256]bool
	r.firstBytes(base+uint32(prog.Start), &first, map[uint32]bool{})
	for b, ok := range first {
		if ok {
			r.byFirst[b] = append(r.byFirst[b], i)
		}
	}
	return nil
}

// firstBytes marks the first bytes of the matches from pc on. A stream without threads skips all other bytes.
func (r *Redactor) firstBytes(pc uint32, first *[256]bool, seen map[uint32]bool) {
	if seen[pc] {
		return
	}
	seen[pc] = true
	in := &r.insts[pc]
	switch in.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		r.firstBytes(in.Out, first, seen)
		r.firstBytes(in.Arg, first, seen)
	case syntax.InstCapture, syntax.InstNop, syntax.InstEmptyWidth:
		r.firstBytes(in.Out, first, seen)
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		for b := range 256 {
			first[b] = first[b] || b >= utf8.RuneSelf || in.MatchRune(rune(b))
		}
	}
}

// minLength returns the length of the shortest match in characters. An unknown operator
// counts as 0, so that the rule is refused.
func minLength(re *syntax.Regexp) int {
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1
	case syntax.OpCapture, syntax.OpPlus:
		return minLength(re.Sub[0])
	case syntax.OpRepeat:
		return re.Min * minLength(re.Sub[0])
	case syntax.OpConcat:
		n := 0
		for _, sub := range re.Sub {
			n += minLength(sub)
		}
		return n
	case syntax.OpAlternate:
		n := minLength(re.Sub[0])
		for _, sub := range re.Sub[1:] {
			n = min(n, minLength(sub))
		}
		return n
	}
	return 0
}

func placeholder(name string) string { return "[redacted: " + name + "]" }

var placeholders = lazy.Regexp(`\[redacted: [a-z0-9-]{1,40}\]`)

// Has reports whether text contains a placeholder.
func Has(text string) bool { return placeholders().MatchString(text) }

// Text returns s with secrets replaced. It is idempotent.
func (r *Redactor) Text(s string) string {
	// A placeholder may create a word boundary at which another rule matches. The
	// built-in rules do not depend on what follows; for others ten rounds suffice.
	for range 10 {
		out := r.onePass(s)
		if out == s {
			break
		}
		s = out
	}
	return s
}

// onePass replaces the secrets that one pass finds.
func (r *Redactor) onePass(s string) string {
	if s == "" {
		return s
	}
	st := r.Stream()
	return st.Write(s) + st.Close()
}

// JSON returns data, which is JSON, with secrets in its strings replaced, including
// names of members. All bytes outside of these strings stay unchanged.
func (r *Redactor) JSON(data []byte) []byte {
	if r == nil {
		return data
	}
	var out []byte
	done := 0
	for i := 0; i < len(data); i++ {
		if data[i] != '"' {
			continue
		}
		end := strictjson.StringEnd(data, i)
		if clean, changed := r.jsonString(data[i:end]); changed {
			out = append(append(out, data[done:i]...), clean...)
			done = end
		}
		i = end - 1
	}
	if done == 0 {
		return data
	}
	return append(out, data[done:]...)
}

// jsonString returns a JSON string with secrets replaced, and whether it had any. It searches the decoded text, since an
// escape sequence can hide any letter.
func (r *Redactor) jsonString(raw []byte) (clean []byte, changed bool) {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return []byte(`""`), true // not valid JSON, so its text cannot be searched
	}
	out := r.Text(text)
	if out == text {
		return raw, false
	}
	clean, _ = json.Marshal(out) // a string always encodes
	return clean, true
}
