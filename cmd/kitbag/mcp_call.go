package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// callFlags are the flags of kitbag mcp call.
type callFlags struct {
	mcpFlags
	timeout  time.Duration
	progress bool
}

// mcpCallCommand is "kitbag mcp call". No rules apply, since the user makes the call.
func mcpCallCommand() *cobra.Command {
	var f callFlags
	cmd := &cobra.Command{
		Use:   "call [flags] SERVER TOOL [ARGUMENTS]",
		Short: "Call one tool, without a model and without approval",
		Long: `Call one tool of a server with ARGUMENTS, a JSON object, and print the
result. The server's questions are asked at the terminal. The exit code is
0 if the server answered, even if the tool reported an error, and 1 if
the server or the call failed.`,
		Example: `  kitbag mcp call files read_text_file '{"path": "README.md"}'`,
		Args:    between(2, 3, "SERVER TOOL [ARGUMENTS]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			input := "{}"
			if len(args) == 3 {
				input = args[2]
			}
			var object map[string]json.RawMessage
			if err := json.Unmarshal([]byte(input), &object); err != nil || object == nil {
				return usage("the arguments must be a JSON object such as '{\"a\": 1}', got %.80q", input)
			}
			return f.call(cmd, args[0], args[1], json.RawMessage(input))
		},
	}
	f.register(cmd)
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "how long the call may take; 0 means the server's own setting")
	cmd.Flags().BoolVar(&f.progress, "progress", false, "print the server's progress on standard error")
	return cmd
}

func (f *callFlags) call(cmd *cobra.Command, server, toolName string, input json.RawMessage) error {
	cfg, err := f.findServer(server)
	if err != nil {
		return err
	}
	if f.timeout < 0 {
		return usage("--timeout %v: it must not be negative; leave it out for the server's own setting", f.timeout)
	}
	if f.timeout > 0 {
		// Progress messages of the server must not extend the timeout that the user has set.
		cfg.Options.Timeouts.Idle, cfg.Options.Timeouts.Call = f.timeout, f.timeout
	}
	// Without a terminal the client declares no elicitation, and the server may continue without an answer.
	if isTerminal(cmd.InOrStdin()) && isTerminal(cmd.ErrOrStderr()) {
		cfg.Options.Elicitation = newPrompt(cmd.InOrStdin(), cmd.ErrOrStderr()).elicit
	}
	ctx := cmd.Context()
	c, err := mcpclient.New(cfg.Name, cfg.Transport, &cfg.Options)
	if err != nil {
		return err
	}
	defer c.Close()
	t, err := findTool(ctx, c, toolName)
	if err != nil {
		return addLoginRemedy(cfg.Name, err)
	}
	call := tool.Call{ID: "call", Name: t.Info().Name, Input: input}
	result := tool.NewCollector(call)
	for chunk, err := range t.Call(ctx, call) {
		if err != nil {
			return err
		}
		if chunk.ForUser { // progress
			if text, ok := chunk.Block.(*message.Text); ok && f.progress {
				fmt.Fprint(cmd.ErrOrStderr(), plain(text.Text))
			}
			continue
		}
		result.Add(chunk)
	}
	return f.print(cmd.OutOrStdout(), result.Result())
}

// findServer returns the server with a name. The error is the server's own if its entry is broken.
func (f *mcpFlags) findServer(name string) (mcpclient.Server, error) {
	configs, broken, err := f.load()
	if err != nil {
		return mcpclient.Server{}, err
	}
	configs, broken, err = f.selectServers([]string{name}, configs, broken)
	switch {
	case err != nil:
		return mcpclient.Server{}, err
	case len(configs) == 0:
		return mcpclient.Server{}, broken[0]
	}
	return configs[0], nil
}

// findTool returns the tool that has a name on the server or in kitbag.
func findTool(ctx context.Context, c *mcpclient.Client, name string) (tool.Tool, error) {
	tools, err := c.Tools(ctx)
	if err != nil {
		return nil, err
	}
	var remoteNames []string
	for _, t := range tools {
		_, remote, _ := mcpclient.Origin(t)
		if name == remote || name == t.Info().Name {
			return t, nil
		}
		remoteNames = append(remoteNames, remote)
	}
	for _, s := range c.Skipped() {
		if s.Name == name {
			return nil, fmt.Errorf("MCP server %q: the tool %q was skipped: %s", c.Name(), name, s.Reason)
		}
	}
	return nil, fmt.Errorf("MCP server %q has no tool %q%s", c.Name(), name, suggestion(name, remoteNames))
}

// print prints a result. Without --json it only names pictures and other data, which a terminal cannot show.
func (f *callFlags) print(w io.Writer, res *message.ToolResult) error {
	if f.json {
		blocks := append(message.Blocks{}, res.Blocks...) // [] without blocks, not null
		return json.NewEncoder(w).Encode(struct {
			Content    message.Blocks  `json:"content"`
			Structured json.RawMessage `json:"structured,omitempty"`
			IsError    bool            `json:"is_error"`
		}{blocks, res.Structured, res.Outcome == message.OutcomeError})
	}
	for _, b := range res.Blocks {
		switch b := b.(type) {
		case *message.Text:
			fmt.Fprintln(w, plain(b.Text))
		case *message.Data:
			fmt.Fprintf(w, "[%s %s, %d bytes; --json prints them]\n", plainLine(b.MediaType), plainLine(b.Name), len(b.Bytes))
		}
	}
	return nil
}
