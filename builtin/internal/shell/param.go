package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
	"github.com/kitbag-go/kitbag/internal/lazy"
)

// numericParams are parameters that bash itself keeps numeric. $! and SRANDOM may be empty, the one without a background
// command and the other in an older bash.
var numericParams = []string{"?", "#", "$", "RANDOM", "SECONDS", "LINENO", "UID", "EUID", "PPID"}

// param adds a parameter expansion to a word.
func (w *walker) param(a *arg, b *strings.Builder, p *syntax.ParamExp, quoted bool) {
	if why := w.unsafeParam(p); why != "" {
		w.denyDynamic(why)
		w.inner(p)
		w.unknownText(a, b, anywhere, quoted)
		return
	}
	words := w.operands(p) // for any expansion, because commands in the operands may run
	name := p.Param.Value
	if !p.Length {
		w.recordSecret(name)
	}
	switch {
	case p.Length:
		b.WriteString(hole)
		a.mark(noFile)
		return
	case name == "@" || name == "*" || p.Index != nil:
		b.WriteString(hole)
		elements := name == "@" || name == "*" || allElements(p)
		if p.Exp != nil || p.Repl != nil || p.Slice != nil && !elements {
			a.mark(w.changedValue(p, words))
		} else {
			a.mark(w.lookup(name).from)
		}
		a.field = a.field && quoted && name != "@" && !allElements(p)
		return
	case p.Exp != nil || p.Slice != nil || p.Repl != nil:
		w.unknownText(a, b, w.changedValue(p, words), quoted)
		return
	}
	w.expand(a, b, w.lookup(name), quoted)
}

// changedValue returns the source of an expansion that may change the value of a variable, or replace the value by one of
// the words.
func (w *walker) changedValue(p *syntax.ParamExp, words []arg) source {
	v := w.lookup(p.Param.Value)
	if v.vals == nil {
		words = append(words, arg{text: hole, from: v.from})
	}
	for _, value := range v.vals {
		dir := value[:strings.LastIndexByte(value, '/')+1] // ${f%.go} is in the same directory
		words = append(words, literal(value), arg{text: dir + hole})
	}
	return w.origin(origin{args: append(words, anything(""))})
}

// expand adds the value of a variable v to a word.
func (w *walker) expand(a *arg, b *strings.Builder, v binding, quoted bool) {
	switch {
	case len(v.vals) == 1 && (quoted || v.staysOneWord()) && w.copied+len(v.vals[0]) <= maxCopied:
		w.copied += len(v.vals[0])
		b.WriteString(v.vals[0])
	case quoted || v.staysOneWord():
		if b.Len() == 0 {
			a.noSlash = v.noSlash
			a.noDash = a.noDash || v.noDash || v.numeric && v.vals == nil // a number counts as no option, even if it is negative
		}
		b.WriteString(hole)
		a.mark(w.valuesOf(v))
	default:
		if v.identifiers && b.Len() == 0 {
			a.noDash = true
		}
		w.unknownText(a, b, w.valuesOf(v), quoted)
	}
}

// unknownText adds an unknown text to a word. Without quotes the text may expand to several words.
func (w *walker) unknownText(a *arg, b *strings.Builder, from source, quoted bool) {
	b.WriteString(hole)
	a.mark(from)
	a.field = a.field && quoted
}

// recordSecret records that a variable is expanded, if its value is a secret. Whether the secret is shown depends on the
// command.
func (w *walker) recordSecret(name string) {
	if pathrule.SecretVariable(name) && !w.isOwn(name) {
		w.secret = "$" + name
	} else if s := w.secrets[name]; s != "" {
		w.secret = s
	}
	if w.secret != "" {
		w.lineSecret = w.secret
	}
}

// operands walks the words inside ${name:-word} and similar expansions, and returns them.
func (w *walker) operands(p *syntax.ParamExp) (args []arg) {
	var words []*syntax.Word
	if p.Exp != nil {
		words = append(words, p.Exp.Word)
	}
	if p.Repl != nil {
		words = append(words, p.Repl.Orig, p.Repl.With)
	}
	for _, word := range words {
		if word != nil {
			args = append(args, w.word(word))
		}
	}
	w.listed = append(w.listed, args...)
	return args
}

