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

// Pins are stored in the user's configuration directory, with a separate pin file for each server file.

func pinDir() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("no place to store pins: %w; set HOME or XDG_CONFIG_HOME", err)
	}
	return filepath.Join(dir, "kitbag", "mcp-pins"), nil
}

// serverFilePins are the pins of the servers in one server file.
type serverFilePins struct {
	mcpclient.PinFile
	serverFile string // absolute path
}

// pinKey returns a server's key in a pin file. With the path in the key, kitbag mcp pins can tell which server file a
// pin file is for.
func pinKey(server, serverFile string) string { return server + "\n" + serverFile }

func (p serverFilePins) Load(server string) (map[string]mcpclient.Pin, error) {
	return p.PinFile.Load(pinKey(server, p.serverFile))
}

func (p serverFilePins) Update(server string, change func(map[string]mcpclient.Pin)) error {
	return p.PinFile.Update(pinKey(server, p.serverFile), change)
}

func pinsOf(serverFile string) (serverFilePins, error) {
	path, err := filepath.Abs(serverFile)
	if err != nil {
		return serverFilePins{}, err
	}
	dir, err := pinDir()
	if err != nil {
		return serverFilePins{}, err
	}
	sum := sha256.Sum256([]byte(path))
	return serverFilePins{mcpclient.PinFile(filepath.Join(dir, hex.EncodeToString(sum[:16])+".json")), path}, nil
}

// usePins makes the servers of a file store pins, so that each tool is pinned when it is first allowed.
func usePins(serverFile string, configs []mcpclient.Server) error {
	pins, err := pinsOf(serverFile)
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
	rules := &permission.Policy{Rules: p.Rules} // without the mode, which may allow every tool
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
	Tool   string `json:"tool"` // or mcpclient.ServerPin, for instructions and groups
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

// changeCommand makes the subcommand accept or remove, which calls change for each pin that the arguments select. change
// reports whether it has changed the pin.
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
				err := p.pinFile.Update(pinKey(p.Server, p.File), func(all map[string]mcpclient.Pin) {
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
			for _, p := range changed { // each line begins with "accepted" or "removed"
				fmt.Fprintf(cmd.OutOrStdout(), "%sed %s %s of %s\n", strings.TrimSuffix(name, "e"), plainLine(p.Server), p.title(), plainLine(p.File))
			}
			return nil
		},
	}
	f.register(cmd)
	return cmd
}

// find returns the pins that the arguments SERVER and TOOL select; all pins without arguments.
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
	var serverFiles []string // the files of --mcp; nil for all
	for _, name := range f.files {
		abs, err := filepath.Abs(name)
		if err != nil {
			return nil, err
		}
		serverFiles = append(serverFiles, abs)
	}
	out := []pinReport{}
	var errs []error
	for _, path := range files {
		pinFile := mcpclient.PinFile(path)
		servers, err := pinFile.All()
		errs = append(errs, err)
		for _, key := range slices.Sorted(maps.Keys(servers)) {
			server, serverFile, _ := strings.Cut(key, "\n")
			if serverFiles != nil && !slices.Contains(serverFiles, serverFile) {
				continue
			}
			for _, tool := range slices.Sorted(maps.Keys(servers[key])) {
				p := servers[key][tool]
				out = append(out, pinReport{serverFile, server, tool, p, p.Diff(), pinFile})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b pinReport) int { return strings.Compare(a.File, b.File) })
	return out, errors.Join(errs...)
}

// print prints the names of the pinned tools, with the diff of a tool that has changed.
func (f *pinFlags) print(w io.Writer, pins []pinReport) error {
	if f.json {
		return json.NewEncoder(w).Encode(map[string]any{"pins": pins})
	}
	if len(pins) == 0 {
		fmt.Fprintln(w, "no tool is pinned")
	}
	lastKey := ""
	for _, p := range pins {
		if key := pinKey(p.Server, p.File); key != lastKey {
			lastKey = key
			fmt.Fprintf(w, "%s, of %s:\n", plainLine(p.Server), plainLine(p.File))
		}
		if p.Changed == nil {
			fmt.Fprintf(w, "  %s\n", p.title())
			continue
		}
		toolArg := plainLine(p.Tool)
		if p.Tool == mcpclient.ServerPin {
			toolArg = "''"
		}
		fmt.Fprintf(w, "  %s: changed and withheld from the model; accept it with: kitbag mcp pins accept %s %s\n  %s\n", p.title(), plainLine(p.Server), toolArg, indented(p.Diff))
	}
	return nil
}
