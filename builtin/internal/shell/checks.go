package shell

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
	"github.com/kitbag-go/kitbag/internal/lazy"
)

// checks has the functions that check arguments of commands whose effect is not determined by
// their options, by the name after "fn:" in the tables. They return why the arguments are not
// accepted, or "", and add effects and operands to parsed. It is set in init, as some of them read the tables.
var checks func() map[string]func(*walker, *command, *parsed) string

func init() { checks = sync.OnceValue(newChecks) }

func newChecks() map[string]func(*walker, *command, *parsed) string {
	return map[string]func(*walker, *command, *parsed) string{
		"find": findArgs, "sed": sedArgs, "awk": awkShows, "printf": printfArgs, "read": readArgs, "test": testArgs,
		"cd": cdArgs, "set": setArgs, "env": envArgs, "shell": shellArgs, "git": gitArgs, "gitconfig": gitConfigArgs, "getconfig": gitConfigGetArgs, "settings": settingsArgs,
		"tar": tarArgs, "dd": ddArgs, "history": historyArgs, "yq": yqArgs,
		"kube": kubeArgs, "kubeget": kubeGetArgs, "kubedescribe": kubeDescribeArgs, "kubehistory": kubeHistoryArgs, "top": topArgs, "unit": unitArgs, "copy": copying('r'), "move": copying('d'), "gitwrite": gitWriteArgs, "subcommand": subcommandArgs, "reflog": reflogArgs, "code": codeArgs,
		"getent": getentArgs, "service": serviceArgs, "archive": archiveArgs, "untar": untarArgs, "fd": fdArgs, "tmux": tmuxArgs, "upload": uploadArgs, "mode": modeArgs, "envfile": envFileArgs, "compose": composeArgs, "ssh": sshArgs, "grep": grepArgs, "jq": jqArgs, "ps": psArgs, "container": containerArgs, "layers": layersArgs, "printenv": printenvArgs, "declare": declareArgs, "host": hostArgs, "gh": ghArgs,

		// A pager runs an operand such as +!ls as a command.
		"noplus":   refusing("may be a command for the pager", func(op *roleArg) bool { return mayBegin(op, "+") }),
		"noequals": refusing("may set a value", func(op *roleArg) bool { return !op.known || strings.Contains(op.text, "=") }),
		"nourl": refusing("may be on another machine, or a macro", func(op *roleArg) bool {
			return strings.ContainsAny(op.text, "%"+hole) || strings.Contains(op.text, "://")
		}),
		// rpm expands macros in formats, in the texts of a package (":expand") and in names of files.
		"rpm": refusing("may be on another machine, or a macro", func(op *roleArg) bool {
			return !op.known || op.ofOption && strings.Contains(op.text, ":expand") ||
				!op.ofOption && (strings.Contains(op.text, "://") || strings.Contains(op.text, "%"))
		}),
		// The go command resolves versions over the network, possibly from the host in the module's path.
		"local": refusing("may name a version to fetch", func(op *roleArg) bool {
			return strings.Contains(op.text, "@") || !op.known && !op.noDash || op.mayBeRemote()
		}),
		// npm takes names of packages from the registry, clones repositories and fetches URLs.
		"package": refusing("is not the name of a package", func(op *roleArg) bool {
			return !op.ofOption && (!op.known || !packageName().MatchString(op.text) || op.text[0] == '.')
		}),
		// brew evaluates a formula to show it, and also takes third-party taps; man shows any file.
		"noslash": refusing("may be a file", func(op *roleArg) bool {
			return !op.known || strings.ContainsAny(op.text, "/:") || strings.HasSuffix(op.text, ".rb")
		}),
		// Settings are named like variables, perhaps after a scope: //registry.example/:_authToken.
		"nosecret": refusing("may hold credentials", func(op *roleArg) bool {
			name := op.text[strings.LastIndexAny(op.text, ":/.")+1:]
			return !op.known || pathrule.SecretVariable(strings.TrimPrefix(name, "_")) || pathrule.SecretVariable(name) || slices.Contains([]string{"key", "otp"}, name)
		}),
		// OpenSSL also reads from servers and engines, such as http://… and org.openssl.engine:….
		"nocolon": refusing("may be more than a file", func(op *roleArg) bool {
			return op.kind == 'r' && (strings.Contains(op.text, ":") || op.mayBeRemote())
		}),
		"noat": refusing("may name a file with options", func(op *roleArg) bool { return mayBegin(op, "@") }),
	}
}

