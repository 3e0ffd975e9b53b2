package main

import "github.com/spf13/cobra"

func mcpCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "mcp", Short: "Look after MCP servers", Args: noArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(mcpListCommand(), mcpCallCommand(), mcpStatusCommand(), mcpServeCommand(), mcpLoginCommand(), mcpLogoutCommand())
	return cmd
}
