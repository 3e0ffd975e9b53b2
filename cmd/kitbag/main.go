// Command kitbag runs agents in a terminal and from scripts, and looks after
// what they are made of. "kitbag help" lists what it can do.
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

// The exit codes, the same for all commands. The last is what shells make of SIGINT.
const (
	exitDone        = 0
	exitError       = 1
	exitUsage       = 2
	exitWaiting     = 3 // a person is needed
	exitLimit       = 4
	exitInterrupted = 130
)

// exit is an error that carries an exit code. With a nil error everything that
// is to be said has been said.
type exit struct {
	code int
	err  error
}

// Error is only ever shown with an error in it.
func (e *exit) Error() string { return fmt.Sprint(e.err) }
func (e *exit) Unwrap() error { return e.err }

// main runs the command and ends the process with its exit code.
func main() {
	// A reader of our output that goes away, such as head, ends the run like any
	// other error, not the process in the middle of a call. Notify, unlike Ignore,
	// changes nothing for the commands that tools start.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	slog.SetDefault(slog.New(notices{log: os.Stderr}))
	ctx, stop := interruptible(context.Background(), os.Stderr)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// interruptible returns a context that ends with the first interrupt, or when the
// program is told to terminate. The second time ends the program at once: what does
// not stop when it is asked to must not hold a person up.
func interruptible(ctx context.Context, stderr io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		if _, ok := <-signals; !ok {
			return
		}
		fmt.Fprintln(stderr, "\ninterrupted: finishing cleanly; once more to stop at once")
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

// run runs the command of args, and returns the exit code. What went wrong is told on
// stderr, with the remedy where it is known.
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
	if failed := out.failed(); failed != nil {
		if errors.Is(failed, syscall.EPIPE) {
			return exitError // the reader has gone, such as head: it knows
		}
		if err == nil || errors.Is(err, failed) {
			code, err = exitError, fmt.Errorf("standard output: %w", failed)
		}
	}
	if code != exitDone && ctx.Err() != nil {
		code = exitInterrupted // whatever it is that the interrupt has broken
	}
	if err != nil {
		fmt.Fprintln(stderr, "kitbag:", indented(err.Error())) // it may quote a server
	}
	if code == exitUsage && err != nil { // and not a command's own code
		fmt.Fprintf(stderr, "Run '%s --help' for what there is.\n", cmd.CommandPath())
	}
	return code
}

// rootCommand returns the program. It has to know where it prints from the start: the
// command for completion keeps what it finds when it is made.
func rootCommand(out io.Writer) *cobra.Command {
	root := group(&cobra.Command{
		Use:   "kitbag",
		Short: "Run LLM agents with tools, skills and MCP servers",
		Long: `kitbag runs LLM agents with tools, skills and MCP servers, and looks after what
they are made of. Nothing that could do harm runs without a rule or a person
allowing it.

Exit codes of all commands: 0 done, 1 error, 2 wrong usage, 3 waiting for a
person, 4 a limit was reached, 130 interrupted; kitbag sandbox: the command's own.`,
		Example: `  kitbag demo                        watch an agent work, without a key
  kitbag run "fix the failing test"  run one here
  kitbag chat                        talk with one`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}, demoCommand(), runCommand(), chatCommand(), toolsCommand(), schemaCommand(), mcpCommand(), permissionCommand(), sandboxCommand(), skillsCommand(), versionCommand())
	root.SetOut(out)
	root.SetFlagErrorFunc(flagError)
	strictDefaults(root)
	return root
}

// versionCommand is "kitbag version".
func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  kitbag version",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version, goVersion := build()
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "kitbag %s (%s)\n", version, goVersion)
			return err
		},
	}
}

// build returns the versions of the program and of the Go that built it.
func build() (version, goVersion string) {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version, info.GoVersion
	}
	return "unknown", "unknown"
}