// refusing returns a check that refuses operands by any of their possible values.
func refusing(why string, bad func(*roleArg) bool) func(*walker, *command, *parsed) string {
	return func(w *walker, _ *command, p *parsed) string {
		for _, op := range p.ops {
			for _, value := range w.values(op.arg, 0) {
				if bad(&roleArg{value, op.kind, op.ofOption}) {
					return op.raw + " " + why
				}
			}
		}
		return ""
	}
}

// values returns a with each word of its source in place of the first hole, or a itself if the source has no words.
// depth is the number of sources that have been replaced; each one multiplies the values.
func (f *findings) values(a arg, depth int) []arg {
	if a.from < firstOrigin || f.origins[a.from-firstOrigin].args == nil {
		return []arg{a}
	}
	words := f.origins[a.from-firstOrigin].args
	if depth > 1 || depth == 1 && len(words) > maxValues {
		return []arg{anything(a.raw)}
	}
	var out []arg
	for _, word := range words {
		word.text = strings.Replace(a.text, hole, word.text, 1)
		word.known = word.known && !strings.Contains(word.text, hole)
		out = append(out, f.values(word, depth+1)...)
	}
	return out
}

// mayBegin reports whether an operand may begin with a sign. A text of a known source that does not begin with "-" is a
// path or an identifier, and begins with neither sign.
func mayBegin(op *roleArg, sign string) bool {
	return strings.HasPrefix(op.prefix(), sign) || op.prefix() == "" && (!op.noDash || op.from == anywhere)
}

// mayBeRemote reports whether unknown text may make the argument name something on another machine: m@latest, a URL.
func (a *arg) mayBeRemote() bool {
	isPath := strings.HasPrefix(a.prefix(), "/") || strings.HasPrefix(a.prefix(), ".")
	return strings.Contains(a.text, hole) && a.from != noFile && !isPath
}

// packageName matches NAME, @SCOPE/NAME and NAME@VERSION.
var packageName = lazy.Regexp(`^(@[\w.-]+/)?[\w.\[\]*-]+(@[^/:]+)?$`)

