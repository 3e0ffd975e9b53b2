package main

import (
	"cmp"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/builtin/sandbox"
	"github.com/kitbag-go/kitbag/permission"
)

func sandboxStatusCommand() *cobra.Command {
	var asJSON, trust bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the sandbox of this system, and the paths that it covers here",
		Long: `Show what this system can confine commands with: for each layer whether it is available,
why not, and what that means. Then show which paths a command of the profile work can write
in the current directory, which of these are protected, which paths it cannot read, and which
caches it writes only for itself.`,
		Example: "  kitbag sandbox status\n  kitbag sandbox status --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := untrustedConfig(trust, false, cmd.ErrOrStderr()) // no warning about skills, which the sandbox does not use
			if err != nil {
				return err
			}
			cwd, err := currentDir()
			if err != nil {
				return err
			}
			spec, err := c.sandbox.spec(permission.ProfileWork, []string{cwd})
			if err != nil {
				return err
			}
			return newSandboxReport(sandbox.Check(), c.sandbox, spec).print(cmd.OutOrStdout(), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&trust, "trust", false, "apply all sandbox settings of the directory's kitbag.json, this time")
	return cmd
}

// A sandboxReport is the output of "kitbag sandbox status". Its JSON must not change, since other programs read it.
type sandboxReport struct {
	Confines bool   `json:"confines"`         // the profiles read and work are available
	Reason   string `json:"reason,omitempty"` // why the profiles are not available
	Use      string `json:"use"`              // the setting sandbox.use

	Layers    []layerReport `json:"layers"`
	Writable  []coveredPath `json:"writable"`
	Protected []coveredPath `json:"protected"`
	Hidden    []coveredPath `json:"hidden"`
	Caches    []coveredPath `json:"caches"`
}

// A layerReport has the fields of a [sandbox.Layer].
type layerReport struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
	Means  string `json:"means,omitempty"`
}

type coveredPath struct {
	Path   string `json:"path"`
	Exists bool   `json:"exists"`
}

func newSandboxReport(s sandbox.Status, settings sandboxSettings, spec sandbox.Spec) *sandboxReport {
	r := &sandboxReport{Confines: true, Use: cmp.Or(settings.Use, useAuto)}
	if err := s.Confines(); err != nil {
		r.Confines, r.Reason = false, err.Error()
	}
	for _, l := range s.Layers {
		r.Layers = append(r.Layers, layerReport(l))
	}
	covered := func(paths []string) []coveredPath {
		out := []coveredPath{}
		for _, p := range paths {
			_, err := os.Lstat(p)
			out = append(out, coveredPath{p, err == nil})
		}
		return out
	}
	r.Writable, r.Protected, r.Hidden, r.Caches = covered(spec.Write), covered(spec.Protect), covered(spec.Hide), covered(spec.Scratch)
	return r
}

func (r *sandboxReport) print(to io.Writer, asJSON bool) error {
	if asJSON {
		return writeJSON(to, r)
	}
	for _, l := range r.Layers {
		available := "yes"
		if !l.OK {
			available = "no"
		}
		if l.Detail != "" {
			l.Name += ": " + l.Detail
		}
		fmt.Fprintf(to, "%-3s  %s\n", available, plainLine(l.Name))
		if l.Means != "" {
			fmt.Fprintf(to, "     %s\n", plainLine(l.Means))
		}
	}
	switch {
	case !r.Confines:
		fmt.Fprintf(to, "\nNo command is confined: %s. Mode sandboxed asks like accept-edits.\n", plainLine(r.Reason))
	case r.Use == useOff:
		fmt.Fprint(to, "\nCommands could be confined, but \"use\": \"off\" is set under sandbox.\n")
	default:
		fmt.Fprint(to, "\nCommands are confined.\n")
	}
	printPaths(to, "Writable, in addition to a private /tmp:", r.Writable)
	printPaths(to, "Read-only within these:", r.Protected)
	printPaths(to, "Not readable:", r.Hidden)
	printPaths(to, "Caches, of which each command writes its own copy:", r.Caches)
	return nil
}

// printPaths prints the paths that exist, and how many do not exist.
func printPaths(to io.Writer, title string, paths []coveredPath) {
	fmt.Fprintf(to, "\n%s\n", title)
	missing := 0
	for _, p := range paths {
		if p.Exists {
			fmt.Fprintf(to, "  %s\n", plainLine(p.Path))
		} else {
			missing++
		}
	}
	if missing > 0 {
		fmt.Fprintf(to, "  and %d that do not exist now; --json lists all\n", missing)
	}
}
