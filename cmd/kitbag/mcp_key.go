package main

import (
	"crypto/rand"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/mcpserver"
)

func mcpKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Make a token for a client of kitbag mcp serve",
		Long: `Make a random token, and its hash for the gateway's --config file, which then
does not contain the token:

  "credentials": {"ci": {"hash": "sha256:…"}}

The token is printed once and stored nowhere: give it to the client, which sends
it as "Authorization: Bearer TOKEN".`,
		Example: "  kitbag mcp key",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token := "kb_" + rand.Text() + rand.Text() // programs that look for secrets can recognize the prefix
			fmt.Fprintf(cmd.OutOrStdout(), "token: %s\nhash:  %s\n", token, mcpserver.HashToken(token))
			return nil
		},
	}
}
