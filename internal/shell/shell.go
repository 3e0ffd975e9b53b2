// Package shell judges bash commands without running them.
//
//	var sh shell.Analyzer
//	a := sh.Analyze("git status && rm -r build", pathrule.Place{Cwd: dir, Dirs: []string{dir}})
//	a.ReadOnly()             // "", or why it is not proved free of effects
//	a.Dangers(at, guard)     // what a person must see, whatever the rules say
//	a.EditsInside(at)        // accept-edits: only edits of files in working directories
//	a.CoveredBy(rules)       // allow: every simple command is covered by a rule or read-only
//	a.Mentions("rm:*")       // deny, ask: some simple command is covered
//	a.Suggest()              // patterns that would cover it
//
// It holds for commands that run under bash --noprofile --norc with the
// environment of [Environ], standard input closed or /dev/null.
package shell

import "github.com/kitbag-go/kitbag/internal/pathrule"

// An Effect is a kind of thing that a simple command does.
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
	Unknown Effect = "unknown" // not known to this package: anything
)

// A Command is one simple command, wrappers such as sudo and xargs being
// commands of their own before the command they run.
type Command struct {
	Argv    []string `json:"argv"`    // words after quote removal; what is not literal is as written
	Effects []Effect `json:"effects"` // in the order of the constants; empty: none at all
	Reads   []string `json:"-"`       // operands, as absolute clean paths where they can be known
	Writes  []string `json:"-"`
	Deletes []string `json:"-"`
	Reason  string   `json:"-"` // why it is not read-only, or ""
}

// A Danger is a reason for a question that no rule can silence.
type Danger struct {
	Kind   string // destructive, protected, remote-code, credentials, privilege, dynamic, unreadable
	Reason string
}

// An Analyzer analyses commands and remembers the verdicts of recent ones. The
// zero Analyzer is ready; it is safe for concurrent use.
type Analyzer struct{}

// Analyze judges src, run in at.Cwd. What it returns does not depend on the
// file system and must not be changed.
func (z *Analyzer) Analyze(src string, at pathrule.Place) *Analysis {
	return &Analysis{src: src}
}

// An Analysis is what is known of a command. It is immutable.
type Analysis struct {
	src string
}

// Err returns why the command could not be parsed, or nil.
func (a *Analysis) Err() error { return nil }

// ReadOnly returns "" if the command is proved to change nothing, otherwise
// why it could not be proved.
func (a *Analysis) ReadOnly() string { return "not analysed" }

// Commands returns the simple commands in the order they are written.
func (a *Analysis) Commands() []Command { return nil }

// Dangers returns what a person must be asked about whatever the rules say.
// Links are read through at.
func (a *Analysis) Dangers(at pathrule.Place, guard pathrule.Protected) []Danger { return nil }

// EditsInside reports whether the command only creates, moves, copies, changes
// and removes files inside the working directories, by name and through links.
func (a *Analysis) EditsInside(at pathrule.Place) bool { return false }

// CoveredBy reports whether the patterns of allow rules together cover all of
// the command. An error means that a pattern cannot be read; it covers nothing.
func (a *Analysis) CoveredBy(patterns ...string) (bool, error) { return false, nil }

// Mentions reports whether the pattern of a deny or ask rule covers any part
// of the command. A pattern that cannot be read is an error.
func (a *Analysis) Mentions(pattern string) (bool, error) { return true, nil }

// Suggest returns at most five patterns that together cover the command, or
// nothing if no safe ones do.
func (a *Analysis) Suggest() []string { return nil }

// Environ returns base, a list as of os.Environ, made fit for running analysed
// commands: pagers and editors off, loader and startup hooks removed.
func Environ(base []string) []string { return base }
