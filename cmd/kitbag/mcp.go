package main

import "github.com/spf13/cobra"

func mcpCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:     "mcp",
		Short:   "Manage MCP servers",
		Example: "  kitbag mcp list\n  kitbag mcp serve --mcp .mcp.json",
	}, mcpListCommand(), mcpAddCommand(), mcpRemoveCommand(), mcpImportCommand(), mcpCallCommand(), mcpStatusCommand(), mcpServeCommand(), mcpPinsCommand(), mcpKeyCommand(), mcpLoginCommand(), mcpLogoutCommand())
}

// defaultServers is the file that names a project's MCP servers, as in other hosts.
const defaultServers = ".mcp.json"

// mcpFlags select the servers and the output format.
type mcpFlags struct {
	files []string // with entries under mcpServers
	json  bool
}

// registerFiles adds --mcp, for commands that read several files.
func (f *mcpFlags) registerFiles(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.files, "mcp", []string{defaultServers}, "a `FILE` that names MCP servers under mcpServers, repeatable")
	cmd.Flags().Lookup("mcp").DefValue = defaultServers // in the help, instead of a list
}

// register adds --mcp and --json.
func (f *mcpFlags) register(cmd *cobra.Command) {
	f.registerFiles(cmd)
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
}
