package shell

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// An Effect is a kind of effect of a simple command.
type Effect string

// The effects.
const (
	Read    Effect = "read"    // reads files
	Write   Effect = "write"   // creates or changes files
	Delete  Effect = "delete"  // removes files
	Exec    Effect = "exec"    // runs another program or code
	Network Effect = "network" // talks to other machines
	Process Effect = "process" // signals or controls processes
	System  Effect = "system"  // changes the machine or the shell's own state
	Unknown Effect = "unknown" // unknown to this package: may do anything
)

// A Command is one simple command. A wrapper such as sudo or xargs is a separate command, which precedes the
// command that it runs.
type Command struct {
	Argv    []string `json:"argv"`             // words after quote removal; as written if not literal
	Effects []Effect `json:"effects"`          // in the order of the constants; empty means none
	Reason  string   `json:"reason,omitempty"` // why it is not read-only, or ""
}

// A Kind is a class of danger.
type Kind string

// The kinds.
const (
	Destructive Kind = "destructive" // removes or overwrites data that is hard to restore
	Guarded     Kind = "protected"   // writes a protected file or directory
	RemoteCode  Kind = "remote-code" // runs unseen code, such as a download
	Credentials Kind = "credentials" // shows a secret
	Privilege   Kind = "privilege"   // runs as another user
	Dynamic     Kind = "dynamic"     // the code is determined at run time
	Unreadable  Kind = "unreadable"  // cannot be parsed like bash
)

// A Danger is a reason for a question that no rule can suppress.
type Danger struct {
	Kind   Kind
	Reason string
}

// An Analysis is the result for a command. It is immutable.
type Analysis struct {
	findings
	src    string // as received
	text   string // the print of src
	err    error
	static []Danger // the dangers that do not depend on symbolic links
	dirs   []string // the working directories of the Place that Analyze was given
	until  int64    // when the facts expire, in nanoseconds since 1970; 0 if there are no facts
}

// An analysisMemory is an Analysis with memory for the findings of most commands, in one allocation.
type analysisMemory struct {
	Analysis
	cmds    [1]command
	args    [4]arg
	reads   [1]operand
	cwds    [1]string
	origins [2]origin
}

var walkers = sync.Pool{New: func() any { return new(walker) }}

// Analyze analyses src, which would run in at.Cwd. In the file system it only checks the files that commands
// use from directories that are not trusted. The lists of at must not be changed as long as the Analysis is used.
func Analyze(src string, at pathrule.Place) *Analysis {
	w := walkers.Get().(*walker)
	defer walkers.Put(w)
	memory := new(analysisMemory)
	w.start(&at, src, memory)
	a := &memory.Analysis
	a.src, a.dirs = src, at.Dirs
	prog, err := w.parse(src)
	if err == nil {
		w.src = prog.src
		if n := w.trees.commands.used; n > len(memory.cmds) {
			w.cmds = make([]command, 0, n)
		}
		w.stmts(prog.stmts)
		if w.deep {
			err = fmt.Errorf("it is nested more than %d deep", maxDepth)
		} else if w.long {
			err = fmt.Errorf("it is too long to analyse: a command has more than %d options", maxOptions)
		}
	}
	if err != nil {
		a.err = err
		w.deny("it cannot be analysed: " + err.Error())
		a.static = []Danger{{Unreadable, "it cannot be analysed: " + err.Error()}}
		return a
	}
	a.text = prog.text
	if len(prog.stmts) == 0 {
		w.deny("there is no command")
	}
	w.denyChangedDirectories()
	w.refuseSecretReads(prog.stmts)
	for i := range w.cmds {
		if why := w.cmds[i].Reason; why != "" {
			w.refuse(why)
		}
	}
	if len(w.facts) > 0 {
		a.until = time.Now().Add(factLifetime).UnixNano()
	}
	a.static = w.dangers()
	return a
}

// Holds reports whether a is still valid with these working directories, so that one decision may use a several times.
func (a *Analysis) Holds(dirs []string) bool {
	if a.until != 0 {
		left := time.Duration(a.until - time.Now().UnixNano())
		if left <= 0 || left > factLifetime { // the clock may be set back
			return false
		}
	}
	return slices.Equal(a.dirs, dirs)
}

