// Command kitbag runs agents in a terminal and from scripts, and looks after
// what they are made of. "kitbag help" lists what it can do.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit codes.
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

func (e *exit) Error() string { return fmt.Sprint(e.err) }
func (e *exit) Unwrap() error { return e.err }

func usage(format string, args ...any) error { return &exit{exitUsage, fmt.Errorf(format, args...)} }

func main() {
	// A reader of our output that goes away, such as head, ends the run like any
	// other error, not the process in the middle of a call. Notify, unlike Ignore,
	// changes nothing for the commands that tools start.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
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

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	e, known := errors.AsType[*exit](err)
	switch {
	case err == nil:
		return exitDone
	case known && e.err == nil:
		return e.code
	}
	fmt.Fprintln(stderr, "kitbag:", plain(err.Error())) // it may quote a server
	if !known {
		return exitError
	}
	if e.code == exitUsage {
		fmt.Fprintf(stderr, "Run '%s --help' for what there is.\n", cmd.CommandPath())
	}
	return e.code
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "kitbag",
		Short: "Run LLM agents with tools, skills and MCP servers",
		Long: `kitbag runs LLM agents with tools, skills and MCP servers, and looks after what
they are made of. Nothing that could do harm runs without a rule or a person
allowing it.`,
		Example: `  kitbag demo                      watch an agent work, without a key
  kitbag run "fix the failing test"  run one here
  kitbag chat                      talk with one`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,

		SuggestionsMinimumDistance: 2,
	}
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%w", err) })
	root.AddCommand(demoCommand(), runCommand(), chatCommand(), toolsCommand(), schemaCommand(), mcpCommand(), permissionCommand(), skillsCommand(), versionCommand())
	return root
}

// noArgs refuses arguments as bad usage, and names what was meant.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
		return usage("unknown command %q for %q; did you mean %q?", args[0], cmd.CommandPath(), s[0])
	}
	return usage("%s takes no argument %q", cmd.CommandPath(), args[0])
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
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
