package main

import "github.com/spf13/cobra"

// mcpCommand is the group of the commands about MCP servers.
func mcpCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:     "mcp",
		Short:   "Look after MCP servers",
		Example: "  kitbag mcp list\n  kitbag mcp serve --mcp .mcp.json",
	}, mcpListCommand(), mcpCallCommand(), mcpStatusCommand(), mcpServeCommand(), mcpPinsCommand(), mcpLoginCommand(), mcpLogoutCommand())
}

// defaultServers is the file that names a project's MCP servers, as hosts have it.
const defaultServers = ".mcp.json"

// mcpFlags say which servers are meant and how to print.
type mcpFlags struct {
	files []string
	json  bool
}

// addFiles adds the flag for the files, which all commands about servers have.
func (f *mcpFlags) addFiles(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.files, "mcp", []string{defaultServers}, "a `FILE` that names MCP servers under mcpServers, repeatable")
	cmd.Flags().Lookup("mcp").DefValue = defaultServers // the help would show a list of one
}

// add adds the flags of the commands that print about servers.
func (f *mcpFlags) add(cmd *cobra.Command) {
	f.addFiles(cmd)
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
}