// Text returns the print of the command, which was analysed and is the only text that may run. If the command has no
// print, Text returns "", and Err says why.
func (a *Analysis) Text() string { return a.text }

// Err returns why the command has no text that can be analysed and run, or nil.
func (a *Analysis) Err() error { return a.err }

// ReadOnly returns "" if the command is proved to change nothing, and otherwise why that could not be proved.
func (a *Analysis) ReadOnly() string { return a.why }

// Networks reports whether a simple command is known to use the network. Unknown programs may use it as well.
func (a *Analysis) Networks() bool {
	for i := range a.cmds {
		if a.cmds[i].effects&networking != 0 {
			return true
		}
	}
	return false
}

// Commands returns the simple commands in the order of the text.
func (a *Analysis) Commands() []Command {
	out := make([]Command, len(a.cmds))
	for i := range a.cmds {
		c := &a.cmds[i]
		out[i] = Command{Argv: c.words(), Effects: c.effects.list(), Reason: c.Reason}
	}
	return out
}

// Dangers returns the reasons why the command needs approval regardless of the rules. It resolves symbolic
// links through at.
func (a *Analysis) Dangers(at pathrule.Place, guard pathrule.Protected) []Danger {
	out := slices.Clip(a.static)
	for i := range a.cmds {
		c := &a.cmds[i]
		if c.Reason == "" {
			continue
		}
		for _, name := range c.touched() {
			if why := guard.Hit(at, name); why != "" {
				out = append(out, Danger{Guarded, c.String() + ": " + why})
				break
			}
		}
	}
	out = append(out, a.linkDangers(&at)...)
	return append(out, a.throughLinks(&at, guard)...)
}

// touched returns the paths that a command with effects may change: the paths according to its table, or every
// word if there is no table for it.
func (c *command) touched() []string {
	words := make([]arg, 0, len(c.targets)+2*len(c.args))
	for _, t := range c.targets {
		words = append(words, t.arg)
	}
	if (c.anyWord || c.effects&unknown != 0) && len(c.args) > 0 {
		for _, a := range c.args[1:] {
			words = append(words, a)
			if name, value, ok := strings.Cut(a.text, "="); ok && !strings.Contains(name, " ") {
				words = append(words, arg{text: value, wild: a.wild})
			} else if strings.HasPrefix(a.text, "-") && len(a.text) > 2 {
				words = append(words, arg{text: a.text[2:], wild: a.wild})
			}
		}
	}
	out := make([]string, 0, len(words))
	for i, a := range words {
		if a.text == "" || a.text == hole {
			continue
		}
		text := strings.ReplaceAll(a.text, hole, "x")
		if strings.HasPrefix(a.text, hole+"/") {
			text = a.text[1:] // the directory is unknown, at worst empty
			if i >= len(c.targets) {
				text = "/x" + text
			}
		}
		if a.wild {
			out = append(out, pathrule.Likely(text)...)
		}
		if strings.HasPrefix(text, "/") || len(c.cwds) == 0 {
			out = append(out, "/"+strings.TrimLeft(text, "/"))
			continue
		}
		for _, d := range c.cwds {
			out = append(out, d+"/"+text)
		}
	}
	return out
}

// Environ returns base, a list like os.Environ, adapted to running analysed commands: pagers and editors are
// disabled, and variables that make programs load or run something are removed.
func Environ(base []string) []string { return append(safeEnviron(base), gitSettings(settings)...) }

// safeEnviron returns base with pagers and editors disabled, and without the variables that are unsafe.
func safeEnviron(base []string) []string {
	var out []string
	for _, kv := range base {
		switch name, value, _ := strings.Cut(kv, "="); {
		case name == "PATH":
			out = append(out, "PATH="+absolutePath(value))
		case !unsafeInEnviron(name):
			out = append(out, kv)
		}
	}
	return append(out, "PAGER=cat", "GIT_PAGER=cat", "GH_PAGER=cat", "MANPAGER=cat", "SYSTEMD_PAGER=cat",
		"GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_EDITOR=true", "EDITOR=true", "VISUAL=true", "LESSSECURE=1")
}

