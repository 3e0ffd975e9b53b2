package main

import (
	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/internal/demoserver"
)

func mcpCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "mcp", Short: "Look after MCP servers", Args: noArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(mcpListCommand(), mcpCallCommand(), mcpStatusCommand(), mcpServeCommand())
	return cmd
}

func mcpServeCommand() *cobra.Command {
	var demo bool
	cmd := &cobra.Command{
		Use:     "serve --demo",
		Short:   "Serve MCP on standard input and output",
		Example: "  kitbag mcp serve --demo    a small server to try clients with",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !demo {
				return usage("say what to serve: --demo is a small server to try clients with")
			}
			return demoserver.Serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&demo, "demo", false, "serve a few small tools")
	return cmd
}
