package shell

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A generator generates commands from the tables, with the options and operands of their lines and sometimes
// other words.
type generator struct {
	rand  *rand.Rand
	names []string // the beginnings of commands; subcommands follow after a blank
	quick []string // names of commands that take no time, which are chosen more often
}

// slow are commands that take much of a second to start.
var slow = strings.Fields("npm pip pip3 node go top kubectl oc docker docker-compose podman yq xq tomlq java javac kotlin kotlinc scala python python2 python3")

func newGenerator(seed1, seed2 uint64, names []string) *generator {
	quick := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		first, _, _ := strings.Cut(name, " ")
		return slices.Contains(slow, first)
	})
	return &generator{rand.New(rand.NewPCG(seed1, seed2)), names, quick}
}

// notTried are the commands that tests do not run, with the reason. If a table were wrong about one of them, it
// could change more than the test's directory.
var notTried = map[string]string{
	"they ask another machine": `curl wget scp sftp ftp telnet nc ncat netcat socat ping ping6 traceroute tracepath mtr dig nslookup host whois
		nmap http https xh aria2c axel lynx w3m links rclone aws gcloud az getent`,
	"they speak to the system's own services": `systemctl service journalctl timedatectl hostnamectl localectl loginctl sysctl mount bindfs swapon
		nvidia-smi sensors acpi sar dmesg route arp ip ifconfig defaults system_profiler xcode-select tmux screen ssh-add`,
	"they change the packages or the users of the machine": `apt apt-get aptitude apt-cache apt-mark yum dnf apk rpm pacman brew snap flatpak port
		zypper useradd userdel usermod groupadd groupdel groupmod deluser adduser passwd chsh chfn visudo`,
	"they stop processes, disks or the machine": `kill pkill killall renice shutdown reboot halt poweroff init telinit mkfs fdisk sfdisk cfdisk gdisk
		sgdisk parted mke2fs mkswap wipefs cryptsetup losetup umount swapoff lvremove vgremove pvremove hdparm blkdiscard diskutil shred fuser`,
	"they run as another user or in another session, where the test cannot stop them": `sudo doas pkexec gksudo kdesudo run0 su runuser chroot
		unshare nsenter setsid nohup systemd-run at batch crontab dtach abduco exec coproc script ssh busybox toybox strace ltrace gdb lldb
		dbus-run-session dbus-launch`,
	"their launchers fetch what a project asks for": `cargo rustc rustdoc rustfmt clippy-driver rustup yarn pnpm bun npx bunx uvx pipx uv poetry
		conda composer bundle gem pyenv rbenv nodenv asdf nvm fnm mise volta direnv dotnet gradle`,
	"they never end":                      `yes`,
	"the shell that reports ends with it": `exit logout`,
}

// tried returns the names of the tables that the generator uses, by file.
func tried(t testing.TB) map[string][]string {
	t.Helper()
	var not []string
	for _, list := range notTried {
		not = append(not, strings.Fields(list)...)
	}
	byFile := map[string][]string{}
	files, err := tableFiles.ReadDir("tables")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		raw, err := tableFiles.ReadFile("tables/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		family := strings.TrimSuffix(f.Name(), ".txt")
		for _, line := range logicalLines(string(raw)) {
			head, _, _ := strings.Cut(line, " : ")
			for _, name := range expandNames(strings.TrimSuffix(head, " :")) {
				first, _, _ := strings.Cut(name, " ")
				if !strings.HasPrefix(name, "@") && !slices.Contains(not, first) && !slices.Contains(byFile[family], name) {
					byFile[family] = append(byFile[family], name)
				}
			}
		}
	}
	return byFile
}

