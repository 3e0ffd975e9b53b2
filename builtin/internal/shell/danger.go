package shell

import (
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// dangers returns the dangers that do not depend on symbolic links.
func (w *walker) dangers() []Danger {
	found := w.alarms
	add := func(kind Kind, c *command, why string) {
		found = append(found, Danger{kind, c.String() + ": " + why})
	}
	for i := range w.cmds {
		c := &w.cmds[i]
		if why := w.destroys(c); why != "" {
			add(Destructive, c, why)
		}
		if why := runsUnseen(c); why != "" {
			add(RemoteCode, c, why)
		}
		if why := runsUnknown(c); why != "" {
			add(Dynamic, c, why)
		}
		switch c.name {
		case "sudo", "doas", "su", "pkexec", "runuser", "sudoedit", "gksudo", "kdesudo", "run0":
			add(Privilege, c, "it runs as another user")
		}
		if why := w.reveals(c); why != "" {
			add(Credentials, c, why)
		}
		if c.Reason != "" && !c.maybeOption && !c.mayShow { // with one of these two the command probably only reads
			if c.in.dynamic != "" {
				add(Dynamic, c, "it is in "+c.in.dynamic)
			} else if why := substituted(c); why != "" {
				add(Dynamic, c, why)
			}
		}
	}
	return found
}

// substituted returns why a user, or a rule, cannot see on what a command with effects acts, or "": "rm $(cat list)"
// does not show which files it removes. Operands of commands that only read may come from any command.
func substituted(c *command) string {
	printed := func(a *arg) bool {
		return !a.known && slices.ContainsFunc([]string{"$(", "`", "<(", ">("}, func(open string) bool { return strings.Contains(a.raw, open) })
	}
	if slices.ContainsFunc(c.args, func(a arg) bool { return printed(&a) }) {
		return "its arguments come from other commands"
	}
	if slices.ContainsFunc(c.targets, func(t operand) bool { return printed(&t.arg) }) {
		return "it writes to a path that another command prints"
	}
	return ""
}

// runsUnknown returns why a command runs unknown text as a script, or "".
func runsUnknown(c *command) string {
	runs := false
	switch {
	case c.name == "source" || c.name == ".": // if the file's name is partly known, the user can inspect the file
		runs = slices.ContainsFunc(c.args[1:], func(a arg) bool { return a.text == hole })
	case c.name == "eval":
		runs = slices.ContainsFunc(c.args[1:], func(a arg) bool { return !a.known })
	case c.name == "trap": // signals follow the script
		i := slices.IndexFunc(c.args[1:], func(a arg) bool { return !a.known || !a.option() })
		runs = i >= 0 && !c.args[1+i].known
	case slices.Contains(shells, c.name) && hasOption(c, 'c', "--command"): // parameters follow the script
		for i, a := range c.args[1:] {
			before := c.args[i].text
			isScript := !a.option() && strings.HasPrefix(before, "-") && !strings.HasPrefix(before, "--") && strings.HasSuffix(before, "c")
			if runs = !a.known; runs || isScript {
				break
			}
		}
	}
	if runs {
		return "it runs unknown code"
	}
	return ""
}

// stdinNames are names of standard input.
var stdinNames = []string{"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}

// runsUnseen returns why an interpreter runs the input of a pipe, as in "curl u | sh", or "": no one can see the code
// before it runs. If the script is an operand, the pipe is only the script's input.
func runsUnseen(c *command) string {
	if !c.in.piped || !slices.Contains(interpreters, c.name) && c.name != "source" && c.name != "." {
		return ""
	}
	if slices.Contains(schedulers, c.name) {
		return "it later runs code that comes through a pipe"
	}
	for i, a := range c.args[1:] {
		if a.known && (a.text == "-s" || slices.Contains(stdinNames, a.text)) {
			break
		}
		// xargs appends the script, which also comes through the pipe.
		if a.known && a.text == "-c" && i+2 < len(c.args) && !c.args[i+2].known {
			break
		}
		if !a.option() || a.known && (a.text == "-c" || a.text == "-e" || a.text == "-m") {
			return "" // it has its own script
		}
	}
	return "it runs code that comes through a pipe"
}

// interpreters run their input if no script is named.
var interpreters = append(slices.Concat(shells, schedulers), "python", "python2", "python3", "perl", "ruby", "node", "php", "lua", "deno", "bun", "osascript", "tclsh")

// paths returns the possible absolute paths of a, one for each possible current directory, or nothing if a is
// unknown. In an unknown directory it returns the path below the root, so that the name is checked.
func (c *command) paths(a arg) []string { return c.appendPaths(nil, &a) }

func (c *command) appendPaths(out []string, a *arg) []string {
	if strings.Contains(a.text, hole) || a.text == "" {
		return nil
	}
	text := withoutProc(a.text)
	if path.IsAbs(text) {
		return append(out, path.Clean(text))
	}
	for _, d := range c.cwds {
		out = append(out, resolve(d, text))
	}
	if len(out) == 0 {
		out = append(out, path.Join("/", text))
	}
	return out
}

// withoutProc replaces /proc/self/cwd/x by ./x, and /proc/self/root/x by /x.
func withoutProc(text string) string {
	if !strings.HasPrefix(text, "/proc/") && !strings.HasPrefix(text, "/dev/fd/") {
		return text
	}
	if _, tail, ok := strings.Cut(text+"/", "/cwd/"); ok {
		return "./" + strings.TrimSuffix(tail, "/")
	}
	if _, tail, ok := strings.Cut(text+"/", "/root/"); ok {
		return "/" + strings.TrimSuffix(tail, "/")
	}
	return text
}

// destroys returns why a command destroys data that is hard to restore, or "".
func (w *walker) destroys(c *command) string {
	if slices.Contains(diskTools, c.name) || strings.HasPrefix(c.name, "mkfs") {
		if c.Reason == "" || onlyLists(c) {
			return ""
		}
		return "it changes disks"
	}
	for _, t := range c.targets {
		p := t.prefix()
		if strings.HasPrefix(p, "/dev/") && !slices.Contains(discardDevices, t.text) && !strings.HasPrefix(p, "/dev/shm/") {
			return "it writes to a device"
		}
	}
	switch c.name {
	case "rm", "rmdir", "unlink", "shred", "mv", "chattr", "truncate":
		return w.removes(c)
	case "find":
		return w.findRemoves(c)
	case "tar", "bsdtar", "unzip", "rsync":
		return w.writesBelow(c)
	case "git":
		switch subcommandOf(c) {
		case "push":
			return rewritesShared(c)
		case "clean":
			return w.writesBelow(c)
		}
		return ""
	case "chmod":
		return chmodOpens(c)
	case "chown", "chgrp":
		if hasOption(c, 'R', "--recursive") {
			return "it changes the owner of a whole tree"
		}
	case "kill", "pkill", "killall", "killall5", "skill":
		return killsHard(c)
	case "fuser":
		if hasOption(c, 'k', "--kill") {
			return "it kills processes, by default with a signal that cannot be caught"
		}
	case "crontab":
		if c.Reason != "" {
			return "it changes scheduled jobs"
		}
	case "shutdown", "reboot", "halt", "poweroff":
		return "it stops the machine"
	case "systemctl", "loginctl", "init", "telinit":
		return stopsMachine(c)
	case "userdel", "groupdel", "deluser":
		return "it removes a user"
	case "kubectl":
		if subcommandOf(c) == "delete" {
			return "it deletes from a cluster"
		}
	}
	return connectsShell(c)
}

// diskTools change disks, as all commands do whose names begin with mkfs.
var diskTools = strings.Fields("dd fdisk sfdisk cfdisk gdisk sgdisk parted mke2fs mkswap wipefs cryptsetup lvremove vgremove pvremove diskutil hdparm badblocks mkdosfs mkntfs newfs blkdiscard")

// discardDevices discard or pass on the data that is written to them.
var discardDevices = strings.Fields("/dev/null /dev/stdout /dev/stderr /dev/tty /dev/full /dev/zero")

// onlyLists reports whether a disk tool is only asked to list disks.
func onlyLists(c *command) bool {
	return len(c.args) > 1 && c.args[1].known && slices.Contains([]string{"-l", "--list", "list", "--version", "--help"}, c.args[1].text) && c.name != "dd"
}

// hasOption reports whether c has the short option letter, alone or in a bundle, or a long option that may be
// an abbreviation of long, which getopt_long(3) accepts. It may mistake the value of another option for
// letters, which causes a needless alarm but never hides one.
func hasOption(c *command, letter byte, long string) bool {
	for i := 1; i < len(c.args); i++ {
		a := &c.args[i]
		if a.text == "" || a.text[0] != '-' {
			continue
		}
		switch text := a.prefix(); {
		case a.known && text == "--":
			return false
		case strings.HasPrefix(text, "--"):
			name, _, _ := strings.Cut(text, "=")
			if len(name) > 3 && strings.HasPrefix(long, name) {
				return true
			}
		case len(text) > 1 && strings.IndexByte(text[1:], letter) >= 0:
			return true
		}
	}
	return false
}

// removes checks commands that remove, move or empty their operands.
func (w *walker) removes(c *command) string {
	recursive := c.name == "mv" || c.name == "chattr" || hasOption(c, 'r', "--recursive") || hasOption(c, 'R', "--recursive")
	if c.name == "rm" && recursive && hasOption(c, 'f', "--force") {
		return "it removes whole trees without confirmation"
	}
	ended := false
	for i, a := range c.args[1:] {
		if !ended && a.known && a.text == "--" {
			ended = true
			continue
		}
		option := !ended && strings.HasPrefix(a.prefix(), "-")
		destination := c.name == "mv" && i == len(c.args)-2
		attributes := c.name == "chattr" && !strings.Contains(a.text, "/")
		if option || destination || attributes {
			continue
		}
		if why := w.critical(c, a, recursive); why != "" {
			return why
		}
	}
	return ""
}

// critical returns why removing a needs approval regardless of the rules, or "".
func (w *walker) critical(c *command, a arg, recursive bool) string {
	base := path.Base(a.text)
	switch {
	case a.wild && (base == "*" || base == ".*"):
		return a.raw + " is everything in a directory"
	case (a.wild || strings.Contains(a.text, hole)) && recursive && c.name == "rm":
		return "the value of " + a.raw + " is unknown"
	case strings.HasSuffix(a.text, "/"+hole) && w.isRootOrHome(c, a.text[:len(a.text)-1]):
		return a.raw + " may be anything in a root or home directory"
	case strings.Contains(a.text, hole) && (c.name == "rmdir" || c.name == "mv"):
		return "" // rmdir removes only empty directories, and mv keeps what it moves
	}
	for _, p := range c.paths(a) {
		if why := w.criticalPath(p, recursive || c.name == "rm" || c.name == "rmdir"); why != "" {
			return why
		}
	}
	return ""
}

// systemTrees are critical with everything below them. /var, /opt and /tmp are not, because people work there.
var systemTrees = strings.Fields("/etc /usr /bin /sbin /lib /lib64 /boot /sys /proc /dev /System /Library")

// criticalPath returns why changing or removing p needs approval regardless of the rules, or "". With dirs a directory
// is removed with its content, so that this also holds for the root, for home and working directories, and above them.
func (w *walker) criticalPath(p string, dirs bool) string {
	if dirs {
		if p == "/" || path.Dir(p) == "/" {
			return p + " is the root or directly below it"
		}
		if path.Dir(p) == "/home" || path.Dir(p) == "/Users" {
			return p + " is a home directory"
		}
		contains := func(d string) bool { return d != "" && pathrule.Below(path.Clean(d), p) }
		if contains(w.at.Home) || contains(w.at.Cwd) || slices.ContainsFunc(w.at.Dirs, contains) {
			return p + " contains a working or home directory"
		}
	}
	if slices.ContainsFunc(systemTrees, func(d string) bool { return pathrule.Below(p, d) }) {
		return p + " belongs to the system"
	}
	return ""
}

// isRootOrHome reports whether dir is the root or the home directory, or contains it.
func (w *walker) isRootOrHome(c *command, dir string) bool {
	return slices.ContainsFunc(c.paths(literal(dir)), func(p string) bool {
		return p == "/" || w.at.Home != "" && pathrule.Below(path.Clean(w.at.Home), p)
	})
}

// findRemoves checks find -delete by its starting points.
func (w *walker) findRemoves(c *command) string {
	for _, t := range c.targets {
		if !t.delete {
			continue
		}
		if !t.known {
			return "the directory in which it deletes is unknown"
		}
		for _, p := range c.paths(t.arg) {
			if p == "/" || path.Dir(p) == "/" || p == w.at.Home {
				return "it deletes below " + p
			}
		}
	}
	return ""
}

// rewritesShared returns why git push rewrites or deletes a branch of the remote repository, or "".
func rewritesShared(c *command) string {
	// --force is an abbreviation of --force-with-lease.
	rewrites := hasOption(c, 'd', "--delete") || hasOption(c, 'f', "--force-with-lease") || hasOption(c, 0, "--mirror") || hasOption(c, 0, "--prune")
	for _, a := range c.args[2:] {
		// A plus before a refspec forces it, and a refspec without a source deletes (git-push(1)).
		rewrites = rewrites || strings.HasPrefix(a.text, "+") || strings.HasPrefix(a.text, ":") && a.text != ":" || strings.HasPrefix(a.text, "--force-if")
	}
	if rewrites {
		return "it rewrites or deletes a shared branch"
	}
	return ""
}

// writesBelow checks commands that write below one of their operands.
func (w *walker) writesBelow(c *command) string {
	for i, a := range c.args {
		if i == 0 || !a.known || c.Reason == "" || !path.IsAbs(a.text) {
			continue
		}
		before := c.args[i-1].text
		dir := path.Clean(a.text)
		writes := before == "-C" || before == "-d" || before == "--directory" || c.name == "git"
		if writes && dir != w.at.Cwd && !slices.Contains(w.at.Dirs, dir) && w.criticalPath(dir, true) != "" {
			return "it changes files below " + a.text
		}
	}
	return ""
}

// subcommandOf returns the first word that is not an option of git, kubectl or systemctl, or the value of one, or "".
func subcommandOf(c *command) string {
	for i := 1; i < len(c.args); i++ {
		text := c.args[i].text
		if text == "-C" || text == "-c" || text == "-n" || text == "--namespace" {
			i++
			continue
		}
		if !strings.HasPrefix(text, "-") {
			return text
		}
	}
	return ""
}

// chmodOpens returns why a mode gives all users write access, or the owner's rights, or "".
func chmodOpens(c *command) string {
	i := slices.IndexFunc(c.args[1:], func(a arg) bool { return !strings.HasPrefix(a.text, "-") })
	if i >= 0 && modeOpens(c.args[1+i].text) {
		return "it gives all users write access, or the owner's rights"
	}
	return ""
}

// modeOpens reports whether a mode of chmod gives all users write access or the owner's rights. In octal the
// last digit is for others, where 2 is write access. A fourth digit in front is for setuid, setgid and sticky
// (1), which alone is harmless.
func modeOpens(mode string) bool {
	if m := strings.TrimLeft(mode, "0"); strings.Trim(m, "01234567") == "" {
		return m != "" && strings.Contains("2367", m[len(m)-1:]) || len(m) == 4 && m[0] != '1'
	}
	for clause := range strings.SplitSeq(mode, ",") {
		what := strings.TrimLeft(clause, "ugoa")
		others := strings.ContainsAny(clause[:len(clause)-len(what)], "oa")
		if what != "" && what[0] != '-' && strings.Trim(what[1:], "01234567") == "" && modeOpens(what[1:]) {
			return true
		}
		for what != "" {
			n := len(what) - len(strings.TrimLeft(what[1:], "rwxXstugo")) // what[:n] is "+", "-" or "=" with its letters
			// Rights may be copied from the owner, as in "o=u".
			if what[0] != '-' && (strings.Contains(what[:n], "s") || others && strings.ContainsAny(what[:n], "wug")) {
				return true
			}
			what = what[n:]
		}
	}
	return false
}

// killsHard returns why a signal cannot be caught, or goes to all processes, or "".
func killsHard(c *command) string {
	args := c.args[1:]
	for i, a := range args {
		sig := ""
		switch {
		case (a.text == "-s" || a.text == "-n" || a.text == "--signal") && i+1 < len(args):
			sig = args[i+1].text
		case strings.HasPrefix(a.text, "--signal="):
			sig = strings.TrimPrefix(a.text, "--signal=")
		case strings.HasPrefix(a.text, "-"):
			sig = a.text[1:]
		}
		// "-s9" and "-n9" also name the signal.
		for _, s := range []string{sig, strings.TrimLeft(sig, "sn")} {
			switch strings.ToUpper(strings.TrimLeft(s, "0")) {
			case "9", "KILL", "SIGKILL":
				return "the signal cannot be caught"
			}
		}
		if i > 0 && a.text == "-1" { // as a process id; as the first word it is the signal HUP
			return "it signals every process"
		}
	}
	return ""
}

// stopsMachine returns why systemctl or init stops the machine, or "", by subcommands, the runlevels 0 and 6, and the
// targets of systemd.
func stopsMachine(c *command) string {
	targets := strings.Fields("poweroff.target reboot.target halt.target kexec.target rescue.target emergency.target")
	if slices.Contains(strings.Fields("poweroff reboot halt kexec suspend hibernate rescue emergency 0 6"), subcommandOf(c)) ||
		slices.ContainsFunc(c.args[1:], func(a arg) bool { return slices.Contains(targets, a.text) }) {
		return "it stops the machine"
	}
	return ""
}

// connectsShell returns why a command connects a shell to another machine, or "": a program connected to a
// socket is the usual reverse shell.
func connectsShell(c *command) string {
	if !slices.Contains([]string{"nc", "ncat", "netcat", "socat"}, c.name) {
		return ""
	}
	for _, a := range c.args[1:] {
		if a.text == "-e" || a.text == "-c" || strings.HasPrefix(a.text, "--exec") || strings.HasPrefix(a.text, "--sh-exec") || strings.HasPrefix(strings.ToUpper(a.text), "EXEC:") || strings.HasPrefix(strings.ToUpper(a.text), "SYSTEM:") {
			return "it connects a program to another machine"
		}
	}
	return ""
}
