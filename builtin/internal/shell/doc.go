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
// read-only and the search for dangers are separate: a read-only command may show a secret.
//
// # What runs
//
// The parser and bash read some texts differently, so that a harmless tree may belong to a
// harmful text. Therefore [Print] rewrites the source in a subset of bash that the parser and
// bash read in the same way: here-documents without expansions are quoted, backquotes become
// $(…), there are no comments and no continued lines, and so on. This print is analysed, and
// only the print may run. A source that bash may read differently from the parser (a continued
// line inside a word, quotes inside "${…}") has no print: it needs approval, and cannot run.
// TestDifferential runs generated commands and their prints in bash, and compares their
// effects with each other and with the verdict.
//
// The value of a variable is known if its assignment certainly ran in this shell. After an if,
// the values of all its branches are possible; after eval, trap and similar commands every
// value is unknown.
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
// working directories are not trusted automatically. For such a command, what counts is the
// directory in which the command itself runs, after any cd, links resolved:
//
//   - in a trusted directory the files are not checked;
//   - below a working directory the command is read-only if the analysis finds none of these
//     files; a plain clone has none;
//   - in other directories the command is never read-only.
//
// For git, [Analysis.Environ] also turns off what this check cannot find.
//
// # Secrets
//
// Package pathrule lists the paths, names and variables of secrets. A command that names a
// secret, also through links and wildcards, is a danger. A command that may reach a secret, in a
// tree or by names that another command finds, is not read-only. The same holds if the directory
// is unknown or computed and the name, such as config.json, is that of a secret in some
// directories; source code, documents and the usual files of projects have other names.
//
// Some names are known only while the line runs: those of xargs, find -exec, $(…), read and
// loops. If find, ls, git ls-files, grep -l, echo or a similar command prints the names, the
// analysis knows below which directories they are and how they end. All other names may be any
// file, such as a line of a file, the output of sed or the value of an unknown variable: a
// command that reads such a name is not read-only. A command that reads an unknown name in a
// known directory may read any file there. It is not read-only if a secret is directly in the
// directory, and [Analysis.MayRead] says whether a rule for files covers a file there;
// [Analysis.MayWrite] is the same for files that are changed, created or deleted. The search
// of a tree ends after 2,000 names: beyond them only the directory with which the rule begins is
// searched, and a rule without one, such as **/*.pem, counts as covering some file.
//
// Names may be split into words, as after xargs without -0 or in an unquoted $(…): a name with
// white space, quotes or wildcards may become several names. The analysis looks at up to 50,000
// names in the directory, and the command is not read-only if a name is a link to a secret, or
// if a word of a name may be the name of a secret.
//
// The analysis does not find
//
//   - secrets deeper in a tree than its first level;
//   - names that programs compose by themselves, and copies of a secret under another name;
//   - config maps and logs of a cluster, and what npm and pip store in their settings;
//   - what git shows by the hash of a file;
//   - a secret that git no longer tracks but still has, unless a rule covers its file.
//
// # How to add a command
//
// The lines of each command are in one file of the folder tables, by family; grep for its
// name. The comment above [tableFiles] describes the language. Lines of a program are
// together, harmless ones usually first, and the comment above a line says what is left out
// and why. If several lines accept a command, a harmless one is used, or else the first. Shell
// builtins and git have files of their own; --version and --help of many programs are in
// lang.txt. To add a command:
//
//  1. Read its manual for every option that writes, deletes, runs or loads
//     something, contacts another machine, or takes a value. If an option is not
//     listed, the user is asked needlessly. If an option that takes a value is
//     listed without "=", its value is taken for an operand.
//  2. List what is harmless in every version and on every system, and the rest
//     with its effect. "dyn" says that no option at all is harmful, so that an
//     unknown word may be an option: never write "dyn" from memory. "any" is for
//     lines with an effect, and for builtins.
//  3. For what a line cannot express write a function in Go, in checks.go. If the
//     program runs what files of its directory name, list the files in "takes".
//  4. Add examples to testdata: everyday.txt (no question), asked.txt or
//     harmful.txt (a question), alarming.txt (a question that no rule silences),
//     rules.jsonl and edits.jsonl.
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
//     docker or python3, is allowed with all that it runs. A rule for a whole
//     program covers its subcommands: docker:* covers docker run. To allow less,
//     write docker ps:*.
//   - A wrapper that only changes how a command runs (env, timeout, nice, …) is
//     ignored by rules: the command in it must be covered.
//   - An option that runs something else, such as find -exec, tar
//     --checkpoint-action or git --exec-path, must be in the rule as a word, and
//     as often as in the command unless the rule ends with it. In the tables
//     these are the options with the effect exec, or marked named.
//   - A rule that names a command which ssh, watch or another program gives to a
//     shell, such as ssh host ls:*, does not cover a word that may add another.
//   - If an argument contains the code to run (an awk program that may be harmful,
//     a setting after git -c, ProxyCommand after ssh -o), the rule must be the
//     whole command, quotes removed. The sed commands e and w need approval
//     whatever the rules say.
//
// What an unknown program runs cannot be known: a rule for it covers it with all of its
// options, and a rule for ./run.sh covers the run.sh of any directory that the line changes to.
// TestRulesForWhatRunsOthers has a row for each case.
package shell