var (
	tryWords = strings.Fields(`a b.txt sub sub/c *.txt * sub/* ./a -o -n --output=a out -delete -exec ; {} + 1 2,3p p s/a/b/ s/a/b/w
		'w out' '1e touch x' '{print}' '{print>"out"}' '{print $1}' 'BEGIN{system("touch x")}' $HOME "$HOME" $X "$X" "$(echo a)" $(echo out)
		HEAD main status log diff branch tag show add commit stash reflog config user.name -v -l x=y A=1 '' "a b" a{1,2} {a,out} ~ - + /dev/null
		sort ls cat rm touch tee -name -type f -print -printf %p -fprint ! -o -maxdepth 1 -- . .. sub/.. -i -a -r -e -d -f -w -x --force --help --version`)
	// Operands for commands with their own language.
	tryText = map[string][]string{
		"sed":  {"p", "-n", "2,3p", "s/a/b/", "'s/a/b/g;$d'", "'/a/,/b/{p;q}'", "'w out'", "'1e touch x'", "'s/a/b/w out'", "'s/a/touch x/e'", "'r a'"},
		"awk":  {"'{print}'", "'{print $1}'", "'NR==2'", "'{s+=$2} END {print s}'", "'{print>\"out\"}'", "'{print | \"cat\"}'", "'/a/{f=1} f'", "'{getline x < \"a\"; print x}'"},
		"find": {".", "sub", "-name", "'*.txt'", "-type", "f", "-print", "-o", "!", "-printf", "'%p'", "-delete", "-exec", "rm", "cat", "{}", "\\;", "-maxdepth", "1"},
		"jq":   {".", "'.a'", "-n", "'env'", "'[1,2]|add'"},
		"test": {"-f", "a", "-d", "sub", "-n", "x", "=", "-o", "-a", "!", "1", "-lt", "2"},
		"tar":  {"tf", "t.tar", "-tvf", "cf", "xf", "-C", "sub"},
		"date": {"+%s", "-u", "-d", "yesterday", "-s", "0101"},
		"git":  {"HEAD", "main", "--", "a", "b.txt", "HEAD~0", "HEAD:a", "sub/", "-p", "user.name", "new"},
	}
	tryJoins     = []string{"; ", " && ", " || ", " | ", "\n", " |& "}
	tryRedirects = []string{" 2>/dev/null", " >/dev/null", " 2>&1", " < a", " > out", " >> a", " <<< text", " 2> err", " &> out", " >&2",
		" <<'E'\ntext\nE", " <<E\n$X `touch x`\nE", " <<E\n$HOME $(echo a)\nE"}
	tryPrefixes = []string{"A=1 ", "LC_ALL=C ", "PATH=. ", "TZ=UTC ", "NO_COLOR=1 ", "x=1 "}
	// A is replaced by a command, B by another.
	trySyntax = map[string]string{
		"for": "for f in *; do B\ndone", "for values": "for f in a sub; do B; echo \"$f\"\ndone", "if": "if A\nthen B\nfi", "else": "if A\nthen :\nelse B\nfi",
		"substitution": "echo \"$(B\n)\"", "backquotes": "echo `B`", "subshell": "(B\n)", "group": "{ B\n}", "while": "while read -r x; do B\ndone < a",
		"case": "case $HOME in *x) A\n;; *) B\n;; esac", "not": "! B", "time": "time B", "process substitution": "cat <(B\n)", "test": "[ -f a ] && B",
		"conditional": "[[ -n \"$(B\n)\" ]] || A", "assignment": "x=$(B\n); echo \"$x\"", "number": "n=1; n=$((n+1)); B", "cd": "cd sub && B", "background": "B & A",
		"until": "until B; do break; done", "parameter": "x=a.b; echo ${x%.*} ${x:-$(B)}", "array": "x=(1 $(B)); echo ${x[0]}", "function": "f() { B\n}; f",
	}
)

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// simple generates one command of the tables.
func (g *generator) simple(depth int) string {
	r := g.rand
	name := pick(r, g.names)
	if len(g.quick) > 0 && r.IntN(30) > 0 {
		name = pick(r, g.quick)
	}
	s := pick(r, specs()[name])
	words := strings.Fields(name)
	family := words[0]
	if r.IntN(12) == 0 {
		words[0] = pick(r, tryPrefixes) + words[0]
	}
	if len(s.need) > 0 && r.IntN(8) > 0 {
		words = append(words, g.option(s, pick(r, s.need)))
	}
	options := slices.Sorted(maps.Keys(s.options))
	for range r.IntN(3) {
		if len(options) > 0 {
			words = append(words, g.option(s, pick(r, options)))
		}
	}
	for _, role := range s.roles {
		for n := 1; n > 0; n-- {
			words = append(words, g.operand(family, role.kind, depth))
			if role.star && r.IntN(2) == 0 && n < 3 {
				n++
			}
		}
	}
	for range r.IntN(3) {
		if own := tryText[family]; len(own) > 0 && r.IntN(4) > 0 {
			words = append(words, pick(r, own))
		} else if r.IntN(3) == 0 {
			words = append(words, pick(r, tryWords))
		}
	}
	if tail := words[1:]; r.IntN(4) == 0 { // options may also follow operands
		r.Shuffle(len(tail), func(i, j int) { tail[i], tail[j] = tail[j], tail[i] })
	}
	if family == "[" {
		words = append(words, "]")
	}
	cmd := strings.Join(words, " ")
	if r.IntN(3) == 0 {
		cmd += pick(r, tryRedirects)
	}
	return cmd
}

