package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/toolkit"
)

func toolsCommand() *cobra.Command {
	var f toolFlags
	var open []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "List the tools of an agent here, and their cost",
		Long: `List the tools that "kitbag run" would have in the current directory, and what
their definitions cost in every request: bytes, and tokens at four bytes each.
A group costs nothing until the model opens it; --open shows it open, which starts
its MCP server. Untrusted parts of the directory's kitbag.json are skipped, with a
warning; --trust includes them.`,
		Example: "  kitbag tools\n  kitbag tools --mcp .mcp.json --open github",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.list(cmd, open, asJSON) },
	}
	f.register(cmd)
	cmd.Flags().StringArrayVar(&open, "open", nil, "open a `GROUP`, repeatable")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// list prints the tools that the model would see with the groups open. It starts the servers of these groups.
func (f *toolFlags) list(cmd *cobra.Command, open []string, asJSON bool) (err error) {
	f.config, err = untrustedConfig(f.trust, len(f.skills) == 0, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	dirs, err := f.workDirs()
	if err != nil {
		return err
	}
	readResult, err := agent.ReadResult(agent.ResultDir("")) // only listed, never called
	if err != nil {
		return err
	}
	tk, closeServers, err := f.newToolkit(dirs, serverOptions{}, cmd.ErrOrStderr(), readResult)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeServers()) }()
	var scope toolkit.Scope
	if len(open) > 0 {
		if _, err := tk.Enable(cmd.Context(), &scope, open...); err != nil {
			return usage("--open: %w", err)
		}
	}
	v, err := tk.View(cmd.Context(), &scope)
	if err != nil {
		return err
	}
	showSkipped(cmd.ErrOrStderr(), v.Skipped())
	return printTools(cmd.OutOrStdout(), tk.Groups(&scope), v.Cost(), asJSON)
}

// A toolCost is the size that a definition adds to every request.
type toolCost struct {
	Name   string `json:"name"`
	Bytes  int    `json:"bytes"`  // name, description and schema, as they are sent
	Tokens int    `json:"tokens"` // estimated at four bytes each
}

// A groupCost is the cost of a group while it is open.
type groupCost struct {
	toolCost
	Open  bool     `json:"open"`
	Known int      `json:"known_tools"` // without the tools of a server that was never started
	Tools []string `json:"tools"`
}

// printTools prints costs, as text or as JSON. groups and costs.Groups are in the same order.
func printTools(to io.Writer, groups []toolkit.GroupInfo, costs toolkit.Costs, asJSON bool) error {
	var out struct {
		Total  toolCost    `json:"total"`
		Tools  []toolCost  `json:"tools"`
		Groups []groupCost `json:"groups"`
	}
	costOf := func(c toolkit.Cost) toolCost { return toolCost{c.Name, c.Bytes, c.Tokens} }
	out.Total, out.Tools, out.Groups = costOf(costs.Total), []toolCost{}, []groupCost{} // [] in JSON, not null
	for _, c := range costs.Tools {
		out.Tools = append(out.Tools, costOf(c))
	}
	for i, c := range costs.Groups {
		out.Groups = append(out.Groups, groupCost{costOf(c), groups[i].Active, c.Tools, append([]string{}, groups[i].Tools...)})
	}
	if asJSON {
		return writeJSON(to, out)
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOOL\tBYTES\tTOKENS")
	for _, c := range out.Tools {
		fmt.Fprintf(w, "%s\t%d\t%d\n", plainLine(c.Name), c.Bytes, c.Tokens)
	}
	fmt.Fprintf(w, "in each request\t%d\t%d\n", out.Total.Bytes, out.Total.Tokens)
	if len(out.Groups) > 0 {
		fmt.Fprintln(w, "\nGROUP\tBYTES\tTOKENS\tTOOLS\tSTATE")
	}
	for _, g := range out.Groups {
		state := "closed"
		if g.Open {
			state = "open"
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\n", plainLine(g.Name), g.Bytes, g.Tokens, g.Known, state)
	}
	return w.Flush()
}