// unsafeParam returns why an expansion may do more than return a value, or "".
func (w *walker) unsafeParam(p *syntax.ParamExp) string {
	switch {
	case p.Param == nil || p.NestedParam != nil || p.Flags != nil || len(p.Modifiers) > 0 || p.Width || p.IsSet:
		return "an expansion that is not supported"
	case p.Excl || p.Names != 0:
		return "an indirect expansion, ${!…}"
	case p.Index != nil && !w.harmlessIndex(p.Index):
		return "an array index that is evaluated"
	case p.Slice != nil && !(w.harmlessIndex(p.Slice.Offset) && (p.Slice.Length == nil || w.harmlessIndex(p.Slice.Length))):
		return "an offset that is evaluated"
	}
	// A negative length or index may be an error, which aborts the line.
	_, isWord := p.Index.(*syntax.Word)
	w.mayAbort = w.mayAbort || p.Slice != nil && p.Slice.Length != nil || p.Index != nil && !isWord
	if p.Exp != nil {
		switch p.Exp.Op {
		case syntax.AlternateUnset, syntax.AlternateUnsetOrNull, syntax.DefaultUnset, syntax.DefaultUnsetOrNull,
			syntax.RemSmallSuffix, syntax.RemLargeSuffix, syntax.RemSmallPrefix, syntax.RemLargePrefix,
			syntax.UpperFirst, syntax.UpperAll, syntax.LowerFirst, syntax.LowerAll:
		default:
			return "an expansion that assigns, fails or evaluates"
		}
	}
	return ""
}

// harmlessIndex reports whether an index or offset is a number, "@" or "*".
func (w *walker) harmlessIndex(x syntax.ArithmExpr) bool {
	if word, ok := x.(*syntax.Word); ok && (word.Lit() == "@" || word.Lit() == "*") {
		return true
	}
	return w.arithmetic(x)
}

// allElements reports whether the expansion is that of all elements of an array as separate words.
func allElements(p *syntax.ParamExp) bool { return arithmWord(p.Index) == "@" }

// arithmetic reports whether x consists only of numbers, so that bash evaluates no other text. It walks the commands in x,
// and records whether x may abort the line.
func (w *walker) arithmetic(x syntax.ArithmExpr) bool {
	switch x := x.(type) {
	case *syntax.Word:
		lit := x.Lit()
		if isNumber(lit) || basedNumber().MatchString(lit) {
			return true
		}
		if stmts := soleSubstitution(x); stmts != nil && outputClass(stmts) == digits {
			w.nested(stmts, "a command substitution")
			w.mayAbort = true // if the output is empty or begins with a zero
			return true
		}
		if lit == "" && len(x.Parts) == 1 {
			p, ok := x.Parts[0].(*syntax.ParamExp)
			if !ok || w.unsafeParam(p) != "" || p.Index != nil || p.Exp != nil || p.Slice != nil || p.Repl != nil {
				return false
			}
			if p.Length {
				return true
			}
			lit = p.Param.Value
		}
		value := w.lookup(lit)
		w.mayAbort = w.mayAbort || value.printed
		return value.numeric
	case *syntax.ParenArithm:
		return w.arithmetic(x.X)
	case *syntax.UnaryArithm:
		return x.Op != syntax.Inc && x.Op != syntax.Dec && w.arithmetic(x.X)
	case *syntax.BinaryArithm:
		switch x.Op {
		case syntax.Add, syntax.Sub, syntax.Mul, syntax.Quo, syntax.Rem, syntax.Pow, syntax.Shl, syntax.Shr,
			syntax.Eql, syntax.Neq, syntax.Lss, syntax.Gtr, syntax.Leq, syntax.Geq, syntax.And, syntax.Or, syntax.Xor,
			syntax.AndArit, syntax.OrArit, syntax.Comma, syntax.TernQuest, syntax.TernColon:
			// Division by zero and a negative exponent abort the line.
			if x.Op == syntax.Quo || x.Op == syntax.Rem || x.Op == syntax.Pow {
				y, ok := x.Y.(*syntax.Word)
				w.mayAbort = w.mayAbort || !ok || !isNumber(y.Lit()) || y.Lit() == "0"
			}
			return w.arithmetic(x.X) && w.arithmetic(x.Y)
		}
	}
	return false
}

// basedNumber matches a number with its base that does not overflow.
var basedNumber = lazy.Regexp(`^((0[xX]|16#)[0-9a-fA-F]{1,15}|10#[0-9]{1,18}|8#[0-7]{1,20}|2#[01]{1,62})$`)

// soleSubstitution returns the statements of a word that consists only of a command substitution, perhaps in double
// quotes, or nil.
func soleSubstitution(word *syntax.Word) []*syntax.Stmt {
	if len(word.Parts) != 1 {
		return nil
	}
	part := word.Parts[0]
	if q, ok := part.(*syntax.DblQuoted); ok && len(q.Parts) == 1 && !q.Dollar {
		part = q.Parts[0]
	}
	if s, ok := part.(*syntax.CmdSubst); ok && !s.TempFile && !s.ReplyVar {
		return s.Stmts
	}
	return nil
}

// isOwn reports whether the line has set a variable, whose lower-case name says that it is none of the environment.
func (w *walker) isOwn(name string) bool {
	_, ok := w.vars[name]
	return ok && name == strings.ToLower(name)
}