// Environ is the function [Environ] for this command. If the command is read-only, no program that a repository
// names can be started.
func (a *Analysis) Environ(base []string) []string {
	if a.why != "" {
		return Environ(base)
	}
	return a.ReadingEnviron(base)
}

// ReadingEnviron is Environ for a command that was judged to be read-only, even if this analysis does not prove it.
func (a *Analysis) ReadingEnviron(base []string) []string {
	out := safeEnviron(base)
	// The go command fetches modules with git, as noted in its table.
	if !slices.ContainsFunc(a.cmds, func(c command) bool { return c.name == "go" }) {
		out = append(out, "GIT_ALLOW_PROTOCOL=none")
	}
	return append(out, gitSettings(slices.Concat(settings, readingSettings))...)
}

// A gitSetting overrides the settings of repositories and users.
type gitSetting struct{ key, value string }

var (
	settings = []gitSetting{
		// A directory of the working tree may look like a bare repository, and its settings are not protected as those
		// in .git are. Therefore git must not use it as a bare repository unless told to (git-config(1),
		// safe.bareRepository).
		{"safe.bareRepository", "explicit"},
		{"core.fsmonitor", "false"}, // a program, or a daemon that keeps running
	}
	// With diff.submodule=diff in the user's settings git diff runs in nested repositories, without the settings here.
	readingSettings = []gitSetting{{"core.hooksPath", "/dev/null"}, {"log.showSignature", "false"}, {"maintenance.auto", "false"}, {"diff.submodule", "short"}}
)

// gitSettings returns the environment variables for settings (git-config(1), ENVIRONMENT).
func gitSettings(list []gitSetting) []string {
	out := []string{fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(list))}
	for i, s := range list {
		out = append(out, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, s.key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, s.value))
	}
	return out
}

// absolutePath returns a PATH without its relative elements, because a file called "ls" in the current
// directory must not run as ls.
func absolutePath(list string) string {
	dirs := filepath.SplitList(list)
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return !filepath.IsAbs(dir) })
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// unsafeInEnviron reports whether a variable may make a read-only command run or write something, or is set by Environ.
// Of the prefixes, LD_ and DYLD_ load libraries into every program, GCONV_ into iconv, BASH_FUNC_ defines
// functions that replace commands, GIT_TRACE writes files, and LESSOPEN in LESS runs a program.
func unsafeInEnviron(name string) bool {
	for _, head := range []string{"LD_", "DYLD_", "BASH_FUNC_", "GIT_TRACE", "GIT_CONFIG", "GCONV_", "LESS"} {
		if strings.HasPrefix(name, head) {
			return true
		}
	}
	switch name {
	// In this order: variables that bash executes or that control its expansion; pagers and editors; variables that
	// redirect or instrument git; files of options, and variables with options; code that interpreters load; and
	// files that the C library loads or writes, or hosts that it sends names to (ld.so(8), environ(7)).
	case "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "CDPATH", "GLOBIGNORE", "IFS", "POSIXLY_CORRECT",
		"PAGER", "GIT_PAGER", "GH_PAGER", "MANPAGER", "SYSTEMD_PAGER", "EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR",
		"GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS", "GIT_EXTERNAL_DIFF", "GIT_EXEC_PATH", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE",
		"RIPGREP_CONFIG_PATH", "BAT_PAGER", "ACK_PAGER", "ACKRC", "GREP_OPTIONS", "TAR_OPTIONS", "ZIPOPT", "UNZIP", "XZ_OPT", "XZ_DEFAULTS", "BZIP", "BZIP2", "GZIP", "MORE", "DEBUGINFOD_URLS",
		"PYTHONSTARTUP", "PYTHONINSPECT", "PERL5OPT", "PERL5DB", "RUBYOPT", "NODE_OPTIONS", "AWKPATH", "AWKLIBPATH",
		"JQ_LIBRARY_PATH", "NLSPATH", "LOCPATH", "HOSTALIASES", "MALLOC_TRACE":
		return true
	}
	return false
}
