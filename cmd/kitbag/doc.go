// Command kitbag runs agents in a terminal and from scripts, and manages their parts:
// permissions, skills, MCP servers, the schemas of Go tools.
//
//	kitbag demo                             watch an agent work, without a key
//	kitbag run "fix the failing test"       one task, in the current directory
//	kitbag chat                             a conversation, at a terminal
//	kitbag tools                            the tools of an agent here, and their cost
//	kitbag permission explain 'rm -r x'     what would happen to a call, and why
//	kitbag sandbox -- go test ./...         a command, confined like an agent's commands
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
// Standard output has the result: the model's text, a list, or with --json one document or one event a line. Standard
// error has everything else: the actions of tools, questions, warnings (which begin with "!") and errors (which begin
// with "kitbag:"). Colour is used only on standard error, at a terminal, unless NO_COLOR is set or TERM is dumb.
// At a terminal, "kitbag chat" without --plain shows the output of both above an editor (see package term).
//
// A failed tool call is not an error of the command; failing to write the output is. The first interrupt (Ctrl-C,
// SIGTERM) saves the session and ends servers and processes; the second ends the program at once.
//
// # Settings
//
// Flags override variables, which override kitbag.json in the current directory, which overrides kitbag.json in the
// user's configuration directory (~/.config/kitbag on Linux). Rules, directories, MCP servers and skills from all these
// places apply. Keys are read from the environment only: every user of the machine can see a flag, and files end up in
// repositories. "kitbag permission explain --json" reads none of these settings.
//
// # Trust
//
// The current directory is not trusted, as it may be a clone of an unknown repository. Until the user agrees, its
// kitbag.json may only restrict (ask and deny rules, paths that the sandbox covers), its MCP servers are not started,
// and its skills, AGENTS.md and CLAUDE.md are not shown to the model. The question shows every setting that would take
// effect. The consent is stored in the user's configuration directory as a hash of content and path.
//
// The model is not trusted: the permission engine judges each call, and a question about a call shows it completely.
// Tools, servers, sessions and skills are not trusted either: their text cannot control the terminal or imitate a line
// of kitbag (see the functions plain and plainLine).
//
// A session is sealed with a key in the user's configuration directory, with the answers that "kitbag ui" sends to it
// (see session.Sealed). A session without these seals is refused, unless --trust-session is given, and such an answer has
// no effect. Text that looks like a secret is removed from the session, and from the output, unless --no-redact is given;
// this is not a boundary (see package redact).
//
// The user at the terminal is trusted, but only there: a "y" from a pipe is not an answer, nor is anything typed before
// the question was shown.
//
// # Code
//
// Each command has a file of its name. run and chat share settings.go, config.go and trust.go, which read the
// configurations; model.go, setup.go and servers.go, which make the agent; run.go, which runs the agent; show.go and
// show_result.go for output; and prompt.go, approve.go and elicit.go for questions. chat.go takes turns with the user, on
// plain lines (chat_plain.go) or in an editor (chat_screen.go, package term). main.go maps errors to exit codes; usage.go
// explains wrong usage. session.go opens sessions, and import.go imports the files of older versions.
package main
