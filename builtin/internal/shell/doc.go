// Package shell analyses bash commands without running them.
//
//	at := pathrule.Place{Cwd: dir, Home: home, Dirs: []string{dir}}
//	a := shell.Analyze("git status && rm -r build", at)
//	a.Text()                   // the analysed text, and the only one to run
//	a.ReadOnly()               // "", or why it is not known to be free of effects
//	a.Dangers(at, guard)       // what needs approval, whatever the rules say
//	a.EditsInside(at)          // accept-edits: only edits of files in working directories
//	a.CoveredBy("rm:*", more…) // allow: every simple command is covered or read-only
//	a.Mentions("rm:*")         // deny, ask: some simple command is covered
//	a.Suggest()                // patterns that would cover it
//
// A command is parsed like bash parses it and walked as a tree. Each simple command is
// compared with tables (folder tables) that describe its options and operands. A command that
// no table accepts may do anything and is never read-only. The proof that a command is
// read-only and the search for dangers are separate: a command may be read-only and show a
// secret, or not be read-only and be harmless.
//
// # What runs
//
// The parser and bash read some texts differently, so that a harmless tree may belong to a
// harmful text. Therefore the tree of a print is analysed, and the print is what runs, never
// the source: see [Print]. A print uses a subset of bash that both read in the same way: here-documents
// without expansions are quoted, backquotes are $(…), there are no comments and no continued
// lines, and so on. A source that bash may read differently from the parser (a continued line
// inside a word, quotes inside "${…}") has no print: it needs approval, and cannot run.
// TestDifferential runs generated commands and their prints in bash, and compares their
// effects with each other and with the verdict.
//
// Values of variables are known from assignments that certainly ran in this shell: after
// branches only what holds for all of them, and after eval, trap and similar commands nothing.
//
// # Assumptions
//
// The verdicts are about commands run by bash --noprofile --norc -c, with the environment of
// [Environ] and standard input from /dev/null, on a machine whose standard directories are
// intact. They are predictions, not a sandbox: whoever can change files between the analysis
// and the run, or controls the configuration of the tools, can invalidate them.
//
// # Files of a directory that programs run
//
// Git, go, npm, cargo and others run programs that files of the current directory, or of a
// directory above it, name. A user permits that by trusting a directory as a whole, in [pathrule.Place.Trusted];
// working directories are not trusted automatically. Below a working directory that is not
// trusted the analysis checks for these files, and if it finds some the command is not
// read-only; a plain clone has none. In other directories it is never read-only.
// [Analysis.Environ] turns off what such a check cannot find in git. The directory in which a
// command runs must be trusted, links resolved, not the one in which the line began.
//
// # Secrets
//
// Package pathrule has the list of paths, names and variables. A command that names a secret,
// also through links and wildcards, is a danger; one that may reach a secret, in a tree or by
// names that another command finds, is not read-only. Nor is one that reads, in a directory that
// is unknown or computed, a name that a secret may have in some directory, such as config.json:
// source code, documents and the usual files of projects have no such names.
//
// Some names are known only while the line runs: those of xargs, find -exec, $(…), read and
// loops. If find, ls, git ls-files, grep -l, echo or a similar command prints them, they are
// below its directories and end as its patterns say; otherwise, or if the current directory
// is unknown, they may be any. A command that reads a name of which nothing is known, such as a
// line of a file, the output of sed or the value of an unknown variable, is not read-only. One
// that reads a name in a known directory may read any file there: [Analysis.MayRead] says whether
// a rule for files covers one, and a secret directly in the directory makes the command not
// read-only. The check of a tree ends after 2,000 names: in a larger one only the rule's own
// directory is searched for such a file, and a rule without one, such as **/*.pem, may cover some.
//
// Where such names are words of a text, as after xargs without -0 or an unquoted $(…), a name
// with white space, quotes or wildcards may be several names. The analysis looks at the names
// there, 50,000 at most, and the command is not read-only if a word of one may be a secret, or
// if a name is a link to one.
//
// Not found are secrets deeper in a tree than its first level, names that programs compose by
// themselves, earlier copies under another name, what npm and pip store in their settings, config maps and
// logs of a cluster, what git shows by the hash of a file, and of a file with a secret that it no
// longer tracks, unless a rule covers the file.
//
// # How to add a command
//
// The lines of each command are in one file of the folder tables, by family; grep for its
// name. The comment above [tableFiles] describes the language. Lines of a program are
// together, roughly showing before changing, and the comment above a line says what is left
// out and why. The order matters only if no line is harmless: of the lines that accept a
// command the first is used. Shell builtins, git, and --version and --help of many programs
// (lang.txt) have files of their own. To add a command:
//
//  1. Read its manual for every option that writes, deletes, runs or loads
//     something, contacts another machine, or takes a value. A missing option
//     costs a question; one that takes a value and is listed without "=" turns
//     its value into an operand, or an operand into a value.
//  2. List what is harmless in every version and on every system, and the rest
//     with its effect. "dyn" says that no option at all is harmful, so that an
//     unknown word may be one: never write it from memory. "any" is for lines
//     with an effect, and for builtins.
//  3. For what a list cannot express write a function in Go, in checks.go. Files
//     of its directory that it runs go into "takes".
//  4. Put commands with the option into testdata: everyday.txt (no question),
//     asked.txt or harmful.txt (a question), alarming.txt (one that no rule
//     silences), rules.jsonl and edits.jsonl.
//
// TestSoundness finds lines that are too generous: it generates commands from the tables, runs
// those that are read-only by the analysis, and checks for changed files and variables and
// left processes; KITBAG_SOUNDNESS=2000 runs more. A command that must not run there needs its
// reason in notTried, or TestGeneratorCoversTables fails. TestEveryday and TestNotAlarming
// find lines that are too strict.
//
// # Rules for commands that run others
//
// A rule allows what its command is for, and no more:
//
//   - A command whose purpose is to run others, such as xargs, ssh, make, npm run,
//     docker or python3, is allowed with all that it runs. So are the subcommands of
//     a rule for the whole of a program: docker:* covers docker run. To allow less,
//     write docker ps:*.
//   - A wrapper that only changes how a command runs (env, timeout, nice, …) is
//     ignored by rules: the command in it must be covered.
//   - An option that runs something else, such as find -exec, tar
//     --checkpoint-action or git --exec-path, must be in the rule as a word. In
//     the tables these are the options with the effect exec, or marked named.
//   - If the code to run is in a text (an awk program that may be harmful, a
//     setting after git -c, ProxyCommand after ssh -o), the rule must be the whole
//     command, quotes removed. The e and w of sed need approval whatever the
//     rules say.
//
// What an unknown program runs cannot be known: a rule for it covers it with all of its
// options. TestRulesForWhatRunsOthers has a row for each case.
package shell
