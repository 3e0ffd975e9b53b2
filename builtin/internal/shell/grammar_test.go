package shell

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// A grammar generates commands that test where bash and the parser may read a text differently, and where
// values are not what they seem. All of its commands are functions of the harness; touch must never run by
// mistake.
type grammar struct {
	*rand.Rand
	n int // number of commands so far, so that each has unique words
}

func newGrammar(seed uint64) *grammar { return &grammar{rand.New(rand.NewPCG(seed, 7)), 0} }

// hidden are texts that run touch if they are read differently.
var hidden = []string{"$(touch %d)", "`touch %d`", ";touch %d;", "\ntouch %d\n", "|touch %d", "&& touch %d", "<(touch %d)", "\\\ntouch %d", "'; touch %d; '",
	`"; touch %d; "`, "#'\ntouch %d #'", "}; touch %d; {", "); touch %d", "a[$(touch %d)]", "$\\\n(touch %d)", "E\ntouch %d\nE\n", "]; touch %d", "\\'; touch %d #",
	"${x:-$(touch %d)}", "$((a[$(touch %d)]))", "{x,$(touch %d)}"}

// broken are texts that change the meaning of the following text if they are read differently.
var broken = []string{`\`, "\\\n", `'`, `"`, "`", `$`, `#`, ` #`, `\'`, `\"`, "\\`", `\$`, `\\`, `\\\`, `$'`, `'"'`, `"'"`, "\n", " ", `{`, `}`, `(`, `)`, `[`, `]`, `;`, `&`, `|`, `<`, `>`,
	`<<`, `<<<`, `<(`, `$(`, "$((", "))", `${`, `$[`, `~`, `!`, `*`, `?`, `@(`, `=`, `+=`, `:-`, `%`, `##`, `/`, `^`, `,`, "\t", "é", "E\n", "\nE\n", "if ", "then ", "done", "fi", "case ", "esac", "in ", "]]", "[[ ", "$'\\''", `$"`, "time ", "{a,b}", "{1..3}", "2>", "-"}

func (g *grammar) num() int { g.n++; return g.n }

func (g *grammar) one(list ...string) string { return list[g.IntN(len(list))] }

func (g *grammar) hide() string {
	s := hidden[g.IntN(len(hidden))]
	return fmt.Sprintf(s, g.num())
}

func (g *grammar) variable() string { return g.one("x", "y", "a", "x", "N", "1", "@", "*") }

// param generates an expansion.
func (g *grammar) param(d int) string {
	v := g.variable()
	if d <= 0 || g.IntN(3) == 0 {
		return g.one("$"+v, "${"+v+"}", "${#x}", "${#a[@]}", "$?", "$#", "${a[0]}", "${a[@]}", "${a[*]}", "${x:0:1}", "${x: -1}", "${x:1}", "${x^}", "${x,,}", "${x@Q}", "${!x}", "${!N@}", "${a[y]}", "${a[1]:-z}", "${@:1}")
	}
	op := g.one(":-", "-", ":+", "+", ":=", "=", "#", "##", "%", "%%", "/", "//", "/#", "/%", "^", "^^", ",,", ":?")
	w := g.operand(d - 1)
	if op[0] == '/' && g.IntN(3) > 0 {
		w += "/" + g.operand(d-1)
	}
	if g.IntN(5) == 0 {
		v = g.one("a[0]", "a[@]", "a[*]", "a[x]", "a[1]")
	}
	return "${" + v + op + w + "}"
}

// operand generates the word in an expansion.
func (g *grammar) operand(d int) string {
	var b strings.Builder
	for range g.IntN(3) {
		switch g.IntN(12) {
		case 0:
			b.WriteString("'" + strings.ReplaceAll(g.hide(), "'", "") + "'")
		case 1:
			b.WriteString(`"` + g.doubled(d) + `"`)
		case 2:
			b.WriteString(g.substitution(d))
		case 3, 4:
			b.WriteString(g.param(d))
		case 5:
			b.WriteString(broken[g.IntN(len(broken))])
		case 6:
			b.WriteString(`\` + g.one("'", `"`, "}", "{", "$", "`", `\`, "/", " ", "x", "#", "%"))
		case 7:
			b.WriteString(g.hide())
		default:
			b.WriteString(g.one("w", "a b", "*", "k", "-n", " ", "x*", "[ab]"))
		}
	}
	return b.String()
}

func (g *grammar) doubled(d int) string {
	var b strings.Builder
	for range g.IntN(4) {
		switch g.IntN(12) {
		case 0:
			b.WriteString("'" + g.hide() + "'")
		case 1:
			b.WriteString(g.substitution(d))
		case 2, 3:
			b.WriteString(g.param(d))
		case 4:
			b.WriteString(broken[g.IntN(len(broken))])
		case 5:
			b.WriteString(`\` + g.one("'", `"`, "}", "$", "`", `\`, "\n", "x", "$(touch 0)", "`touch 0`"))
		case 6:
			b.WriteString(g.number(d))
		default:
			b.WriteString(g.one("w", "a b", "*", "'", "\n", "-n", "$", "#", "!", "{a,b}", "~"))
		}
	}
	return b.String()
}

func (g *grammar) number(d int) string {
	x := g.one("1", "2", "x", "y", "a[0]", "a[x]", "$x", "${x}", "${#x}", "16#ff", "x=1", "x++", "010")
	for range g.IntN(3) {
		x += g.one("+", "-", " * ", "<", " << ", "==", "&&", "?1:", ",", "%") + g.one("1", "x", "$x", "-1", "(2)", "!x")
	}
	if d > 0 && g.IntN(6) == 0 {
		x += "+" + g.substitution(d-1)
	}
	return g.one("$(("+x+"))", "$(( "+x+" ))", "$["+x+"]")
}

func (g *grammar) substitution(d int) string {
	if d <= 0 {
		return g.one("$(echo s)", "`echo s`", "$(probe q)")
	}
	inner := g.list(d - 1)
	switch g.IntN(4) {
	case 0:
		return "`" + strings.ReplaceAll(inner, "`", "") + "`"
	case 1:
		return "$(" + inner + "\n)"
	}
	return "$(" + inner + ")"
}

func (g *grammar) word(d int) string {
	var b strings.Builder
	for range 1 + g.IntN(3) {
		switch g.IntN(18) {
		case 0:
			b.WriteString("'" + strings.ReplaceAll(g.hide(), "'", "") + "'")
		case 1, 2, 3:
			b.WriteString(`"` + g.doubled(d) + `"`)
		case 4, 5:
			b.WriteString(g.param(d))
		case 6:
			b.WriteString(g.substitution(d))
		case 7:
			b.WriteString(`\` + g.one("$(touch 0)", "'", `"`, "#", " ", ";", "`", "\n", "|", "{", "(", "x"))
		case 8:
			b.WriteString(g.one(`$'a\'b'`, `$'\n'`, `$'$(touch 0)'`, `$'\x41\u00e9'`, `$'\\'`, `$"t"`, `$"$(touch 0)"`, `$'\c'`, `$'\0x'`))
		case 9:
			b.WriteString(g.one("{a,b}", "{1..3}", "x{a,'b c'}", "{a,$x}", "{,-d}", "{a,b}{", "{a", "{a,{b,c}}", "{a\\,b}", "{}", "{a..c}", "{1..9..4}"))
		case 10:
			b.WriteString(g.one("*", "[ab]*", "?", "~", "~/x", "[x", "x]", "a=~", "~root", "*.b"))
		case 11:
			b.WriteString(g.number(d))
		case 12:
			if g.IntN(4) == 0 {
				b.WriteString(broken[g.IntN(len(broken))])
			}
		default:
			b.WriteString(g.one("w", "k", "-n", "2", "a.b", "x=y", "%", "@", "-delete", "!", "#", "in", "do", "}"))
		}
	}
	return b.String()
}

func (g *grammar) words(d int) string {
	var b strings.Builder
	for range g.IntN(4) {
		b.WriteString(g.gap() + g.word(d))
	}
	return b.String()
}

// gap generates a separator of words.
func (g *grammar) gap() string {
	if g.IntN(25) == 0 {
		return g.one(" \\\n", "\\\n ", "\\\n", "\t", "  ", " \\\n\\\n")
	}
	return " "
}

func (g *grammar) assignment(d int) string {
	v := g.one("x", "y", "a", "x", "N")
	return g.one("", "", "", "export ", "local ", "declare ", "declare -i ", "readonly ", "declare -n ") + g.one(
		v+"="+g.word(d), v+"="+g.one("1", "-delete", "'a[$(touch 1)]'", "]", "2", "w", "''"), v+"="+g.one("1", "-delete", "'a[$(touch 1)]'", "]"),
		v+"+="+g.word(d), v+"=("+g.words(d)+")", v+"=([1]="+g.word(d)+")", v+"[1]="+g.word(d), v+"["+g.word(0)+"]=1", v+"=("+g.words(d)+")"+g.hide())
}

func (g *grammar) redirect(d int) string {
	switch g.IntN(8) {
	case 0:
		return g.one(" >P1", " 2>P2", " >>P3", " &>P4", " >|P5", " 3<>P6", " {fd}>P7", " >P8", " >&P9", " 2>P1 >P2")
	case 1:
		return g.one(" <", "<<<", " <<< ") + g.word(d)
	case 2:
		return g.one(" 2>&1", " >&2", " <&-", " 2>/dev/null", " </dev/null", " 1>&2", "2>&1")
	}
	tag := g.one("E", "E", "E", "'E'", `"E"`, `\E`, "E1", "'E F'", "''")
	end := strings.Trim(tag, `'"\`)
	body := ""
	for range g.IntN(4) {
		body += g.one("w", "\t", g.doubled(d), g.hide(), broken[g.IntN(len(broken))], `\`+g.one("$", "`", "\n", `\`, "x"), "", "${x:-\"q\"}", "${x:-'$(touch 0)'}") + g.one("\n", "\n", " ", "\\\n", "\n\t")
	}
	op := g.one("<<", "<<", "<<-")
	return op + tag + g.one("", "", " ", "; echo k", " | cat", " && probe k", " # c") + "\n" + body + g.one("\n", "", "\\\n") + g.one("", "", "\t") + end + "\n"
}

// command generates one command.
func (g *grammar) command(d int) string {
	if d <= 0 {
		return g.one("echo ", "probe ", "probe ", "fail ", "find ") + g.one("$x", `"$x"`, "w", "$((x))", "$((x+1))", "${y}", "\"${x}\" $y", "[$x", "\"-$x\"", "${a[0]}", `"$@"`, "${x:x:1}")
	}
	switch g.IntN(30) {
	case 0, 1:
		return g.assignment(d) + g.one("", "", "", "", " <nofile", " >P1")
	case 2:
		return g.assignment(d) + " " + g.command(d-1)
	case 3:
		return "if " + g.list(d-1) + g.one("; ", "\n") + "then " + g.list(d-1) + g.one("\nelse "+g.list(d-1), "") + "\nfi"
	case 4:
		return "for " + g.one("x", "y") + " in" + g.words(d-1) + g.one("; ", "\n") + "do " + g.list(d-1) + g.one("; ", "\n") + "done"
	case 5:
		return "while fail" + g.words(0) + "; do " + g.list(d-1) + "\ndone"
	case 6:
		return "case " + g.word(d-1) + " in " + g.one("", "(") + g.word(d-1) + ") " + g.list(d-1) + g.one(";;", "\n;;", ";;&", ";&") + g.one("", " *) "+g.list(d-1)+";;") + " esac"
	case 7:
		return "{ " + g.list(d-1) + g.one("; ", "\n") + "}" + g.one("", "", " >P3", " <nofile")
	case 8:
		return "(" + g.list(d-1) + ")" + g.one("", "", "#"+g.hide())
	case 9:
		return g.one("f() { ", "function f { ") + g.list(d-1) + "\n}\nf" + g.words(0)
	case 10:
		return "[[ " + g.one(g.word(d-1)+g.one(" == ", " = ", " != ", " < ", " -eq ", " =~ ", " -nt ")+g.word(d-1), "-n "+g.word(d-1), "-v "+g.word(0), "! -z $x", "$x -eq 1", "x -eq 1", "$x =~ ^(a|b)$", "( -n x )") + g.one(" ]]", " && -n $y ]]", " ]]#"+g.hide())
	case 11:
		return "((" + g.one("x", "x=1", "x++", "a[x]", "y < 2", "1") + "))" + g.one("", "", "#"+g.hide())
	case 12:
		return g.command(d-1) + g.one(" | ", " |& ", " |\n") + g.command(d-1)
	case 13:
		return g.one("! ", "time ", "! ! ", "time -p ") + g.command(d-1)
	case 14:
		return g.one("[ ", "test ") + g.one(`"$x" -eq 1`, "-v x", "-n "+g.word(d-1), `"$x" = "$y"`, "-v 'a[$(touch 2)]'", "$x -eq 1") + g.one(" ]", "")
	case 15:
		return g.one("eval ", "eval ") + g.word(d-1)
	case 16:
		return g.one("read ", "read -r ", "IFS=: read ") + g.one("x", "y", "x y", "a[0]", "-a a") + g.one(" <<< ", "<<<") + g.word(d-1)
	case 17:
		return g.one("printf -v x %s ", "printf '%s\\n' ", "let x=", "unset ", "command read x <<< ", "builtin printf -v x %s ", "builtin declare x=", "command export y=", "unset -v x ", "printf -v y%s ", "set -- ", "shift; ", "declare -p ", "mapfile -t a <<< ") + g.word(d-1)
	case 18:
		return "trap " + g.one("'x=-delete'", "'probe t'", "\"touch 5\"") + " " + g.one("EXIT", "DEBUG", "ERR", "RETURN")
	case 19:
		return g.command(d-1) + g.one(" &", " & wait", "")
	case 20, 21, 22:
		return g.one("cat", "probe", "cat", "echo") + g.words(d-1) + g.redirect(d-1)
	}
	head := g.one("echo", "probe", "find", "probe", "cat", "fail", "echo", "find sub")
	if g.IntN(12) == 0 {
		head = g.one(`\probe`, "'probe'", `"echo"`, "$x", "pro\\\nbe", "touch", "x=1 probe", ">P4 probe", "command echo", "builtin echo")
	}
	s := head + g.words(d-1)
	if g.IntN(5) == 0 {
		s += g.redirect(d - 1)
	}
	if g.IntN(12) == 0 {
		s += g.one(" ", "", "\t") + "#" + g.hide()
	}
	return s
}

// list generates a list of commands.
func (g *grammar) list(d int) string {
	s := g.command(d)
	for range g.IntN(3) {
		s += g.one("; ", "\n", " && ", " || ", ";", "\n", " ;\n# c\n", " # c\\\n", " # c\n") + g.command(d)
	}
	return s
}

// seeds are forms that bash and the parser were found to read differently, and bindings that were found to be wrong.
var seeds = []string{`echo "${@:-$(touch 9)}"`, `echo "${a[0]:-$(touch 9)}"`, "echo ${a[@]/a/$(touch 9)}", "cat <<E\n${@:-$(touch 9)}\nE", "echo x # y\\\ntouch 9", "echo \"$\\\n(touch 9)\"",
	"cat <<E\n$\\\n(touch 9)\nE", "cat <<E\n\\\nE\ntouch 9\nE", "cat <<E\nE\\\n\ntouch 9\nE", "echo `echo '`; touch 9; echo `'`", "echo `cat <<E\n`touch 9`\nE\n`", `echo "${N:-'$(touch 9)'}"`,
	"cat <<E\n${N:-'$(touch 9)'}\nE", "a=(x)#;touch 9", "x='a[$(touch 9)]'; fail && x=1; echo $((x))", "x='a[$(touch 9)]'; x+=1; echo $((x))", "for x in 1 2; do :; done | cat; echo $((x))",
	"x=-delete; fail && x=y; find sub \"$x\"", "x=]; find sub [-${x}delete", "x=1; f() { x='a[$(touch 9)]'; }; f; echo $((x))", "x=1; (x=-delete; find $x)", "x='a[$(touch 9)]'; echo ${y:x:1}",
	"echo ${x:-<(touch 9)}", "declare -i x; x='a[$(touch 9)]'", "[[ 'a[$(touch 9)]' -eq 1 ]]", "test -v 'a[$(touch 9)]'", "x=1; read x <<< 'a[$(touch 9)]'; echo $((x))",
	"x=1; printf -v x %s 'a[$(touch 9)]'; echo $((x))", "x=1; declare -n y=x; y='a[$(touch 9)]'; echo $((x))", "cat <<E | cat\n`echo E`\nE\ntouch 9", "if x=1; then :; fi | cat; find $x",
	"cat <<E; echo \"$(cat <<F\n$x\nF\n)\"\nbody\nE", "echo \"$(cat <<'E'\n)\"; touch 9 #\nE\n)\"", `echo "$(case a in a) echo x;; esac)"`, `echo $(case a in (a) echo ")";; esac)`,
	"echo $(( (1) ))", "echo $((echo a) )", "((x=1);(y=2))", "( (echo a); echo b)", "((echo a); echo b)", "echo $( (echo a) )", `echo "${x:-"$(echo "}")"}"`, "echo ${x:-'}'}",
	`echo "${x:-\}}"`, `echo "${x:-'}'}"`, `echo ${x:-${y:-"a b"}}`, `echo "${x#\"}"`, `echo "${x//\'/}"`, `echo "${x//'/}"; echo 'k'`, "echo a{b,c}$x{d,e}", "echo {a,b}'{c,d}'",
	"[[ a =~ a|b ]] && echo k", `[[ "a b" =~ a\ b ]] && echo k`, "[[ a == @(a|b) ]] && echo k", "[[ a = [ab] ]] && echo k", "[[ x && ( y || z ) ]] && echo k", "for((x=0;x<2;x++)){ echo $x; }",
	"a[1]=x b=2 probe", "a=(1 2); a+=([2]=c); echo ${a[@]}", `declare -A m=([k]=v ["a b"]=c); echo ${m[k]} "${m["a b"]}"`, "echo \"a\\\nb\"", "echo 'a\\\nb'", "echo $'a\\\nb'",
	"cat <<\"E\"\n$(touch 9)\nE", "cat << E\n$x\nE\n", "cat <<E>P1\n$x\nE", "cat 0<<E\n$x\nE", "cat <<E <<F\na\nE\nb\nF", "echo ~+ ~- ~1 ~root ~x/y", "x=~/a:~/b; echo $x a=~ b=:~/c",
	"IFS=,; x=a,-delete; find sub $x", "set -- -delete; find sub $1", "set -f; echo *", `[ -v "a[$(touch 9)]" ]`, "test -R x", "{fd}>P1 probe", "probe {fd}>P1 $fd", "probe >P1>P2", "probe 2>&1>P1",
	"time probe | cat", "time", "command e${a,,}", "command e$x probe", "command -p $y", "f() { case } in }) echo k;; esac; }; f", ">P1 !(touch 9)", "coproc probe", "coproc x { probe; }", "select x in a; do probe; break; done", "echo ${!x*} ${!x@} ${!x}", "echo ${x@U} ${a[@]:1:2} ${@:1:1}", `echo $"a"$'b'"c"'d'e`,
	"shopt -s extglob\necho !(a)", "echo @(a|b)", "case a in @(a|b)) probe;; esac", "x='*'; echo $x", "x='a b'; find $x", "x=a; x=$x-delete; find $x", "find ${x:--delete}", "find ${x:+-delete} sub", "find sub ${y/v/-delete}",
	"x=(-delete); find sub $x", "for x in -delete; do find sub $x; done", "for x in a -delete; do find sub \"$x\"; done", "x=y; for i in 1 2; do find sub $x; x=-delete; done", "while read x; do find sub $x; done <<< -delete",
	"x=y; { x=-delete; }; find sub $x", "x=y; if true; then x=-delete; fi; find sub $x", "x=y; x=-delete true; find sub $x", "x=y; export x=-delete; find sub $x", "x=1; ((x=2)); echo $((x))", "x=1; : $((x=2)) ${z:=3}; echo $((x+z))",
	"x=y; local x=-delete; find sub $x", "unset x; find sub ${x-'-delete'}", "x=y\nx=-delete eval :\nfind sub $x", "x=-delete; x=y : ; find sub $x", "x=y; . ./missing; find sub $x", "x=y; command eval x=-delete; find sub $x",
	"x=y; builtin read x <<< -delete; find sub $x", "x=y; getopts ab x -a; find sub -$x", "x=y; wait -p x; find sub $x", "x=y; {x}>P1; find sub $x", "x=y; [[ a =~ (a) ]]; find sub ${BASH_REMATCH[1]} $x", "HOME=-delete; find sub ~ $HOME",
	"PWD=-delete; find sub $PWD", "OLDPWD=-delete; find $OLDPWD", "cd /; find $PWD", "RANDOM=1; UID=2; x=-delete\nUID=3; x=y\nfind sub $x", "x=-delete\necho ${y:0:-9}; x=y\nfind sub $x", "x=-delete\necho $((1%0)); x=y\nfind sub $x",
	"x=-delete\n: $((1/x)); x=y\nfind sub $x", "x=y; f() { find sub $x; }; x=-delete; f", "x=y; f() { find sub $x; }; x=-delete f", "f() { local x=y; find sub $x; }; x=-delete; f", "x=y; (f() { x=-delete; }; f; find sub $x)",
	"x=$(echo -delete); find sub $x", "x=$(cat <<'E'\n-delete\nE\n); find sub $x", "find sub $(echo -delete)", "find sub \"$(cat <<'E'\n-delete\nE\n)\"", "find sub \"$(<P1)\" `echo -delete`", "printf '%s' -delete | while read x; do find sub $x; done",
	"echo a |& cat; echo b 2>&1 | cat", "echo \\\\ \\a \\\" \\' \\$x \\`", `echo "\\ \a \" \' \$x \` + "`" + `"`, "echo '\\'", "cat <<E\n\\\\ \\a \\\" \\' \\$x \\`\nE", "cat <<E\n\"$x\" 'a' ${x:-b} $(echo '\"') `echo c`\nE", "cat <<-E\n\t\ta\n\t$x\n\tE",
	"cat <<-'E'\n\t\ta\n\t$x\n\tE", "cat <<-E\n\ta\\\n\tb\n\tE", "if probe; then :; elif fail; then :; else probe; fi", "until probe; do :; done", "case $x in\na|b) probe;;\n*) ;;\nesac", "case x in esac", "f () (probe); f", "f() if probe; then :; fi; f", "echo $$ $! $- $0 $_",
	"echo ${#} ${?} ${#x} ${#@} ${#a[*]}", "echo $1a ${1}0 $10 $x[0] ${x}[0]", "echo \"$x\"y$y'z'", "probe a=b c+=d e[0]=f", "probe [a]=b {} { } ! [[ ]] then", "export x=1 y z=$y; declare -r w=1; readonly v", "echo a & echo b; wait", "(probe) & wait", "{ probe; } 2>&1 | cat",
	"x=1 y=2; echo $x$y", "echo 'é' é \"é\" $'\\u00e9'", "echo \"$(echo \"$(echo \"a b\")\")\"", "echo \"`echo \\\"a b\\\"`\"", "echo `echo \"a b\"` \"`echo 'c'`\"", "echo $(echo `echo a`)", "echo \"a\nb\" 'c\nd'", "cat <<E 'a\nb'\nc\nE", "cat <<E $(echo a\necho b)\nc\nE",
	"! fail && echo k", "x=a; case $x in a) echo 1;& b) echo 2;;& *) echo 3; esac", "[[ -n $x || -z $y && ! -e P1 ]] || echo k", "[[ $y == v* ]] && [[ $y = \"v\" ]] && [[ $y != 'w' ]] && echo k", "[[ $y =~ ^(v|w)+$ ]] && echo ${BASH_REMATCH[1]}",
	"let x=1+2; echo $x", "let \"x = 1 + 2\" y=3; echo $x$y", "((x = 1 + 2)); echo $x", "((x<<=1, y=x?1:2)); echo $x", "echo $((x ? 1 : 2)) $((1,2)) $((~1)) $((!x)) $((- -1)) $((2**3)) $((x+=1)) $((1<<2>>1))", "echo $(( x++ + ++x ))", "a=(1 2); echo $((a[1]+a[0])) ${a[-1]} ${a[1-1]}",
}

// mutate changes a command in random positions.
func (g *grammar) mutate(s string) string {
	for range 1 + g.IntN(3) {
		i := g.IntN(len(s) + 1)
		j := min(len(s), i+g.IntN(4))
		switch g.IntN(4) {
		case 0:
			s = s[:i] + s[j:]
		case 1:
			s = s[:j] + s[i:]
		default:
			s = s[:i] + broken[g.IntN(len(broken))] + s[i:]
		}
	}
	return s
}

// soup generates pieces in random order.
func (g *grammar) soup() string {
	s := g.one("", "probe ", "echo ", "cat ", "probe \"", "echo $(", "x=", "[[ ", "cat <<E\n", "echo ${x:-", "a=(", "((", "case a in ")
	for range 2 + g.IntN(9) {
		switch g.IntN(4) {
		case 0:
			s += pick(g.Rand, broken)
		case 1:
			s += g.hide()
		case 2:
			s += g.one("w", " ", "x", "$x", "$y", "a", "E", "\n", ";", " k ", "${x", "}", ")", "\"", "'", "-n", "probe ", "echo ", "1")
		default:
			s += g.one("w ", "\"$x\" ", "$(echo k)", "'q' ", "${y}", "; echo k", "\n", "done", "E\n", "touch 8")
		}
	}
	return s + g.one("", "\"", ")", "}", "'", ")\"", "\nE\n", " ]]", "))", "; esac")
}

// next generates one complete command.
func (g *grammar) next() string {
	var s string
	switch g.IntN(8) {
	case 0:
		s = pick(g.Rand, seeds)
	case 2:
		return g.soup()
	case 3: // mostly text that is read without the parser
		s = g.one("probe ", "echo ", "", "cat ")
		for range 1 + g.IntN(10) {
			s += pick(g.Rand, pieces) + g.one(" ", " ", "")
		}
		return s
	case 1:
		s = g.assignment(1) + "; " + g.list(1)
	default:
		s = g.list(1 + g.IntN(3))
	}
	if g.IntN(3) == 0 {
		s = g.mutate(s)
	}
	return s
}

// dangerous reports whether a command might affect this machine or never end. It looks for names that the
// grammar does not have but mutations may produce.
func dangerous(s string) bool {
	if strings.Count(s, "while") != strings.Count(s, "while fail ")+strings.Count(s, "while fail;") {
		return true
	}
	return slices.ContainsFunc([]string{"exec", "kill", "/dev/", "source", "trap '' ", "ulimit", "until ", "history", "fc ", "for ((", "enable", "coproc", "alias", "while :", "! fail"}, func(word string) bool {
		return strings.Contains(strings.ReplaceAll(strings.ReplaceAll(s, "/dev/null", ""), "/dev/fd", ""), word)
	})
}
