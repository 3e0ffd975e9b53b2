package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/permission"
)

// Pins are stored in the user's configuration directory, with one file of pins for each server file, since two server
// files may have servers of the same name. A pin file stores the path of its server file in the keys of servers.

func pinDir() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("no place to store pins: %w; set HOME or XDG_CONFIG_HOME", err)
	}
	return filepath.Join(dir, "kitbag", "mcp-pins"), nil
}

// filePins are the pins of the servers in one server file.
type filePins struct {
	mcpclient.PinFile
	serverFile string // absolute path
}

func (f filePins) key(server string) string { return server + "\n" + f.serverFile }

func (f filePins) Load(server string) (map[string]mcpclient.Pin, error) {
	return f.PinFile.Load(f.key(server))
}

func (f filePins) Update(server string, change func(map[string]mcpclient.Pin)) error {
	return f.PinFile.Update(f.key(server), change)
}

// pinsOf returns the pins of the servers in the file.
func pinsOf(file string) (filePins, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return filePins{}, err
	}
	dir, err := pinDir()
	if err != nil {
		return filePins{}, err
	}
	sum := sha256.Sum256([]byte(path))
	return filePins{mcpclient.PinFile(filepath.Join(dir, hex.EncodeToString(sum[:16])+".json")), path}, nil
}

// pin sets the pins of the servers, so that each tool is pinned when it is first allowed.
func pin(file string, configs []mcpclient.Server) error {
	pins, err := pinsOf(file)
	for i := range configs {
		configs[i].Options.Pins = pins
	}
	return err
}

// applyPolicy makes the servers trust read-only claims if the policy does, and pin tools that a rule allows as soon as
// they are listed.
func applyPolicy(p *permission.Policy, configs []mcpclient.Server) {
	if p == nil {
		return
	}
	rules := &permission.Policy{Rules: p.Rules}
	for i := range configs {
		configs[i].Options.TrustReadOnly = configs[i].Options.TrustReadOnly || p.TrustReadOnly
		configs[i].Options.PinListed = func(tool string) bool {
			d := permission.Decide(rules, &permission.Call{Tool: tool, Input: json.RawMessage("{}")})
			return d.Behavior == permission.Allow
		}
	}
}

// A pinReport is the output about one pin. Its JSON must not change, since other programs read it.
type pinReport struct {
	File   string `json:"file"`
	Server string `json:"server"`
	Tool   string `json:"tool"` // or mcpclient.ServerPin
	mcpclient.Pin
	Diff string `json:"diff,omitempty"`

	pinFile mcpclient.PinFile
}

// title is the tool's name for the user.
func (p pinReport) title() string {
	if p.Tool == mcpclient.ServerPin {
		return "(instructions and groups)"
	}
	return plainLine(p.Tool)
}

func (p pinReport) key() string { return p.Server + "\n" + p.File }

type pinFlags struct{ mcpFlags }

func mcpPinsCommand() *cobra.Command {
	var f pinFlags
	cmd := &cobra.Command{
		Use:   "pins [flags] [SERVER [TOOL...]]",
		Short: "Show which tools are withheld because their server changed them",
		Long: `Show the tools that are pinned: those that a rule or the user allowed, as their
server defined them then. If the server changes the definition of a tool, the tool
is withheld: no model sees it, and its calls fail, until the new definition is
accepted. The server's instructions and the descriptions of its groups are
pinned with its first tool, under the name '' (two quotes): when they change, the
old ones are used until the new ones are accepted. A change is shown as a diff.`,
		Example: `  kitbag mcp pins
  kitbag mcp pins accept github create_issue
  kitbag mcp pins remove github`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			pins, err := f.find(args)
			if err == nil {
				err = f.print(cmd.OutOrStdout(), pins)
			}
			return err
		},
	}
	f.register(cmd)
	accept := f.changeCommand("accept", "Accept the latest definitions of all tools of a server, or of some",
		func(pins map[string]mcpclient.Pin, p pinReport) bool {
			if p.Changed != nil && string(pins[p.Tool].Changed) == string(p.Changed) { // the shown definition, not a newer one
				pins[p.Tool] = p.Accept()
				return true
			}
			return false
		})
	remove := f.changeCommand("remove", "Remove the pins of all tools of a server, or of some: they are pinned again when they are next allowed",
		func(pins map[string]mcpclient.Pin, p pinReport) bool {
			delete(pins, p.Tool)
			return true
		})
	cmd.AddCommand(accept, remove)
	return cmd
}

