package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes, the same for all commands.
const (
	exitDone        = 0
	exitError       = 1
	exitUsage       = 2
	exitWaiting     = 3   // a call waits for approval
	exitLimit       = 4   // a limit of the agent was reached, such as its cost
	exitInterrupted = 130 // shells also use this code for SIGINT

	exitCodes = `Exit codes: 0 done, 1 error, 2 wrong usage, 3 waiting for approval, 4 a limit was
reached, 130 interrupted`
)

// exit is an error with an exit code. err is nil if the command has already printed why it failed.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string { return fmt.Sprint(e.err) }
func (e *exit) Unwrap() error { return e.err }

func main() {
	// With Notify, a write to a closed pipe (kitbag … | head) returns an error instead of killing the process in the
	// middle of a call. signal.Ignore would also apply to the commands that tools start.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	slog.SetDefault(slog.New(noticeHandler{log: os.Stderr}))
	ctx, stop := interruptible(context.Background(), os.Stderr)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// interruptible returns a context that the first interrupt or SIGTERM cancels. A second signal ends the program at once,
// in case the work does not stop.
func interruptible(ctx context.Context, stderr io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		if _, ok := <-signals; !ok {
			return
		}
		fmt.Fprintln(stderr, "\ninterrupted: finishing cleanly; interrupt again to stop at once")
		cancel()
		if _, ok := <-signals; ok {
			os.Exit(exitInterrupted)
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel()
	}
}

// run executes a command line and returns its exit code. It prints errors on stderr.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := &checkedWriter{Writer: stdout}
	root := rootCommand(out)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	code := exitDone
	if err != nil {
		code = exitError
	}
	if e, ok := errors.AsType[*exit](err); ok {
		code, err = e.code, e.err
	}
	if writeErr := out.firstError(); writeErr != nil {
		if errors.Is(writeErr, syscall.EPIPE) {
			return exitError // the reader, such as head, closed the pipe
		}
		if err == nil || errors.Is(err, writeErr) {
			code, err = exitError, fmt.Errorf("standard output: %w", writeErr)
		}
	}
	if code != exitDone && ctx.Err() != nil {
		code = exitInterrupted // err is a result of the interrupt
	}
	if err != nil {
		fmt.Fprintln(stderr, "kitbag:", indented(err.Error())) // a server's text in err must not look like a line of kitbag
	}
	if code == exitUsage && err != nil { // err is nil if 2 is the exit code of a sandboxed command
		fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", cmd.CommandPath())
	}
	return code
}

// rootCommand returns the command kitbag. It must know out before it adds cobra's completion command, which stores the
// output when it is created.
func rootCommand(out io.Writer) *cobra.Command {
	root := group(&cobra.Command{
		Use:   "kitbag",
		Short: "Run LLM agents with tools, skills and MCP servers",
		Long: `kitbag runs LLM agents with tools, skills and MCP servers, and manages these
parts. Nothing that could do harm runs unless a rule or the user
allows it.

` + exitCodes + `; kitbag sandbox: the command's own.`,
		Example: `  kitbag demo                        watch an agent work, without an API key
  kitbag run "fix the failing test"  run an agent in this directory
  kitbag chat                        talk with an agent`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}, demoCommand(), runCommand(), chatCommand(), sessionsCommand(), toolsCommand(), schemaCommand(), mcpCommand(), permissionCommand(), sandboxCommand(), skillsCommand(), initCommand(), doctorCommand(), uiCommand(), versionCommand())
	root.SetOut(out)
	root.SetFlagErrorFunc(flagError)
	strictDefaults(root)
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  kitbag version",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version, goVersion := buildVersions()
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "kitbag %s (%s)\n", version, goVersion)
			return err
		},
	}
}

// buildVersions returns the versions of kitbag and of the Go that built it.
func buildVersions() (version, goVersion string) {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version, info.GoVersion
	}
	return "unknown", "unknown"
}
