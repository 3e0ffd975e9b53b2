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

// sandboxFlags are the flags of kitbag sandbox.
type sandboxFlags struct {
	profile string
	write   []string
	network bool
	trust   bool
}

// profiles are those of package permission.
var profiles = []string{string(permission.ProfileRead), string(permission.ProfileWork), string(permission.ProfileOpen)}

// sandboxCommand is "kitbag sandbox".
func sandboxCommand() *cobra.Command {
	f := &sandboxFlags{}
	cmd := &cobra.Command{
		Use:   "sandbox [flags] -- COMMAND...",
		Short: "Run a command confined, as commands of an agent are",
		Long: `Run a command in the sandbox that commands of an agent run in, and exit with its
code. What the sandbox is known to have denied is said on standard error.

In the profile work a command writes in the current directory, or in those of --write
instead, and in a /tmp of its own, but for what other programs run or trust, such as
.git/hooks; it has no network but loopback without --network. In read it writes nothing
but temporary files. In both it cannot read what holds credentials, sees no other
process, and nothing that it started outlives it. The profile open confines nothing.

"sandbox" in kitbag.json changes the lists of paths; "kitbag sandbox status" shows them:

  {"sandbox": {"write": ["/srv/data"], "protect": ["vendor"], "hide": ["~/notes"],
               "reveal": ["testdata/.env"], "use": "required"}}

write and reveal grant more, protect and hide less. "use" is for kitbag run and chat:
auto (confine where this system can), required (or else fail) or off. Of the file in the
current directory only what restricts counts until you trust it.`,
		Example: `  kitbag sandbox -- go test ./...
  kitbag sandbox --profile read -- git log -1
  kitbag sandbox --write build --network -- npm install
  kitbag sandbox status`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch at := cmd.ArgsLenAtDash(); {
			case len(args) == 0:
				return nil // asks for the help
			case at == -1:
				return usage("put -- before the command: kitbag sandbox -- %s", strings.Join(args, " "))
			case at > 0:
				return usage("%q is in front of --; the flags come first, then --, then the command", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && cmd.Flags().NFlag() == 0 {
				return cmd.Help()
			}
			if len(args) == 0 {
				return usage("no command; say what to run: kitbag sandbox -- ls")
			}
			return f.run(cmd, args)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.profile, "profile", string(permission.ProfileWork), "what the command may reach: "+strings.Join(profiles, ", "))
	fl.StringArrayVar(&f.write, "write", nil, "a `DIRECTORY` that it may write in, repeatable (default the current one)")
	fl.BoolVar(&f.network, "network", false, "give it the network of this machine")
	fl.BoolVar(&f.trust, "trust", false, "follow the directory's kitbag.json in all that it says of the sandbox, this time")
	if err := cmd.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions(profiles, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag: a mistake in this function
	}
	cmd.AddCommand(sandboxStatusCommand())
	return cmd
}

// spec is how the command is confined.
func (f *sandboxFlags) spec(log io.Writer) (sandbox.Spec, error) {
	var none sandbox.Spec
	profile := permission.Profile(f.profile)
	dirs := make([]string, len(f.write))
	for i, d := range f.write {
		abs, err := existingDir(d)
		if err != nil {
			return none, usage("--write %s: %w; name a directory that exists", d, err)
		}
		if abs == "/" { // it would be searched for what to protect before it is refused
			return none, usage("--write /: it cannot be written in as a whole; name a directory of your own")
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
			return none, usage("--profile read writes nowhere; leave out --write, or use --profile work")
		}
	case permission.ProfileWork:
	default:
		return none, usage("--profile %q: the profiles are %s", f.profile, strings.Join(profiles, ", "))
	}
	cwd, err := currentDir()
	if err != nil {
		return none, err
	}
	settings, err := sandboxConfig(f.trust, log)
	if err != nil {
		return none, err
	}
	if len(dirs) == 0 {
		dirs = []string{cwd}
	}
	if cwd == "/" && len(f.write) == 0 && profile == permission.ProfileWork {
		return none, usage("the current directory is /, which cannot be written in as a whole; change to another, or name one with --write")
	}
	s, err := settings.spec(profile, dirs)
	s.Network = f.network
	return s, err
}

// run runs the command and returns its exit code as an error.
func (f *sandboxFlags) run(cmd *cobra.Command, args []string) error {
	log := cmd.ErrOrStderr()
	spec, err := f.spec(log)
	if err != nil {
		return err
	}
	c := exec.CommandContext(cmd.Context(), args[0], args[1:]...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) } // it ends as it sees fit
	c.Stdin, c.Stdout, c.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), log
	if o, ok := c.Stdout.(*checkedWriter); ok {
		c.Stdout = o.Writer // a command that finds a terminal there behaves otherwise
	}
	said := &tail{to: log}
	if spec.Profile != permission.ProfileOpen {
		c.Stderr = said
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
		return runErr
	}
	code := c.ProcessState.ExitCode()
	if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal()) // as shells say it
	}
	if why := sandbox.Denied(spec, code, said.text); why != "" {
		fmt.Fprintf(log, "! %s (to grant more: --write DIR, --network, --profile work or open, reveal in kitbag.json)\n", plainLine(why))
	}
	if result.Left {
		fmt.Fprintln(log, "! a process that the command left in the background was ended with it")
	}
	if len(result.Made) > 0 {
		fmt.Fprintf(log, "! the command made what other programs run or trust; check it, or remove it: %s\n", plainLine(strings.Join(result.Made, ", ")))
	}
	if len(result.Replaced) > 0 {
		fmt.Fprintf(log, "! another program replaced files while the command ran, which was kept from the old ones only; check them: %s\n", plainLine(strings.Join(result.Replaced, ", ")))
	}
	if code != 0 {
		return &exit{code: code}
	}
	return nil
}

// A tail passes on what is written to it and keeps the end.
type tail struct {
	to   io.Writer
	text []byte
}

const tailSize = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - tailSize; over > tailSize {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return t.to.Write(p)
}