// shells read commands from a script, from -c or from their input.
var shells = []string{"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "rbash"}

// schedulers read shell commands from their input and run them later.
var schedulers = []string{"at", "batch"}

// percentN matches the conversion that stores a count in the variable named by its argument,
// with flags, width and precision (printf in bash(1)).
var percentN = lazy.Regexp(`%[-+ #0-9.*']*[hlLjzt]*n`)

// printfArgs refuses formats that assign: %n evaluates its argument as a name.
func printfArgs(_ *walker, _ *command, p *parsed) string {
	if len(p.ops) > 0 && (!p.ops[0].known || percentN().MatchString(strings.ReplaceAll(p.ops[0].text, "%%", ""))) {
		return "the format is not literal, or assigns"
	}
	return ""
}

// lowerName matches a lower-case name without a subscript, which bash would evaluate.
var lowerName = lazy.Regexp(`^[a-z_][a-z0-9_]*$`)

// readArgs allows only the script's own variables to be set by read.
func readArgs(w *walker, _ *command, p *parsed) string {
	// "read -r name _" discards the rest of the line.
	names := slices.DeleteFunc(slices.Clone(p.ops), func(op roleArg) bool { return op.text == "_" })
	if array, ok := p.value("-a"); ok {
		names = append(names, roleArg{arg: array})
	}
	for _, a := range names {
		if !a.known || !lowerName().MatchString(a.text) || unsafeVariable(a.text) != "" {
			return "it sets a variable that may not be the script's own"
		}
		w.set(a.text, binding{})
	}
	return ""
}

// The operators of test. The word after an operator, or before a binary one, is an operand, even if it looks like an
// operator.
var (
	unaryTests  = strings.Fields("-a -b -c -d -e -f -g -h -k -p -r -s -t -u -w -x -G -L -N -O -S -z -n -o !")
	binaryTests = strings.Fields("= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef")
)

// testArgs refuses tests that evaluate a name, literal or from a variable.
func testArgs(w *walker, c *command, p *parsed) string {
	args := c.args[1:]
	if c.name == "[" {
		if len(args) == 0 || !args[len(args)-1].known || args[len(args)-1].text != "]" {
			return "no closing bracket"
		}
		args = args[:len(args)-1]
	}
	is := func(i int, set []string) bool {
		return i >= 0 && i < len(args) && args[i].known && slices.Contains(set, args[i].text)
	}
	for i, a := range args {
		switch {
		case a.known && (a.text == "-v" || a.text == "-R"):
			if i+1 >= len(args) || !args[i+1].known || !lowerName().MatchString(strings.ToLower(args[i+1].text)) {
				w.alarm(Dynamic, "a test of a variable's name evaluates it")
				return "a test of a variable's name evaluates it"
			}
		case a.known || a.wild && a.noDash:
		case !a.field:
			return a.raw + " may expand to other tests; quote it"
		case !is(i-1, unaryTests) && !is(i-1, binaryTests) && !is(i+1, binaryTests) && len(args) > 1:
			return a.raw + " may be read as an operator"
		}
	}
	return ""
}

// toplevels are the usual expressions for the top of a repository's work tree.
var toplevels = []string{`"$(git rev-parse --show-toplevel)"`, "$(git rev-parse --show-toplevel)", "\"`git rev-parse --show-toplevel`\""}

// cdArgs tracks the change of directory. Without an operand cd goes home; popd and pushd go to an
// earlier directory. With -P links in the operand are resolved.
func cdArgs(w *walker, c *command, p *parsed) string {
	switch {
	case p.has("-P") && len(p.ops) > 0 && p.ops[0].known && !strings.Contains(p.ops[0].text, "..") && p.ops[0].text != "-" && !w.cwdLost:
		w.addCwds(w.realPaths(w.cwds, p.ops[0].text))
	case p.has("-P"), c.name != "cd" && (len(p.ops) == 0 || strings.HasPrefix(p.ops[0].text, "+")):
		w.loseCwd()
	case len(p.ops) == 0:
		w.cd(literal(w.at.Home))
	case c.name == "cd" && slices.Contains(toplevels, p.ops[0].raw) && len(w.cwds) == 1:
		// Outside a work tree git prints nothing, and cd does not change the directory.
		w.cd(literal(w.answer(fact{question: workTreeTop, dir: w.cwds[0]})))
	default:
		w.cd(p.ops[0].arg)
	}
	return ""
}

// setArgs allows the options that make a script stricter or more verbose. Others change the
// meaning of later words: "set -- -delete" sets "$@", -f disables globbing, and -a exports
// assigned variables.
func setArgs(w *walker, c *command, _ *parsed) string {
	if len(c.args) == 1 && !w.in.noValue {
		return environmentShown
	}
	expectName := false // after -o
	for _, a := range c.args[1:] {
		switch {
		case !a.known:
			return a.raw + " is not literal"
		case expectName:
			if !slices.Contains([]string{"pipefail", "errexit", "nounset", "xtrace"}, a.text) {
				return "option " + a.text + " is not on the list"
			}
			expectName = false
		case len(a.text) > 1 && strings.ContainsAny(a.text[:1], "-+") && strings.Trim(a.text[1:], "euxo") == "":
			expectName = strings.HasSuffix(a.text, "o")
		default:
			return "it sets " + a.text
		}
	}
	return ""
}

// envArgs skips the assignments between a wrapper and its command. Without a command env shows the environment, which
// is empty after -i; -S contains the command.
func envArgs(w *walker, _ *command, p *parsed) string {
	why := ""
	if p.rest < 0 && !p.has("-i", "--ignore-environment", "-S", "--split-string") && !w.in.noValue {
		return environmentShown
	}
	for p.rest >= 0 {
		a := p.args[p.rest]
		name, value, ok := strings.Cut(a.prefix(), "=")
		switch {
		case ok:
			a.text = value
			why = cmp.Or(unsafePrefix(name, a), why)
		case a.text != "-": // the same as -i
			return why
		}
		if p.rest++; p.rest == len(p.args) {
			p.rest, why = -1, environmentShown
		}
	}
	return why
}

// shellArgs finds the script of sh -c, and accepts bash -n FILE, whose operand is only read.
func shellArgs(w *walker, c *command, p *parsed) string {
	if len(p.ops) == 1 && p.ops[0].kind == 'r' {
		return ""
	}
	p.effects |= executing
	if len(p.ops) == 0 {
		return "it runs its input as a script"
	}
	if ops := p.ops; strings.HasPrefix(ops[0].text, "+") { // turns an option off; +o and +O have a value
		n := 1
		if strings.Trim(ops[0].text, "oO") != ops[0].text {
			n = 2
		}
		words := []arg{c.args[0]}
		if p.has("-c") {
			words = append(words, literal("-c"))
		}
		for _, op := range ops[min(n, len(ops)):] {
			words = append(words, op.arg)
		}
		w.inside(len(w.cmds)-1, func() { w.simpleCommand(words, joinRaw(words), w.secret) })
		return "it turns off an option of the shell"
	}
	if p.has("-c") {
		w.inside(len(w.cmds)-1, func() { w.script([]arg{p.ops[0].arg}) })
		return ""
	}
	return "it runs a script"
}

// modeArgs raises an alarm for files that become writable by all users.
func modeArgs(w *walker, c *command, p *parsed) string {
	for _, o := range []string{"-m", "--mode"} {
		if v, ok := p.value(o); ok && modeOpens(v.text) {
			w.alarm(Destructive, c.String()+": it gives all users write access, or the owner's rights")
		}
	}
	if len(p.ops) == 0 {
		return "it has no operand to create"
	}
	return ""
}

// sshKeywords are settings that start a program on this machine, or load a library
// (ssh_config(5)). Case is ignored.
var sshKeywords = strings.Fields("proxycommand localcommand permitlocalcommand knownhostscommand pkcs11provider securitykeyprovider xauthlocation include match")

// sshArgs requires a rule for the whole command if "-o" sets one of sshKeywords, or if options follow the host's
// name, where ssh also accepts them.
func sshArgs(_ *walker, c *command, p *parsed) string {
	p.whole = p.rest >= 0 && strings.HasPrefix(p.args[p.rest].prefix(), "-")
	for i, a := range c.args[1:] {
		before, text := c.args[i].text, strings.ToLower(a.text)
		afterO := strings.HasPrefix(before, "-") && strings.HasSuffix(before, "o")
		for _, key := range sshKeywords {
			attached := strings.HasPrefix(text, "-") && strings.Contains(text, "o"+key)
			if attached || afterO && strings.HasPrefix(strings.TrimSpace(text), key) {
				p.whole = true
			}
		}
	}
	return ""
}

// serviceArgs accepts "service NAME status" only.
func serviceArgs(_ *walker, _ *command, p *parsed) string {
	if len(p.ops) != 2 || !p.ops[1].known || p.ops[1].text != "status" {
		return "it does more than show the status"
	}
	// The name is that of a file in /etc/init.d, which runs.
	if name := p.ops[0]; !name.known || strings.Contains(name.text, "/") {
		return name.raw + " may be a file in another directory"
	}
	return ""
}

// uploadArgs finds the files that curl sends: "@file", or "name=@file;type=…".
func uploadArgs(_ *walker, _ *command, p *parsed) string {
	for _, o := range p.given {
		if _, name, ok := strings.Cut(o.value.text, "@"); ok && slices.Contains(uploads, o.name) {
			name, _, _ = strings.Cut(name, ";")
			file := o.value
			file.text = name
			p.ops = append(p.ops, roleArg{arg: file, kind: 'r', ofOption: true})
		}
	}
	return ""
}

var uploads = strings.Fields("-d -F -H --data --data-ascii --data-binary --data-urlencode --form --json --header")

// expandsTwice matches a format with a modifier, such as #{E:session_name}, that expands a value as a format again.
var expandsTwice = lazy.Regexp(`#\{[^#}]*:`)

// tmuxArgs refuses formats with "#( )", which tmux runs.
func tmuxArgs(_ *walker, c *command, _ *parsed) string {
	for _, a := range c.args[1:] {
		if !a.known || strings.Contains(a.text, "#(") || expandsTwice().MatchString(a.text) {
			return a.raw + " may run a program"
		}
	}
	return ""
}

// ddArgs finds the files of dd, which tables cannot describe as operands.
func ddArgs(_ *walker, c *command, p *parsed) string {
	for _, a := range c.args[1:] {
		name, value, _ := strings.Cut(a.text, "=")
		a.text = value
		if kind := map[string]byte{"if": 'r', "of": 'w'}[name]; kind != 0 {
			p.ops = append(p.ops, roleArg{arg: a, kind: kind})
		}
	}
	return ""
}

// historyArgs allows history only to show entries.
func historyArgs(_ *walker, c *command, _ *parsed) string {
	if slices.ContainsFunc(c.args[1:], func(a arg) bool { return !a.known || !isNumber(a.text) }) {
		return "it changes the history"
	}
	return ""
}

// ghArgs is hostArgs for gh, whose option --jq has a program of jq.
func ghArgs(w *walker, c *command, p *parsed) string {
	for _, o := range p.given {
		if (o.name == "-q" || o.name == "--jq") && (!o.value.known || jqEnvironment().MatchString(o.value.text)) {
			return environmentShown
		}
	}
	if c.args[1].text == "search" { // its operands are no names
		return ""
	}
	return hostArgs(w, c, p)
}

// hostArgs refuses names of repositories and images that contain, or may contain, the name of a host: connecting to
// it alone can send data there.
func hostArgs(_ *walker, _ *command, p *parsed) string {
	var named []arg
	for _, op := range p.ops {
		named = append(named, op.arg)
	}
	for _, o := range p.given {
		if o.name == "-R" || o.name == "--repo" {
			named = append(named, o.value)
		}
	}
	for _, a := range named {
		host, _, ok := strings.Cut(a.text, "/")
		if !a.known || ok && strings.ContainsAny(host, ".:@") || strings.Count(a.text, "/") > 1 {
			return a.raw + " may be on another machine"
		}
	}
	return ""
}

// getentArgs refuses hashes of passwords, and adds the network effect for names of hosts.
func getentArgs(_ *walker, _ *command, p *parsed) string {
	if len(p.ops) > 0 && (!p.ops[0].known || strings.HasSuffix(p.ops[0].text, "shadow")) {
		return "it may show hashes of passwords"
	}
	if len(p.ops) > 1 && (!p.ops[0].known || strings.HasPrefix(p.ops[0].text, "ahosts") || p.ops[0].text == "hosts" || p.ops[0].text == "networks") &&
		!(len(p.ops) == 2 && p.ops[1].text == "localhost") {
		p.effects |= networking
	}
	return ""
}

// copying returns the check of cp or mv: if an option names the target directory, all operands are sources, of the
// given kind. It refuses what cp and mv refuse, so that accept-edits allows only complete commands.
func copying(kind byte) func(*walker, *command, *parsed) string {
	return func(_ *walker, _ *command, p *parsed) string {
		into := p.has("-t", "--target-directory")
		for i := range p.ops {
			if op := &p.ops[i]; into && !op.ofOption {
				op.kind = kind
			}
		}
		if len(p.ops) < 2 {
			return "it has too few operands"
		}
		return ""
	}
}

// subcommandArgs requires a subcommand: without one the command does its main work.
func subcommandArgs(_ *walker, _ *command, p *parsed) string {
	if p.rest < 0 && len(p.given) == 0 {
		return "without a subcommand it changes something"
	}
	return ""
}

// alarmingCode matches words of inline code that does more than compute and print. A match raises an alarm that no
// rule silences. The absence of a match proves nothing: inline code is never read-only.
var alarmingCode = lazy.Regexp(`rmtree|unlink|os\.(system|remove|exec|popen)|subprocess|socket|\bpty\b|child_process|shutil|/dev/tcp|exec\(|eval\(|\bsystem\b|popen|rm_rf|rmSync|removeAll|proc_open|passthru|\bexec\b|removeSync|do shell script|shell-command`)

// codeArgs raises an alarm for inline code that matches alarmingCode. The code follows an option that ends with one of
// the letters c, e, E, r (php) and p (node), or --eval.
func codeArgs(w *walker, c *command, _ *parsed) string {
	for i, a := range c.args[:len(c.args)-1] {
		if len(a.text) < 2 || a.text[0] != '-' || strings.IndexByte("ceErp", a.text[len(a.text)-1]) < 0 && a.text != "--eval" {
			continue
		}
		runs := slices.Contains([]string{"perl", "ruby", "php"}, c.name) && strings.Contains(c.args[i+1].text, "`")
		if runs || alarmingCode().MatchString(c.args[i+1].text) {
			w.alarm(Dynamic, c.String()+": its code runs programs or removes files")
		}
	}
	return ""
}

// composeArgs refuses compose files outside the project, and files that include others.
func composeArgs(w *walker, c *command, p *parsed) string {
	var names []string
	for _, op := range p.ops {
		if !op.known || op.text == "-" || path.IsAbs(op.text) || strings.ContainsAny(op.text, ":,") {
			return op.raw + " is not a file of the project"
		}
		names = append(names, op.text+":include|extends") // see untrustedFile
	}
	if names == nil { // for directoryRuns, the settings of git
		return ""
	}
	return w.directoryRuns(c, w.cwds, names)
}
