package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
)

type sandboxFlags struct {
	profile string
	write   []string
	network bool
	trust   bool
}

// profiles are the names of package permission's profiles.
var profiles = []string{string(permission.ProfileRead), string(permission.ProfileWork), string(permission.ProfileOpen)}

func sandboxCommand() *cobra.Command {
	f := &sandboxFlags{}
	cmd := &cobra.Command{
		Use:   "sandbox [flags] -- COMMAND...",
		Short: "Run a command in the sandbox that agents' commands run in",
		Long: `Run a command in the sandbox that agents' commands run in, and exit with its
code. Denials of the sandbox are printed on standard error, as far as they are known.

With the profile work a command can write in the current directory, or in those of
--write instead, and in a private /tmp, except for files that other programs run or trust,
such as .git/hooks; without --network it has only loopback. With read it can write only
temporary files. In both it cannot read files with credentials, sees no other
process, and its processes end with it. The profile open confines nothing.

"sandbox" in kitbag.json changes the lists of paths; "kitbag sandbox status" shows them:

  {"sandbox": {"write": ["/srv/data"], "protect": ["vendor"], "hide": ["~/notes"],
               "reveal": ["testdata/.env"], "use": "required"}}

write and reveal grant access, protect and hide remove it. "use" is for kitbag run and chat:
auto (confine if the system can), required (fail if it cannot) or off. The kitbag.json of the
current directory can only restrict until you trust it.`,
		Example: `  kitbag sandbox -- go test ./...
  kitbag sandbox --profile read -- git log -1
  kitbag sandbox --write build --network -- npm install
  kitbag sandbox status`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch at := cmd.ArgsLenAtDash(); {
			case len(args) == 0:
				return nil // run prints the help
			case at == -1:
				return usage("put -- before the command: kitbag sandbox -- %s", strings.Join(args, " "))
			case at > 0:
				return usage("%q is before --; the flags come first, then --, then the command", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && cmd.Flags().NFlag() == 0 && cmd.ArgsLenAtDash() == -1 {
				return cmd.Help()
			}
			if len(args) == 0 {
				return usage("no command; add one: kitbag sandbox -- ls")
			}
			return f.run(cmd, args)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.profile, "profile", string(permission.ProfileWork), "the access of the command: "+strings.Join(profiles, ", "))
	fl.StringArrayVar(&f.write, "write", nil, "a `DIRECTORY` in which the command may write, repeatable (default the current one)")
	fl.BoolVar(&f.network, "network", false, "let the command use the network of this machine")
	fl.BoolVar(&f.trust, "trust", false, "apply all sandbox settings of the directory's kitbag.json, this time")
	if err := cmd.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions(profiles, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is missing: a bug in this function
	}
	cmd.AddCommand(sandboxStatusCommand())
	return cmd
}

// spec checks the flags, and returns the confinement that the flags and the configurations describe.
func (f *sandboxFlags) spec(log io.Writer) (sandbox.Spec, error) {
	var none sandbox.Spec
	profile := permission.Profile(f.profile)
	dirs := make([]string, len(f.write))
	for i, d := range f.write {
		abs, err := existingDir(d)
		if err != nil {
			return none, usage("--write %s: %w; name a directory that exists", d, err)
		}
		if abs == "/" { // package sandbox would refuse it too, after a long search for protected files
			return none, usage("--write /: the root cannot be made writable as a whole; name a directory of your own")
		}
		dirs[i] = abs
	}
	switch profile {
	case permission.ProfileOpen:
		if len(dirs) > 0 || f.network {
			return none, usage("--profile open confines nothing; leave out --write and --network")
		}
		return sandbox.Spec{Profile: profile}, nil
	case permission.ProfileRead:
		if len(dirs) > 0 {
			return none, usage("--profile read cannot write; leave out --write, or use --profile work")
		}
	case permission.ProfileWork:
	default:
		return none, usage("--profile %q: the profiles are %s", f.profile, strings.Join(profiles, ", "))
	}
	cwd, err := currentDir()
	if err != nil {
		return none, err
	}
	c, err := untrustedConfig(f.trust, false, log) // no warning about skills, which the sandbox does not use
	if err != nil {
		return none, err
	}
	if len(dirs) == 0 {
		if cwd == "/" && profile == permission.ProfileWork {
			return none, usage("the current directory is /, which cannot be made writable as a whole; change to another directory, or name one with --write")
		}
		dirs = []string{cwd}
	}
	s, err := c.sandbox.spec(profile, dirs)
	s.Network = f.network
	return s, err
}

func (f *sandboxFlags) run(cmd *cobra.Command, args []string) error {
	log := cmd.ErrOrStderr()
	spec, err := f.spec(log)
	if err != nil {
		return err
	}
	c := exec.CommandContext(cmd.Context(), args[0], args[1:]...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) } // not SIGKILL, so that the command can clean up
	c.Stdin, c.Stdout, c.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), log
	if w, ok := c.Stdout.(*checkedWriter); ok {
		c.Stdout = w.Writer // pass the file itself, as commands behave differently at a terminal
	}
	stderr := &tailWriter{Writer: log}
	if spec.Profile != permission.ProfileOpen { // sandbox.Denied looks for denials in the tail
		c.Stderr = stderr
	}
	cleanup, err := spec.Command(c)
	if err != nil {
		return err
	}
	runErr := c.Run()
	result, err := cleanup()
	if err != nil {
		return err
	}
	if _, ok := errors.AsType[*exec.ExitError](runErr); runErr != nil && !ok && !errors.Is(runErr, context.Canceled) {
		return runErr // the command did not run; otherwise its exit code says how it ended
	}
	code := c.ProcessState.ExitCode()
	if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal()) // as in shells
	}
	if why := sandbox.Denied(spec, code, stderr.tail); why != "" {
		fmt.Fprintf(log, "! %s (to grant more: --write DIR, --network, --profile work or open, reveal in kitbag.json)\n", plainLine(why))
	}
	if result.Left {
		fmt.Fprintln(log, "! a background process was ended with the command")
	}
	if len(result.Made) > 0 {
		fmt.Fprintf(log, "! the command created files that other programs run or trust; check or remove them: %s\n", plainLine(strings.Join(result.Made, ", ")))
	}
	if len(result.Replaced) > 0 {
		fmt.Fprintf(log, "! another program replaced protected files while the command ran, and the new ones were not protected for a moment; check them: %s\n", plainLine(strings.Join(result.Replaced, ", ")))
	}
	if code != 0 {
		return &exit{code: code}
	}
	return nil
}

// A tailWriter forwards its input, and keeps at least the last tailSize bytes.
type tailWriter struct {
	io.Writer
	tail []byte
}

const tailSize = 16 << 10 // enough for the error that ended a command

func (t *tailWriter) Write(p []byte) (int, error) {
	t.tail = append(t.tail, p...)
	if len(t.tail) > 2*tailSize { // cut rarely, since each cut copies the rest
		t.tail = append(t.tail[:0], t.tail[len(t.tail)-tailSize:]...)
	}
	return t.Writer.Write(p)
}