func (f *pinFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.files, "mcp", nil, "only the servers of `FILE`, repeatable")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
}

// changeCommand makes a subcommand that changes pins and prints the changed ones. change reports whether it has changed
// the pin.
func (f *pinFlags) changeCommand(name, short string, change func(map[string]mcpclient.Pin, pinReport) bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     name + " [flags] SERVER [TOOL...]",
		Short:   short,
		Example: "  kitbag mcp pins " + name + " github create_issue",
		Args:    between(1, math.MaxInt, "SERVER [TOOL...], which kitbag mcp pins shows"),
		RunE: func(cmd *cobra.Command, args []string) error {
			pins, err := f.find(args)
			if err != nil {
				return err
			}
			var changed []pinReport
			for _, p := range pins {
				err := p.pinFile.Update(p.key(), func(all map[string]mcpclient.Pin) {
					if change(all, p) {
						changed = append(changed, p)
					}
				})
				if err != nil {
					return err
				}
			}
			if len(changed) == 0 {
				return fmt.Errorf("nothing to %s: none of the tools has changed", name)
			}
			if f.json {
				return f.print(cmd.OutOrStdout(), changed)
			}
			for _, p := range changed {
				fmt.Fprintf(cmd.OutOrStdout(), "%sed %s %s of %s\n", strings.TrimSuffix(name, "e"), plainLine(p.Server), p.title(), plainLine(p.File))
			}
			return nil
		},
	}
	f.register(cmd)
	return cmd
}

// find returns the pins of the named server and tools, or all.
func (f *pinFlags) find(args []string) ([]pinReport, error) {
	all, err := f.all()
	if err != nil || len(args) == 0 {
		return all, err
	}
	var servers, tools []string
	var out []pinReport
	for _, p := range all {
		servers = append(servers, p.Server)
		if p.Server == args[0] {
			tools = append(tools, p.Tool)
			if len(args) == 1 || slices.Contains(args[1:], p.Tool) {
				out = append(out, p)
			}
		}
	}
	if len(tools) == 0 {
		return nil, fmt.Errorf("no tool of a server %q is pinned%s", args[0], suggestion(args[0], servers))
	}
	for _, name := range args[1:] {
		if !slices.Contains(tools, name) {
			return nil, fmt.Errorf("the tool %q of server %q is not pinned%s", name, args[0], suggestion(name, tools))
		}
	}
	return out, nil
}

// all returns the pins, sorted by file, server and tool.
func (f *pinFlags) all() ([]pinReport, error) {
	dir, err := pinDir()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var only []string
	for _, name := range f.files {
		abs, err := filepath.Abs(name)
		if err != nil {
			return nil, err
		}
		only = append(only, abs)
	}
	out := []pinReport{}
	var errs []error
	for _, path := range files {
		pinFile := mcpclient.PinFile(path)
		servers, err := pinFile.All()
		errs = append(errs, err)
		for _, key := range slices.Sorted(maps.Keys(servers)) {
			server, file, _ := strings.Cut(key, "\n")
			if only != nil && !slices.Contains(only, file) {
				continue
			}
			for _, tool := range slices.Sorted(maps.Keys(servers[key])) {
				p := servers[key][tool]
				out = append(out, pinReport{file, server, tool, p, p.Diff(), pinFile})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b pinReport) int { return strings.Compare(a.File, b.File) })
	return out, errors.Join(errs...)
}

// print prints pins: changed ones with their difference, others by name only.
func (f *pinFlags) print(w io.Writer, pins []pinReport) error {
	if f.json {
		return json.NewEncoder(w).Encode(map[string]any{"pins": pins})
	}
	if len(pins) == 0 {
		fmt.Fprintln(w, "no tool is pinned")
	}
	last := ""
	for _, p := range pins {
		if p.key() != last {
			last = p.key()
			fmt.Fprintf(w, "%s, of %s:\n", plainLine(p.Server), plainLine(p.File))
		}
		if p.Changed == nil {
			fmt.Fprintf(w, "  %s\n", p.title())
			continue
		}
		arg := plainLine(p.Tool)
		if p.Tool == mcpclient.ServerPin {
			arg = "''"
		}
		fmt.Fprintf(w, "  %s: changed and withheld from the model; accept it with: kitbag mcp pins accept %s %s\n  %s\n", p.title(), plainLine(p.Server), arg, indented(p.Diff))
	}
	return nil
}
