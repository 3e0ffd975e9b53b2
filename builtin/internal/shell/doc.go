// Package shell judges bash commands without running them.
//
//	var sh shell.Analyzer
//	at := pathrule.Place{Cwd: dir, Home: home, Dirs: []string{dir}}
//	a := sh.Analyze("git status && rm -r build", at)
//	a.Text()                   // what was judged, and the only text to run
//	a.ReadOnly()               // "", or why it is not proved free of effects
//	a.Dangers(at, guard)       // what a person must see, whatever the rules say
//	a.EditsInside(at)          // accept-edits: only edits of files in working directories
//	a.CoveredBy("rm:*", more…) // allow: every simple command is covered or read-only
//	a.Mentions("rm:*")         // deny, ask: some simple command is covered
//	a.Suggest()                // patterns that would cover it
//
// A command is parsed as bash parses it and walked as a tree. Each simple
// command is compared with tables (folder tables) that say what its options
// and operands do. What no table understands may do anything: it is never
// read-only. The proof that a command is read-only and the search for dangers
// are separate: a command may be read-only and show a secret, or not be
// read-only and be harmless.
//
// # What runs
//
// The parser and bash read some texts differently, so that a tree that is harmless may
// belong to a text that is not. What is judged is therefore the tree of a print, and the
// print is what runs, never the source: see [Print]. A print uses a part of bash that both
// read alike: here-documents in which nothing expands are quoted, backquotes are $(…), there
// are no comments and no continued lines, and so on. A source that bash may read in
// another way than the parser (a continued line inside a word, quotes inside "${…}") has
// no print: it is asked about, and cannot run. TestDifferential runs generated commands
// and their prints in bash, and compares what they do with each other and with the
// verdict.
//
// What is known of a variable comes from assignments that surely ran in this shell: after
// branches it is what holds for both ways, and after eval, trap and their like nothing.
//
// # What it holds for
//
// The verdicts are about commands run by bash --noprofile --norc -c, with the
// environment of [Environ] and standard input from /dev/null, on a machine
// whose standard directories are its own. They are judgements before the fact,
// not a sandbox: whoever may change files between the judgement and the run,
// or owns the configuration of the tools that run, can make them wrong.
//
// # What a directory brings along
//
// Git, go, npm, cargo and others run what files of the directory name that they
// run in, or of one above it. A person agrees to that by trusting a directory as a
// whole, in [pathrule.Place.Trusted]; a working directory is not trusted by being
// one. Below a working directory that is not trusted the analysis looks for these
// files, and where there are some the command is not read-only; in a plain clone
// there are none. Elsewhere it is never read-only. What a look cannot find git is
// told to leave: [Analysis.Environ]. Trust is about where a command runs, links
// resolved, and not about where the line began.
//
// # Secrets
//
// package pathrule has the one list of places, names and variables. A command that
// names one, through links and wildcards too, is a danger; one that may come to one, in
// a tree or by names that another command finds, is not read-only.
//
// A name may be known only while the line runs: xargs, find -exec, $(…), read and loops
// bring it. Where find, ls, git ls-files, grep -l, echo and the like print it, it is one
// below their directories that ends as they say; else it may be any, as it may where the
// current directory is not known. A command that reads
// by it may read whatever lies there: [Analysis.MayRead] says whether a rule for files
// covers some of it, and a secret right in the directory takes the proof away. A look at
// a tree ends after 2,000 names: of a larger one it counts whether the rule's own
// directory has such a file, and a rule without one, such as **/*.pem, may cover some.
//
// Not seen are secrets deeper in a tree than its first level, names that programs put
// together, what was copied to another name before, and what git, npm and pip keep in
// their settings.
//
// # Where a command's line is, and how to add one
//
// Each command has its lines in one file of the folder tables, by family; grep for
// its name. The comment above [tableFiles] has the language. Lines of a program
// stand together, roughly what shows before what changes, and the comment above a
// line says what is missing from it and why. The order has a meaning only where no
// line is harmless: of those that understand all of a command the first counts.
// Shell builtins, git, and --version and --help of many programs (lang.txt) have
// places of their own. To add a command:
//
//  1. Read its manual for every option that writes, deletes, runs or loads
//     something, asks another machine, or takes a value. An option that is left
//     out costs a question; one that takes a value and is listed without "=" lets
//     its value pass for an operand, or an operand for a value.
//  2. List what is harmless in every version and on every system, and the rest
//     with its effect. "dyn" says that no option at all does harm, so that a word
//     that is not known may be one: never write it from memory. "any" is for lines
//     with an effect, and for builtins.
//  3. What a list cannot say is for a function in Go: closer.go has them. What it
//     runs by way of its directory goes into "takes".
//  4. Put commands with the option into testdata: everyday.txt (no question),
//     asked.txt or harmful.txt (a question), alarming.txt (one that no rule
//     silences), rules.jsonl and edits.jsonl.
//
// A line that is too generous is found by TestSoundness, which writes commands
// from the tables, runs those that are called read-only, and looks for files,
// variables and processes that they leave; KITBAG_SOUNDNESS=2000 has it run more. A
// command that must not be run there needs its reason in notTried, or
// TestGeneratorCoversTables fails. A line that is too strict is found by
// TestEveryday and by TestNotAlarming.
//
// # Rules for commands that run others
//
// A rule allows what the command that it names is there for, and no more:
//
//   - A command whose trade is to run others, such as xargs, ssh, make, npm run,
//     docker or python3, is allowed with all that it runs. So are the subcommands of
//     a rule for the whole of a program: docker:* covers docker run. Whoever wants
//     less writes docker ps:*.
//   - A wrapper that only changes how a command runs (env, timeout, nice, …) is
//     nothing to a rule: the command in it must be covered.
//   - An option by which something else runs, such as find -exec, tar
//     --checkpoint-action or git --exec-path, must stand in the rule as a word. In
//     the tables these are the options with the effect exec, or marked named.
//   - Where what runs is in a text (an awk program that is not proved harmless, a
//     setting after git -c, ProxyCommand after ssh -o), the rule must be the whole
//     command, quotes removed. The e and w of sed are asked about whatever the
//     rules say.
//
// What a program that no table knows runs, nobody here can tell: a rule for it
// covers it with all of its options. TestRulesForWhatRunsOthers has a row for each
// of this.
package shell
