// Command kitbag runs agents in a terminal and from scripts, and looks after what
// they are made of: permissions, skills, MCP servers, the schemas of Go tools.
//
//	kitbag demo                             watch an agent work, without a key
//	kitbag run "fix the failing test"       one task, in the current directory
//	kitbag chat                             a conversation, at a terminal
//	kitbag tools                            what an agent here would have, and its cost
//	kitbag permission explain 'rm -r x'     what would happen to a call, and why
//	kitbag sandbox -- go test ./...         a command, confined as an agent's are
//	kitbag mcp serve --mcp .mcp.json        many MCP servers as one, in groups
//	kitbag skills validate                  check the skills of a project
//
// "kitbag help COMMAND" has the flags and an example of each.
//
// # What goes where
//
// Standard output has what was asked for: the model's text, a list, with --json one
// document or one event a line. Standard error has everything else: what tools do,
// questions, warnings (they begin with "!") and errors (with "kitbag:"). So a pipe
// gets nothing that it did not ask for, and a person sees both. There is colour on
// standard error only, at a terminal, without NO_COLOR and with a TERM that is not
// dumb.
//
// The exit codes are the same for all commands: 0 done, 1 an error, 2 wrong usage, 3
// a run waits for a person, 4 a run reached a limit, 130 it was interrupted. That a
// tool call failed is the model's affair and no error; that the output could not be
// written is one, whatever the command. "kitbag sandbox" ends with the code of what it ran.
//
// The first interrupt (Ctrl-C, SIGTERM) ends the work in order: a session is saved,
// servers and processes are ended. The second ends the program at once.
//
// # Where settings come from
//
// Flags come first, then variables (OPENAI_API_KEY, OPENAI_BASE_URL, KITBAG_MODEL),
// then kitbag.json in the current directory, then kitbag.json in the user's
// configuration directory (~/.config/kitbag on Linux). Of rules, directories, MCP
// servers and skills all of them count. Keys are taken from the environment only: a
// flag would be seen by every user of the machine, and a file ends up in a
// repository.
//
// "kitbag permission explain --json" reads none of these: each line says all that
// counts, so that a program gets the same answer everywhere, in the mode sandboxed
// wherever commands can be confined.
//
// # What is trusted
//
// The directory is not: it may be a clone of anybody's. Until a person has agreed,
// its kitbag.json may only restrict (ask and deny rules, paths that the sandbox covers), its MCP servers are not
// started, and its skills, which are instructions to the model, are not shown to it.
// What was agreed to is kept in the user's configuration directory by a hash of the
// content and the place; the question shows every line that would begin to count.
//
// The model is not: each call is judged by the permission engine, and the question
// about one shows it whole. Tools, servers, sessions and skills are not: nothing that
// they say steers the terminal or passes for a line of kitbag's (see plain).
//
// A session file is sealed with a key in the user's configuration directory, and another
// one is refused without --trust-session. What looks like a secret is taken out of it, and
// of what is shown, unless --no-redact is given: a net, not a wall (see package redact).
//
// The person at the terminal is trusted, and only there: a "y" out of a pipe is no
// answer, and neither is what was typed before the question was there.
//
// # What is confined
//
// Commands of an agent run in the sandbox of package builtin/sandbox, where the system has
// one: "kitbag sandbox status" says what of it is there, and which paths are covered. The
// member "sandbox" of kitbag.json adds to the lists of paths, or takes from them, requires
// the sandbox, or turns it off; that of a directory which nobody has agreed to can only
// add to what is covered. "kitbag sandbox -- COMMAND" confines a command of a person, and
// ends with its exit code. An MCP server is confined if its entry says "sandbox": "read" or
// "work", and is then not started where that cannot be had.
//
// # How it is built
//
// Each command is a file, named after it, that makes a [cobra.Command] from flags in
// a struct. What run and chat share: config.go and trust.go read the configurations,
// setup.go and servers.go make the agent of them, run.go drives it, show.go and
// ask.go are its screen and keyboard. main.go maps errors to exit codes, usage.go
// words mistakes on the command line.
package main