// option generates an option of s, with a value if it takes one.
func (g *generator) option(s *spec, name string) string {
	o, ok := s.options[name]
	value := pick(g.rand, []string{"1", "a", "sub", "x", "2", "HEAD", "'%s'", "json", "','"})
	switch {
	case !ok || o.value == 0 || o.value == '?' && g.rand.IntN(2) == 0:
		return name
	case strings.HasPrefix(name, "--"):
		return name + "=" + value
	case o.value == '?':
		return name + value
	}
	return name + " " + value
}

func (g *generator) operand(family string, kind byte, depth int) string {
	switch own := tryText[family]; {
	case kind == 'x' && depth > 0:
		return g.simple(depth - 1)
	case kind == 's' && depth > 0:
		return "'" + strings.ReplaceAll(g.simple(0), "'", `"`) + "'"
	case kind == '+':
		return "+%F"
	case len(own) > 0 && g.rand.IntN(2) == 0:
		return pick(g.rand, own)
	}
	return pick(g.rand, []string{"a", "b.txt", "sub", "sub/c", "a b.txt", "t.tar", "z.gz", "j.json", "main.go", "'*'", "$HOME", "\"$x\"", "*.txt", "1", "x", "touch", "rm a"})
}

// command generates a command with others around it, and returns the syntax that joins them.
func (g *generator) command(depth int) (cmd string, syntax []string) {
	cmd = g.simple(1)
	if depth == 0 {
		return cmd, nil
	}
	inner, syntax := g.command(depth - 1)
	if g.rand.IntN(3) == 0 {
		join := pick(g.rand, tryJoins)
		return cmd + join + inner, append(syntax, join)
	}
	kind := pick(g.rand, sortedSyntax)
	return strings.NewReplacer("A", cmd, "B", inner).Replace(trySyntax[kind]), append(syntax, kind)
}

var sortedSyntax = slices.Sorted(maps.Keys(trySyntax))

// TestGeneratorCoversTables checks that the generator uses every family and every name of the tables, unless
// there is a reason why not, and that enough of the generated commands are read-only, for each name and for all
// syntax.
func TestGeneratorCoversTables(t *testing.T) {
	byFile := tried(t)
	files, err := tableFiles.ReadDir("tables")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if len(byFile[strings.TrimSuffix(f.Name(), ".txt")]) == 0 {
			t.Errorf("no command of tables/%s is tried", f.Name())
		}
	}
	for why, list := range notTried {
		for name := range strings.FieldsSeq(list) {
			if families()[name] == nil {
				t.Errorf("%s is not in the tables, and not tried because %s", name, why)
			}
		}
	}
	for family, names := range byFile {
		g := newGenerator(7, 7, names)
		harmless := 0
		for range 2000 {
			if Analyze(g.simple(1), here).ReadOnly() == "" {
				harmless++
			}
		}
		if harmless < 20 {
			t.Errorf("%s: only %d of 2000 commands are read-only", family, harmless)
		}
	}
	g := newGenerator(8, 8, everyName(byFile))
	seen := map[string]bool{}
	for range 30000 {
		cmd, syntax := g.command(1)
		if strings.Contains(cmd, "<<") {
			continue // the other command may be text of the here-document, which does not run
		}
		if Analyze(cmd, here).ReadOnly() == "" {
			for _, kind := range syntax {
				seen[kind] = true
			}
		}
	}
	for _, kind := range slices.Concat(sortedSyntax, tryJoins) {
		if never := kind == "background" || kind == "function"; seen[kind] == never {
			t.Errorf("a command with %q is read-only: %v, want %v", kind, seen[kind], !never)
		}
	}
}

func everyName(byFile map[string][]string) []string {
	var names []string
	for _, list := range byFile {
		names = append(names, list...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
