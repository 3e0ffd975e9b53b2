// Command kitbag runs agents in a terminal and from scripts, and manages their parts:
// permissions, skills, MCP servers, the schemas of Go tools.
//
//	kitbag demo                             watch an agent work, without a key
//	kitbag run "fix the failing test"       one task, in the current directory
//	kitbag chat                             a conversation, at a terminal
//	kitbag tools                            what an agent here would have, and its cost
//	kitbag permission explain 'rm -r x'     what would happen to a call, and why
//	kitbag sandbox -- go test ./...         a command, confined as an agent's are
//	kitbag mcp serve --mcp .mcp.json        many MCP servers as one, in groups
//	kitbag skills validate                  check the skills of a project
//	kitbag init                             write a kitbag.json after a few questions
//	kitbag doctor                           check the set-up, and say what to do
//	kitbag ui --open                        sessions and their questions, in a browser
//
// "kitbag help COMMAND" has the flags and an example of each.
//
// # Output
//
// Standard output has the requested result: the model's text, a list, or with --json one document or one event
// a line. Standard error has everything else: the actions of tools, questions, warnings (which begin with "!")
// and errors (which begin with "kitbag:"). A pipe therefore gets only the result, and a terminal shows both. Colour is
// used only on standard error, at a terminal, unless NO_COLOR is set or TERM is dumb. "kitbag chat" at a
// terminal shows both above an editor (see package term), unless --plain is given.
//
// The exit codes are the same for all commands: 0 done, 1 an error, 2 wrong usage, 3 a run
// waits for approval, 4 a run reached a limit, 130 it was interrupted. A failed tool call is
// not an error of the command; failing to write the output is. "kitbag sandbox" exits with
// the code of its command.
//
// The first interrupt (Ctrl-C, SIGTERM) ends the work cleanly: it saves the session and ends servers and
// processes. The second ends the program at once.
//
// # Settings
//
// Flags override variables (KITBAG_MODEL, KITBAG_API, OPENAI_API_KEY, OPENAI_BASE_URL, and for Claude models
// ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL), which override kitbag.json in the current directory, which overrides kitbag.json in the user's
// configuration directory (~/.config/kitbag on Linux). Rules, directories, MCP servers and
// skills of all of them are joined. Keys are read from the environment only: every user of
// the machine can see a flag, and files end up in repositories.
//
// "kitbag permission explain --json" reads none of these settings: the answer depends only on the line of input
// (in the mode sandboxed also on whether the system can confine commands).
//
// # Trust
//
// The current directory is not trusted, as it may be a clone of an unknown repository. Until
// the user agrees, its kitbag.json may only restrict (ask and deny rules, paths that the
// sandbox covers), its MCP servers are not started, and its skills, AGENTS.md and CLAUDE.md,
// which are instructions for the model, are not shown to it. The consent is stored in the user's configuration
// directory as a hash of content and path; the question shows every line that would take
// effect.
//
// The model is not trusted: the permission engine judges each call, and a question about a call shows it
// completely. Tools, servers, sessions and skills are not trusted either: their text cannot control the
// terminal or imitate a line of kitbag (see the functions plain and plainLine).
//
// A session file is sealed with a key in the user's configuration directory, and any other is
// refused without --trust-session. Text that looks like a secret is removed from it, and from
// the output, unless --no-redact is given; this is not a boundary (see package redact).
//
// The user at the terminal is trusted, but only there: a "y" from a pipe is not an answer, nor
// is anything typed before the question was shown.
//
// # Sandbox
//
// Commands of an agent run in the sandbox of package builtin/sandbox if the system supports it. "kitbag sandbox
// status" shows which parts are available, and which paths are covered. The member "sandbox" of kitbag.json adds to
// or removes from the lists of paths, requires the sandbox, or turns it off. In a directory that is not trusted it
// can only add covered paths. "kitbag sandbox -- COMMAND" confines a command of the user. An MCP server is confined
// if its entry says "sandbox": "read" or "work", and is not started if that is not possible.
//
// # Code
//
// Each command has a file of its name, which makes a [cobra.Command] from flags in a struct. run and chat
// share config.go and trust.go, which read the configurations, model.go, setup.go and servers.go, which make the agent,
// run.go, which runs it, show.go and show_result.go for output, and ask.go and approve.go for input. chat.go
// takes turns with the user, on plain lines (chat_plain.go) or in an editor (chat_screen.go, package term). ui.go
// serves the page of package inspect. main.go maps errors to exit codes; usage.go explains wrong usage.
package main
